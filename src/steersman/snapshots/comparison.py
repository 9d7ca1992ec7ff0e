"""Comparison of two snapshots: parameters, features, traffic and off-policy value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.ope import LoggedData, never_drawn
from steersman.ope.paired import OffPolicyDelta, off_policy_delta
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import state_header
from steersman.policies.configurations import are_configurations
from steersman.policies.sequential import SequencePolicy
from steersman.registry.versions import Ingredients, change_between
from steersman.snapshots.reference_log import decided

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.registry.description import Description
    from steersman.registry.versions import Change
    from steersman.snapshots.reference_log import PolicyDecisions, Reference

    Floats = NDArray[np.float64]
    from collections.abc import Iterator

_MOST_ACTIONS_COMPARISON_REPORT = 20
_WIDTH = 24


def diff_text(
    names: tuple[str, str],
    change: Change,
    changed: Mapping[str, Mapping[str, ChangedEntry]],
    *,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    traffic: Traffic | None,
    off_policy: OffPolicyDelta | None,
) -> str:
    """Return the difference as text, in lines of at most 100 columns."""
    lines = [f"{names[0]} → {names[1]}  ({_KINDS[change]})"]
    for title, entries in changed.items():
        lines += _section(title, entries)
    for sign, actions in (("+", added), ("-", removed)):
        lines += [f"  {sign} action {_brief(action, 80)}" for action in actions]
    if traffic is not None:
        lines += _traffic_comparison_report(traffic)
    if off_policy is not None:
        lines += _off_policy_comparison_report(off_policy)
    return "\n".join(lines)


_KINDS = {
    "patch": "patch: more data",
    "minor": "minor: other parameters or features",
    "major": "major: different algorithm",
}


def _section(title: str, changes: Mapping[str, ChangedEntry]) -> Iterator[str]:
    if changes:
        yield title
    for name, change in changes.items():
        pair = f"{_brief(change.before, 32)} → {_brief(change.after, 32)}"
        yield f"  {_brief(name, _WIDTH):{_WIDTH}} {pair}"


def _traffic_comparison_report(traffic: Traffic) -> Iterator[str]:
    yield f"traffic on {traffic.rows:,} logged requests"
    for shift in traffic.shifts[:_MOST_ACTIONS_COMPARISON_REPORT]:
        change = shift.after - shift.before
        yield (
            f"  {_brief(shift.action, _WIDTH):{_WIDTH}} {shift.before:7.2%} → {shift.after:7.2%}"
            f"  {change:+8.2%}"
        )
    rest = traffic.shifts[_MOST_ACTIONS_COMPARISON_REPORT:]
    if rest:
        largest = abs(rest[0].after - rest[0].before)
        yield f"  and {len(rest):,} more actions, each changing by at most {largest:.2%}"
    yield f"  {'moved on average':{_WIDTH}} {traffic.moved:7.2%} of a request's probability"
    yield f"  {'most likely action differs':{_WIDTH}} {traffic.flipped:7.2%} of the requests"


def _off_policy_comparison_report(found: OffPolicyDelta) -> Iterator[str]:
    yield f"off-policy ({found.estimator}) on {found.rows:,} rewarded requests"
    sizes = f"{found.ess[0]:,.0f} and {found.ess[1]:,.0f}"
    if found.values is not None and found.delta is not None:
        yield f"  {'value':{_WIDTH}} {found.values[0]:.4f} → {found.values[1]:.4f}"
        interval = f"[{found.low:+.4f}, {found.high:+.4f}] at {found.level:.0%}"
        yield f"  {'difference':{_WIDTH}} {found.delta:+.4f}  {interval}"
    yield f"  {'effective sample size':{_WIDTH}} {sizes}"
    for reason in found.reasons:
        yield f"  refused: {reason}"


def _brief(value: Any, most: int) -> str:
    if value is None:
        return "none"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


_MOST_ACTIONS = 12
_BEFORE, _AFTER = "#999999", "#0b6e4f"


def draw_diff(
    file: Path, names: tuple[str, str], traffic: Traffic | None, off_policy: OffPolicyDelta | None
) -> None:
    """Write traffic per action before and after, and the off-policy difference below it.

    Raises:
        DataError: matplotlib is not installed.
        InputError: no reference log, or an unsupported extension.
    """
    if traffic is None:
        raise InputError("no data to draw: compare the snapshots on a reference log")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra, and heavy
    except ImportError as error:
        message = "matplotlib is not installed; pictures need: "
        raise DataError(message + how_to_install("demo")) from error
    count = min(len(traffic.shifts), _MOST_ACTIONS)
    figure = Figure(figsize=(8.0, 2.6 + 0.4 * count), layout="constrained")
    kinds = figure.canvas.get_supported_filetypes()
    if file.suffix[1:].lower() not in kinds:
        message = f"unsupported picture file {file.name!r:.80}; allowed endings: "
        raise InputError(message + ", ".join(f".{kind}" for kind in sorted(kinds)))
    upper, lower = figure.subplots(2, 1, height_ratios=[0.6 + 0.4 * count, 0.7])
    _draw_traffic(upper, traffic, names)
    _draw_delta(lower, off_policy)
    figure.suptitle(f"{names[0]} → {names[1]}")
    # No date and no random ids, so that equal differences give equal files.
    figure.savefig(file, dpi=150, metadata={"Software": None} if file.suffix == ".png" else None)


def _draw_traffic(axes: Any, traffic: Traffic, names: tuple[str, str]) -> None:
    shown = traffic.shifts[:_MOST_ACTIONS][::-1]
    places = range(len(shown))
    for offset, colour, name, shares in (
        (0.2, _BEFORE, names[0], [shift.before for shift in shown]),
        (-0.2, _AFTER, names[1], [shift.after for shift in shown]),
    ):
        axes.barh([place + offset for place in places], shares, 0.38, color=colour, label=name)
    # matplotlib reads text between dollar signs as mathematics.
    axes.set_yticks(list(places), [shift.action[:40].replace("$", r"\$") for shift in shown])
    axes.set_xlabel(f"share of {traffic.rows:,} logged requests")
    axes.set_xlim(0.0, 1.0)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(b=False)


def _draw_delta(axes: Any, found: OffPolicyDelta | None) -> None:
    axes.spines[["top", "right", "left"]].set_visible(b=False)
    axes.set_yticks([])
    axes.axvline(0.0, color=_BEFORE, linewidth=1.0)
    if found is None or found.delta is None:
        reasons = "no log" if found is None else "; ".join(found.reasons)
        axes.set_xlabel(f"off-policy difference: refused ({reasons[:90]})")
        return
    half = (found.high or 0.0) - found.delta
    axes.errorbar([found.delta], [0.0], xerr=[[half], [half]], fmt="o", color=_AFTER, capsize=4)
    sizes = f"{found.ess[0]:,.0f} and {found.ess[1]:,.0f}"
    axes.set_xlabel(
        f"difference in reward, off-policy ({found.level:.0%}; effective sample sizes {sizes})"
    )


@dataclass(frozen=True)
class ChangedEntry:
    """One entry that differs.

    Args:
        before: value in the first snapshot; None if absent.
        after: value in the second snapshot; None if absent.
    """

    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """Return both values as JSON values."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True)
