"""The publish guard: what a state must not be before it is signed, and the evidence that it is not.

It refuses a state whose size or scale left the range of its predecessors
(`steersman.registry.guard`), and one that decides worse than the version before it on held-out
decisions (`steersman.learn.held_out`): not one that could not be shown to be better, since then
there would never be a second version. A person may overrule it, with a reason, which is audited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import GuardError
from steersman.learn.held_out import LEVEL, Judged, compare
from steersman.policies import load_policy
from steersman.registry import Measures, guard, measure, unpack_state
from steersman.store import base_state, initial_policy, snapshots_of, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.learn.candidates import Origin
    from steersman.learn.held_out import HeldOutReport
    from steersman.policies import ChoicePolicy
    from steersman.store import PointRow, SnapshotRow


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A state that is to become a snapshot.

    Attributes:
        row: the declaration it was learned under; its snapshot is the line.
        policy: the state.
        seq: the last update of the line that it holds.
        origin: where the line comes from, if it was relearned for this.
    """

    row: PointRow
    policy: ChoicePolicy
    seq: int
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why and by whom something is published.

    Attributes:
        actor: who does it, for the audit.
        force: why the guard is overruled; None: it is not.
        evidence: what else is to be signed with it.
        git_commit: of what publishes it.
        level: of the interval that must show a loss before held-out decisions refuse a state.
    """

    actor: str
    force: str | None = None
    evidence: Mapping[str, Any] | None = None
    git_commit: str | None = None
    level: float = LEVEL


async def judge(connection: Any, made: Made, reason: Reason) -> dict[str, Any]:
    """Return the evidence to be signed, or refuse.

    Args:
        connection: of role worker, within a transaction of the tenant.
        made: what is to be published.
        reason: why, and whether somebody overrules the guard.

    Returns:
        What held-out decisions say, where a candidate comes from, what was overruled.

    Raises:
        GuardError: there are reasons against publishing, and nobody overrules them.
    """
    row = made.row
    point = row.tenant, row.skill, row.point
    earlier = available(await snapshots_of(connection, point))
    measures = [Measures.from_json((one.description or {})["guard"]) for one in earlier]
    reasons = guard(measure(made.policy.state()), measures)
    report = await _held_out(connection, made, earlier[-1] if earlier else None, reason.level)
    if report.is_worse:
        reasons.append(
            f"over {report.decisions} held-out decisions its reward is {report.difference:+.4f} "
            f"(95 % CI {report.low:+.4f} to {report.high:+.4f}) relative to {report.against}"
        )
    if reasons and not (reason.force or "").strip():
        message = f"{row.skill}/{row.point} was not published: {'; '.join(reasons)}; run "
        message += "`steersman snapshot diff`, or override with --force REASON"
        raise GuardError(message, reasons)
    evidence = {**(reason.evidence or {}), "held_out": report.to_json()}
    if made.origin is not None:
        evidence["relearned"] = made.origin.to_json()
    if reasons:
        evidence |= {"overruled": reasons, "force": reason.force}
    return evidence


async def _held_out(
    connection: Any, made: Made, before: SnapshotRow | None, level: float
) -> HeldOutReport:
    """Compare with the version before; the first one, with the line that has learned nothing."""
    row = made.row
    point = row.tenant, row.skill, row.point
    policy = load_policy(made.policy.state())
    new = Judged(row.spec, policy, row.snapshot, made.seq)
    if before is None:
        old = Judged(row.spec, initial_policy(row.spec), row.snapshot, 0)
    else:
        state = unpack_state(await base_state(connection, point, before.version))
        spec = await spec_of(connection, before.spec_hash)
        old = Judged(spec, load_policy(state), before.version, 0)
    return await compare(connection, point, new, old, level=level)


def available(rows: Iterable[SnapshotRow]) -> list[SnapshotRow]:
    """Return the published versions that were not retracted, in the order of publishing.

    Args:
        rows: all snapshots of a point.
    """
    found = [one for one in rows if one.is_available]
    return sorted(found, key=lambda one: one.published_at or one.created_at)
