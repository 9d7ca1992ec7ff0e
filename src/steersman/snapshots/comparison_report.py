"""Text report of the difference of two snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from steersman.ope.paired import OffPolicyDelta
    from steersman.registry.changes import Changed, Traffic
    from steersman.registry.versions import Change

_MOST_ACTIONS = 20
_WIDTH = 24


def diff_text(
    names: tuple[str, str],
    change: Change,
    changed: Mapping[str, Mapping[str, Changed]],
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
        lines += _traffic(traffic)
    if off_policy is not None:
        lines += _off_policy(off_policy)
    return "\n".join(lines)


_KINDS = {
    "patch": "patch: more data",
    "minor": "minor: other parameters or features",
    "major": "major: different algorithm",
}


def _section(title: str, changes: Mapping[str, Changed]) -> Iterator[str]:
    if changes:
        yield title
    for name, change in changes.items():
        pair = f"{_brief(change.before, 32)} → {_brief(change.after, 32)}"
        yield f"  {_brief(name, _WIDTH):{_WIDTH}} {pair}"


def _traffic(traffic: Traffic) -> Iterator[str]:
    yield f"traffic on {traffic.rows:,} logged requests"
    for shift in traffic.shifts[:_MOST_ACTIONS]:
        change = shift.after - shift.before
        yield (
            f"  {_brief(shift.action, _WIDTH):{_WIDTH}} {shift.before:7.2%} → {shift.after:7.2%}"
            f"  {change:+8.2%}"
        )
    rest = traffic.shifts[_MOST_ACTIONS:]
    if rest:
        largest = abs(rest[0].after - rest[0].before)
        yield f"  and {len(rest):,} more actions, each changing by at most {largest:.2%}"
    yield f"  {'moved on average':{_WIDTH}} {traffic.moved:7.2%} of a request's probability"
    yield f"  {'most likely action differs':{_WIDTH}} {traffic.flipped:7.2%} of the requests"


def _off_policy(found: OffPolicyDelta) -> Iterator[str]:
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