class Shift:
    """Traffic share of one action on the reference log.

    Args:
        action: action name.
        before: share under the first snapshot, in [0, 1].
        after: share under the second snapshot, in [0, 1].
    """

    action: str
    before: float
    after: float


@dataclass(frozen=True)
class Traffic:
    """Traffic shifts between actions.

    Args:
        shifts: shift per action, the largest change first.
        moved: mean probability that moves from one action to another, in [0, 1].
        flipped: share of requests whose most likely action changes, in [0, 1].
        rows: number of requests compared.
    """

    shifts: tuple[Shift, ...]
    moved: float
    flipped: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the traffic shifts as JSON values."""
        return {
            "rows": self.rows,
            "moved": self.moved,
            "flipped": self.flipped,
            "actions": [asdict(shift) for shift in self.shifts],
        }


_ABOUT = ("version", "algorithm", "dim", "feature_hash", "spec_hash", "samples", "line", "line_seq")


class DescribedState(Protocol):
    """A state with its description: `Published`, or a loaded snapshot."""

    @property
    def description(self) -> Description:
        """Signed description."""

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """Arrays by name."""


@dataclass(frozen=True)
class Diff:
    """Difference between two snapshots.

    Args:
        names: both versions.
        change: kind of version step.
        about: description entries that differ.
        parameters: policy parameters that differ.
        added: actions that exist only in the second snapshot.
        removed: actions that exist only in the first snapshot.
        traffic: traffic shifts on the reference log; None without a log and for mixed actions.
        off_policy: off-policy difference; None in the same cases.
    """

    names: tuple[str, str]
    change: Change
    about: Mapping[str, ChangedEntry] = field(default_factory=dict)
    parameters: Mapping[str, ChangedEntry] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    traffic: Traffic | None = None
    off_policy: OffPolicyDelta | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON values."""
        return {
            "first": self.names[0],
            "second": self.names[1],
            "change": self.change,
            "about": _pairs(self.about),
            "parameters": _pairs(self.parameters),
            "actions": {"added": list(self.added), "removed": list(self.removed)},
            "traffic": None if self.traffic is None else self.traffic.to_json(),
            "off_policy": None if self.off_policy is None else self.off_policy.to_json(),
        }

    def text(self) -> str:
        """Return the difference as text, in lines of at most 100 columns."""
        return diff_text(
            self.names,
            self.change,
            {"snapshot": self.about, "parameters": self.parameters},
            added=self.added,
            removed=self.removed,
            traffic=self.traffic,
            off_policy=self.off_policy,
        )

    def picture(self, file: Path) -> None:
        """Write a picture of the traffic and off-policy difference.

        Raises:
            DataError: matplotlib is not installed.
            InputError: no reference log, so no data to draw; or an unsupported extension.
        """
        draw_diff(file, self.names, self.traffic, self.off_policy)


