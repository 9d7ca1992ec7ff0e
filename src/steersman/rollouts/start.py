"""Start of a rollout: checks of a candidate before it serves."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import hold_point, hold_view, last_update
from steersman.db.rollout_transitions import start_rollout
from steersman.db.rollouts import rollouts_of
from steersman.errors import RolloutError
from steersman.learning.replica import StoredBases
from steersman.rollouts.candidate import candidate_of
from steersman.rollouts.candidate_evidence import logged_choices, off_policy
from steersman.rollouts.checks import off_policy_findings
from steersman.rollouts.plan import RolloutPlan, plan_of
from steersman.rollouts.state_machine import checked_reason
from steersman.rollouts.transitions import audit
from steersman.snapshots.promote import check_promotable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.work_queue import Point
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.evidence import OffPolicyEvidence
    from steersman.spec.point import DecisionPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Request to start a rollout.

    Attributes:
        skill: skill of the decision point.
        point: name of the decision point.
        candidate: published version.
        reason: reason for the audit log; may be empty.
        overrides: fields of the section ``rollout`` that replace the declared ones.
        concurrent: whether to allow other active rollouts of the skill; None: as declared.
        again: reason to retry a candidate that was rolled back; empty: not allowed.
        force: reason to serve at once, without shadow and evidence.
    """

    skill: str
    point: str
    candidate: str
    reason: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    concurrent: bool | None = None
    again: str = ""
    force: str = ""


async def start(
    database: Database,
    tenant: UUID,
    wanted: StartRequest,
    *,
    actor: str,
    clock: Callable[[], float],
    bases: Bases | None = None,
    salt: str | None = None,
) -> RolloutRow:
    """Start a rollout.

    The candidate must be published, verify, and have the declared actions, context and reward. A
    candidate that was rolled back needs a reason for a retry. A plan without a shadow stage needs
    evidence from the log at once.

    Args:
        clock: seconds since 1970.
        bases: verifier of the candidate; default: trust the store's rows.
        salt: salt of the hash that places units; default: random.

    Raises:
        RolloutError: the candidate does not fit, was rolled back, or another rollout is active.
        SnapshotError: the candidate does not verify.
        StateError: unknown decision point or snapshot, or the candidate cannot be promoted from the
            live policy: it has served before, or comes from another lineage.
        InputError: invalid overrides or reason.
    """
    wanted = _with_reasons(wanted)
    key = tenant, wanted.skill, wanted.point
    connection = await database.connect("worker")
    try:
        placing = os.urandom(16).hex() if salt is None else salt
        checked = await _verified(connection, key, wanted, clock, bases or StoredBases(), placing)
        now = datetime.fromtimestamp(clock(), UTC)
        async with connection.transaction():
            point = await hold_point(connection, key)
            await _check_history(connection, key, wanted)
            await check_promotable(connection, point, wanted.candidate)
            row = await _write(connection, point, wanted, checked.plan, now)
            await _tell(connection, row, wanted, checked.evidence, actor)
            return row
    finally:
        await connection.close()


def _with_reasons(wanted: StartRequest) -> StartRequest:
    """Check the given reasons: a blank one would bypass the gates."""
    checked: dict[str, Any] = {}
    for name in ("reason", "again", "force"):
        given: str = getattr(wanted, name)
        if given:
            checked[name] = checked_reason(given, name=name)
    return replace(wanted, **checked)


def check_fits(declared: DecisionPoint, candidate: DecisionPoint) -> None:
    """Refuse a candidate with other actions, context fields or reward than declared.

    Raises:
        RolloutError: actions, context fields or the reward differ.
    """
    wanted, found = _to_compare(declared), _to_compare(candidate)
    for name in wanted:
        if wanted[name] != found[name]:
            message = f"the candidate's {name} differ from the declared ones: "
            message += f"{found[name]!r:.200} against {wanted[name]!r:.200}; they must be equal"
            raise RolloutError(message + "; publish a version with the current declaration")


def _to_compare(spec: DecisionPoint) -> dict[str, Any]:
    return {
        "actions": spec.actions.model_dump(mode="json"),
        "context fields": sorted(spec.context.fields),
        "reward terms": spec.reward.model_dump(mode="json"),
    }


@dataclass(frozen=True, slots=True)
class _CheckedCandidate:
    plan: RolloutPlan
    evidence: OffPolicyEvidence | None


async def _verified(
    connection: Any,
    key: Point,
    wanted: StartRequest,
    clock: Callable[[], float],
    bases: Bases,
    salt: str,
) -> _CheckedCandidate:
    """Verify and evaluate the candidate without locks, because a registry may be slow."""
    now = datetime.fromtimestamp(clock(), UTC)
    async with connection.transaction():
        point = await hold_view(connection, key)
        _, candidate = await candidate_of(connection, point, wanted.candidate, bases)
        check_fits(point.spec, candidate.spec)
        plan = plan_of(point.spec, salt=salt, overrides=wanted.overrides)
        if wanted.concurrent is not None:
            plan = replace(plan, concurrent=wanted.concurrent)
        if plan.stages[0].name == "shadow" or wanted.force:
            return _CheckedCandidate(plan, None)
        logged = await logged_choices(
            connection, key, closed=now, since=candidate.since, judged=candidate.spec
        )
    evidence = await asyncio.to_thread(off_policy, candidate, logged, gates=plan)
    # The same checks as in the shadow stage.
    reasons = evidence.reasons or [one.reason for one in off_policy_findings(plan, evidence)]
    if reasons:
        message = f"not enough evidence to serve {wanted.candidate} without a shadow stage: "
        message += "; ".join(reasons)
        raise RolloutError(message + "; start with a shadow stage, or force it with a reason")
    return _CheckedCandidate(plan, evidence)


async def _check_history(connection: Any, key: Point, wanted: StartRequest) -> None:
    tenant, skill, point = key
    for row in await rollouts_of(connection, tenant, skill=skill, point=point, limit=1000):
        if row.candidate == wanted.candidate and row.status == "rolled_back" and not wanted.again:
            raise RolloutError(
                f"{skill}/{point} {wanted.candidate} was rolled back ({row.reason:.200}) and is "
                "frozen; publish a new version, or give a reason to retry it (--again)"
            )


async def _write(
    connection: Any, point: PointRow, wanted: StartRequest, plan: RolloutPlan, now: datetime
) -> RolloutRow:
    key = point.tenant, point.skill, point.point
    stage, seq = plan.stages[0], point.pinned_seq
    return await start_rollout(
        connection,
        key,
        candidate=wanted.candidate,
        control=point.snapshot,
        control_seq=await last_update(connection, key) if seq is None else seq,
        stage=stage.name,
        share=stage.share,
        salt=plan.salt,
        plan=plan.to_json(),
        now=now,
        concurrent=plan.concurrent,
        reason=wanted.reason,
    )


async def _tell(
    connection: Any,
    row: RolloutRow,
    wanted: StartRequest,
    evidence: OffPolicyEvidence | None,
    actor: str,
) -> None:
    detail = {
        "again": wanted.again,
        "force": wanted.force,
        "control": row.control,
        "evidence": None if evidence is None else asdict(evidence),
    }
    await audit(connection, row, "rollout.start", actor=actor, reason=wanted.reason, detail=detail)
