"""Comparison of two snapshots: parameters, features, traffic and off-policy value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.ope import LoggedData, never_drawn
from steersman.ope.paired import OffPolicyDelta, off_policy_delta
from steersman.points.policy_factory import load_policy
from steersman.points.state_header import state_header
from steersman.policies.configurations import are_configurations
from steersman.policies.sequential import SequencePolicy
from steersman.registry.changes import Changed, Shift, Traffic
from steersman.registry.versions import Ingredients, change_between
from steersman.snapshots.comparison_picture import draw_diff
from steersman.snapshots.comparison_report import diff_text
from steersman.snapshots.reference_log import decided

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.registry.description import Description
    from steersman.registry.versions import Change
    from steersman.snapshots.reference_log import Decided, Reference

    Floats = NDArray[np.float64]

_ABOUT = ("version", "algorithm", "dim", "feature_hash", "spec_hash", "samples", "line", "line_seq")


class Described(Protocol):
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
    about: Mapping[str, Changed] = field(default_factory=dict)
    parameters: Mapping[str, Changed] = field(default_factory=dict)
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


def diff(first: Described, second: Described, reference: Reference | None = None) -> Diff:
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
    ('minor', Changed(before=1.0, after=0.5))
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


def _parameters(snapshot: Described) -> dict[str, Any]:
    config = state_header(snapshot.state)["config"]
    return {name: value for name, value in config.items() if name != "actions"}


def _ingredients(description: Description, parameters: Mapping[str, Any]) -> Ingredients:
    features = {"actions": description.actions, "feature_hash": description.feature_hash}
    return Ingredients(description.algorithm, {**parameters, **features})


def _differing(pairs: Mapping[str, tuple[Any, Any]]) -> dict[str, Changed]:
    return {name: Changed(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def _compared(
    first: Described, second: Described, reference: Reference
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
        # The log may contain actions that neither snapshot has any more.
        logged = (*policies[0].actions, *policies[1].actions, *reference.actions)
        columns = tuple(dict.fromkeys(logged))
        reference = reference.known_to(*policies)
    before = decided(policies[0], reference, columns)
    after = decided(policies[1], reference, columns, other=True)
    traffic = None if mixed else _traffic(before, after)
    are_places = not (columns or mixed)
    return traffic, _off_policy(before, after, reference, are_places=are_places)


def _traffic(before: Decided, after: Decided) -> Traffic:
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
    before: Decided, after: Decided, reference: Reference, *, are_places: bool
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


def _pairs(changes: Mapping[str, Changed]) -> dict[str, dict[str, Any]]:
    return {name: change.to_json() for name, change in changes.items()}