def diff(first: DescribedState, second: DescribedState, reference: Reference | None = None) -> Diff:
    """Return the difference between two snapshots of a decision point.

    Args:
        reference: reference log of decisions; None: compare parameters and features only.

    Raises:
        InputError: the snapshots are of different decision points, or the log does not match.
        StateError: a state is not readable by any policy.

    >>> from datetime import UTC, datetime
    >>> from steersman.policies import LinUCB
    >>> from steersman.registry.description import Published, describe
    >>> named = {"tenant": "acme", "skill": "assistant", "point": "route"}
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> states = [LinUCB(["a", "b"], dim=2, alpha=alpha).state() for alpha in (1.0, 0.5)]
    >>> both = [
    ...     Published(describe(state, version=version, created_at=at, **named), state)
    ...     for state, version in zip(states, ("0.1.0", "0.2.0"), strict=True)
    ... ]
    >>> found = diff(*both)
    >>> found.change, found.parameters["alpha"]
    ('minor', ChangedEntry(before=1.0, after=0.5))
    """
    one, other = first.description, second.description
    if (one.tenant, one.skill, one.point) != (other.tenant, other.skill, other.point):
        message = (
            f"{one.skill}/{one.point} and {other.skill}/{other.point} are different "
            "decision points; compare two snapshots of the same one"
        )
        raise InputError(message)
    before, after = (_parameters(each) for each in (first, second))
    traffic, off_policy = (None, None) if reference is None else _compared(first, second, reference)
    return Diff(
        names=(one.version, other.version),
        change=change_between(_ingredients(one, before), _ingredients(other, after)),
        about=_differing({name: (getattr(one, name), getattr(other, name)) for name in _ABOUT}),
        parameters=_differing(
            {name: (before.get(name), after.get(name)) for name in {**before, **after}}
        ),
        added=tuple(name for name in other.actions if name not in one.actions),
        removed=tuple(name for name in one.actions if name not in other.actions),
        traffic=traffic,
        off_policy=off_policy,
    )


