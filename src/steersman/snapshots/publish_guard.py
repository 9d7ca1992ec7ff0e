"""Publish guard: checks that a state must pass before it is signed.

The guard rejects a state whose size or scale leaves the range of its predecessors
(`steersman.points.scale_guard`). It also rejects one that is shown to be worse than the previous
version on held-out decisions (`steersman.learning.held_out`). It does not require an
improvement. An operator may override the guard with a reason, which is audited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.db.rewards import spec_of
from steersman.db.snapshots import snapshots_of
from steersman.db.updates import base_state
from steersman.errors import GuardError
from steersman.learning.held_out import LEVEL, ComparedState, compare
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.points.scale_guard import Measures, guard, measure
from steersman.points.state_bytes import unpack_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.learning.candidates import Origin
    from steersman.learning.held_out import HeldOutReport
    from steersman.policies import ChoicePolicy


@dataclass(frozen=True, slots=True, eq=False)
class NewSnapshot:
    """State that will become a snapshot.

    Attributes:
        row: the decision point with its declaration; its snapshot is the lineage.
        policy: the state.
        seq: last update of the lineage in the state.
        origin: origin of a relearned lineage; None otherwise.
    """

    row: PointRow
    policy: ChoicePolicy
    seq: int
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Author of and reason for a publication.

    Attributes:
        actor: actor name for the audit log.
        force: reason to override the guard; None to obey it.
        evidence: further evidence to sign.
        git_commit: git commit of the publisher.
        level: confidence level that must show a loss on held-out decisions.
    """

    actor: str
    force: str | None = None
    evidence: Mapping[str, Any] | None = None
    git_commit: str | None = None
    level: float = LEVEL


async def judge(connection: Any, made: NewSnapshot, reason: Reason) -> dict[str, Any]:
    """Return the evidence to sign, or raise an error.

    Raises:
        GuardError: the guard rejects the state and `override` is not set.
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
    connection: Any, made: NewSnapshot, before: SnapshotRow | None, level: float
) -> HeldOutReport:
    """Compare with the previous version, or with the untrained base for the first one."""
    row = made.row
    point = row.tenant, row.skill, row.point
    policy = load_policy(made.policy.state())
    new = ComparedState(row.spec, policy, row.snapshot, made.seq)
    if before is None:
        old = ComparedState(row.spec, initial_policy(row.spec), row.snapshot, 0)
    else:
        state = unpack_state(await base_state(connection, point, before.version))
        spec = await spec_of(connection, before.spec_hash)
        old = ComparedState(spec, load_policy(state), before.version, 0)
    return await compare(connection, point, new, old, level=level)


def available(rows: Iterable[SnapshotRow]) -> list[SnapshotRow]:
    """Return the published and not retracted versions in publishing order."""
    found = [one for one in rows if one.is_available]
    return sorted(found, key=lambda one: one.published_at or one.created_at)