def _parameters(snapshot: DescribedState) -> dict[str, Any]:
    config = state_header(snapshot.state)["config"]
    return {name: value for name, value in config.items() if name != "actions"}


def _ingredients(description: Description, parameters: Mapping[str, Any]) -> Ingredients:
    features = {"actions": description.actions, "feature_hash": description.feature_hash}
    return Ingredients(description.algorithm, {**parameters, **features})


def _differing(pairs: Mapping[str, tuple[Any, Any]]) -> dict[str, ChangedEntry]:
    return {name: ChangedEntry(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def _compared(
    first: DescribedState, second: DescribedState, reference: Reference
) -> tuple[Traffic | None, OffPolicyDelta]:
    policies = load_policy(first.state), load_policy(second.state)
    if bool(policies[0].actions) != bool(policies[1].actions):
        message = (
            "one snapshot has named actions, the other has open candidates; their traffic cannot "
            "be compared on one log"
        )
        raise InputError(message)
    sequences = isinstance(policies[0], SequencePolicy)
    mixed = sequences or are_configurations(policies[0].actions)
    columns: tuple[str, ...] = ()
    if policies[0].actions and not mixed:
        # The log may contain actions that both snapshots lack.
        logged = (*policies[0].actions, *policies[1].actions, *reference.actions)
        columns = tuple(dict.fromkeys(logged))
        reference = reference.known_to(*policies)
    before = decided(policies[0], reference, columns)
    after = decided(policies[1], reference, columns, other=True)
    traffic = None if mixed else _traffic(before, after)
    are_places = not (columns or mixed)
    return traffic, _off_policy(before, after, reference, are_places=are_places)


def _traffic(before: PolicyDecisions, after: PolicyDecisions) -> Traffic:
    shares = before.traffic(), after.traffic()
    shifts = [
        Shift(name, shares[0].get(name, 0.0), shares[1].get(name, 0.0))
        for name in {**shares[0], **shares[1]}
    ]
    first, second = before.target(), after.target()
    return Traffic(
        shifts=tuple(sorted(shifts, key=lambda shift: -abs(shift.after - shift.before))),
        moved=float(0.5 * np.abs(second - first).sum(axis=1).mean()),
        flipped=float((first.argmax(axis=1) != second.argmax(axis=1)).mean()),
        rows=len(first),
    )


def _off_policy(
    before: PolicyDecisions, after: PolicyDecisions, reference: Reference, *, are_places: bool
) -> OffPolicyDelta:
    rewards = np.asarray(reference.rewards, dtype=np.float64)
    known = ~np.isnan(rewards)
    estimator = "dr" if before.columns else "snips"
    if not known.any():
        reason = "no decision of the reference log has a reward"
        return OffPolicyDelta(estimator, 0.95, 0, (0.0, 0.0), reasons=(reason,))
    contexts = np.asarray(reference.contexts) if estimator == "dr" else np.zeros(0)
    numeric = contexts.dtype.kind in "biuf" and contexts.ndim == 2
    logs = []
    for each in (before, after):
        actions, target = each.places(reference.actions)[known], each.target()[known]
        missing = never_drawn(actions, target) if each.columns else None
        logs.append(
            LoggedData(
                actions=actions,
                rewards=rewards[known],
                propensities=np.asarray(reference.propensities, dtype=np.float64)[known],
                target=target,
                contexts=contexts[known] if numeric else None,
                clusters=None if reference.units is None else np.asarray(reference.units)[known],
                reward_range=reference.reward_range,
                missing=missing if each.missing is None else np.array(each.missing)[known],
                names=np.array(reference.actions)[known] if are_places else None,
            )
        )
    return off_policy_delta(*logs, estimator=estimator, adaptive=reference.adaptive)


def _pairs(changes: Mapping[str, ChangedEntry]) -> dict[str, dict[str, Any]]:
    return {name: change.to_json() for name, change in changes.items()}
