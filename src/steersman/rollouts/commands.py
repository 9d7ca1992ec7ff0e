"""Manual rollout actions: checked for legality, with actor and reason, and audited.

An action claims the rollout first. This fences a controller that is about to write: it must read
the state again. So a person and a controller never move the rollout at the same time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.audit import record
from steersman.db.derived_snapshots import hold_as_it_is, hold_view, last_update
from steersman.db.incidents import close_incident as close
from steersman.db.incidents import incidents_of
from steersman.db.points import is_pinned
from steersman.db.promotion import pin_point
from steersman.db.rollout_decisions import candidate_answered
from steersman.db.rollout_transitions import claim_rollout, move_rollout
from steersman.db.rollouts import find_rollout
from steersman.db.verdicts import latest_verdict
from steersman.errors import RolloutError
from steersman.learning.replica import StoredBases
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.candidate import candidate_of
from steersman.rollouts.plan import RolloutPlan
from steersman.rollouts.state_machine import Action, Status, checked_reason, legal_actions, next_of
from steersman.rollouts.transitions import audit, finish, next_stage, roll_back, take_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from steersman.db.incidents import IncidentRow
    from steersman.db.points import PointRow, UnreadablePoint
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database


@dataclass(frozen=True, slots=True)
class RolloutExplanation:
    """State of a rollout with its reason and the allowed actions.

    Attributes:
        rollout: the rollout.
        plan: its plan.
        frozen: whether the decision point is pinned to one state.
        legal: allowed actions.
        verdict: last verdict; None: no verdict yet.
        incidents: incidents of this rollout, latest first.
    """

    rollout: RolloutRow
    plan: RolloutPlan
    frozen: bool
    legal: tuple[Action, ...]
    verdict: VerdictRow | None
    incidents: list[IncidentRow]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates and ids stay objects."""
        return {
            **asdict(self.rollout),
            "frozen": self.frozen,
            "legal_actions": list(self.legal),
            "verdict": None if self.verdict is None else asdict(self.verdict),
            "incidents": [asdict(one) for one in self.incidents],
        }


async def act(
    database: Database,
    tenant: UUID,
    identifier: UUID,
    action: Action,
    *,
    actor: str,
    reason: str,
    clock: Callable[[], float],
    force: bool = False,
    step: int | None = None,
    bases: Bases | None = None,
) -> RolloutRow:
    """Pause, resume, promote, roll back or freeze a rollout.

    ``promote`` moves to the next step; on the last step the candidate becomes the live policy. The
    last verdict of the step must be promote, unless forced. The candidate must always verify. Of
    two parallel promotions of the same step one succeeds. ``rollback`` ends the rollout: control
    serves all units, the candidate is frozen, an incident opens. ``freeze`` pins control to one
    state until ``resume``.

    Args:
        reason: reason for the audit log, 1 to 500 characters.
        clock: seconds since 1970.
        step: step of the plan, from 0, on which to act; None: any step.
        bases: verifier of the candidate; default: trust the store's rows.

    Raises:
        ActionNotAllowedError: action not allowed now; the message names the allowed ones.
        RolloutError: unknown rollout, not enough evidence to promote, or another step.
        SnapshotError: the candidate does not verify.
        InputError: invalid reason.
    """
    reason = checked_reason(reason)
    connection = await database.connect("worker")
    try:
        known = await _known(connection, tenant, identifier)
        key = tenant, known.skill, known.point
        if action == "promote":
            async with connection.transaction():
                point = await hold_view(connection, key)
                await candidate_of(connection, point, known.candidate, bases or StoredBases())
        now = datetime.fromtimestamp(clock(), UTC)
        async with connection.transaction():
            # Stopping a candidate does not read the declaration, so it works if that is damaged.
            held = await hold_as_it_is(connection, key)
            row = await claim_rollout(connection, tenant, identifier, "", idle_s=None)
            if row is None:
                raise _unknown(identifier)
            wanted = known.step if step is None and action == "promote" else step
            if wanted is not None and row.step != wanted:
                raise _moved_on(row, wanted)
            change = _RolloutAction(connection, row, held, actor, reason, now)
            return await change.do(action, force=force)
    finally:
        await connection.close()


async def explain(connection: Any, tenant: UUID, identifier: UUID) -> RolloutExplanation:
    """Return the state of a rollout with its reason.

    Raises:
        RolloutError: unknown rollout.
    """
    row = await find_rollout(connection, tenant, identifier)
    if row is None:
        raise _unknown(identifier)
    frozen = await is_pinned(connection, (tenant, row.skill, row.point))
    return RolloutExplanation(
        row,
        RolloutPlan.from_json(row.plan),
        frozen,
        legal_actions(row.status, frozen=frozen),
        await latest_verdict(connection, tenant, identifier),
        await incidents_of(connection, tenant, rollout=identifier),
    )


async def close_incident(
    database: Database,
    tenant: UUID,
    identifier: UUID,
    *,
    actor: str,
    reason: str,
    clock: Callable[[], float],
) -> IncidentRow:
    """Close an incident; repeated calls change nothing.

    Args:
        reason: findings and measures, 1 to 500 characters.
        clock: seconds since 1970.

    Raises:
        StateError: unknown incident.
        InputError: invalid reason.
    """
    reason = checked_reason(reason)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant):
            now = datetime.fromtimestamp(clock(), UTC)
            row = await close(connection, tenant, identifier, at=now)
            detail = {"kind": row.kind, "reason": reason}
            await record(connection, tenant, actor, "incident.close", str(identifier), detail)
            return row
    finally:
        await connection.close()


class _RolloutAction:
    """One action in a transaction that holds the decision point and the rollout."""

    def __init__(
        self,
        connection: Any,
        row: RolloutRow,
        point: PointRow | UnreadablePoint,
        actor: str,
        reason: str,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._row = row
        self._point = point
        self._actor = actor
        self._reason = reason
        self._now = now
        self._plan = RolloutPlan.from_json(row.plan)

    async def do(self, action: Action, *, force: bool) -> RolloutRow:
        last = self._row.step == len(self._plan.stages) - 1
        after = next_of(
            self._row.status,
            action,
            last=last,
            served=await self._served(),
            frozen=self._point.pinned_seq is not None,
        )
        if action == "promote":
            return await self._promote(last=last, force=force)
        if action == "rollback":
            return await self._roll_back(after)
        if action == "freeze":
            await self._freeze()
        elif action == "resume" and self._lifts_pin:
            await pin_point(self._connection, self._key, None)
        return await self._to(after, action)

    @property
    def _key(self) -> tuple[UUID, str, str]:
        return self._row.tenant, self._row.skill, self._row.point

    @property
    def _lifts_pin(self) -> bool:
        """Whether the action unpins the point; a pin of the drift guard stays."""
        ended = not self._row.is_under_way
        return self._point.pinned_by is not None or (ended and self._point.pinned_seq is not None)

    async def _served(self) -> bool:
        """Return whether the candidate has answered any decision."""
        promoted = self._row.status == "promoted"
        return promoted or await candidate_answered(self._connection, self._row)

    async def _to(self, status: Status, action: Action) -> RolloutRow:
        moved = await move_rollout(
            self._connection,
            self._row,
            self._row.epoch,
            now=self._now,
            status=status,
            # An ended rollout keeps its reason; the audit log records later freezes and resumes.
            reason=self._reason if self._row.is_under_way else self._row.reason,
        )
        await audit(
            self._connection,
            moved,
            f"rollout.{action}",
            actor=self._actor,
            reason=self._reason,
        )
        return moved

    async def _promote(self, *, last: bool, force: bool) -> RolloutRow:
        verdict = await latest_verdict(self._connection, self._row.tenant, self._row.id)
        shown = verdict is not None and verdict.step == self._row.step
        if not force and not (shown and verdict is not None and verdict.verdict == "promote"):
            said = "none yet"
            if shown and verdict is not None:
                said = f"{verdict.verdict} ({'; '.join(verdict.reasons)[:300]})"
            message = f"not enough evidence to promote: the last verdict of this step is {said}; "
            raise RolloutError(message + "wait for the next verdict, or force it with a reason")
        who = {
            "actor": self._actor,
            "reason": f"forced: {self._reason}" if force else self._reason,
        }
        if last:
            return await finish(self._connection, self._row, now=self._now, **who)
        return await next_stage(self._connection, self._row, self._plan, now=self._now, **who)

    async def _roll_back(self, after: Status) -> RolloutRow:
        if self._row.status == "promoted":
            await take_back(self._connection, self._row, self._point.snapshot)
        return await roll_back(
            self._connection,
            self._row,
            actor=self._actor,
            kind="manual_rollback",
            reasons=[self._reason],
            now=self._now,
            status=after,
        )

    async def _freeze(self) -> None:
        seq = self._row.control_seq
        if not self._row.is_under_way or self._row.control != self._point.snapshot:
            seq = await last_update(self._connection, self._key)
        await pin_point(self._connection, self._key, seq, rollout=self._row.id)


async def _known(connection: Any, tenant: UUID, identifier: UUID) -> RolloutRow:
    async with as_tenant(connection, tenant):
        row = await find_rollout(connection, tenant, identifier)
    if row is None:
        raise _unknown(identifier)
    return row


def _unknown(identifier: UUID) -> RolloutError:
    message = f"rollout {identifier} not found; `steersman rollout status` lists all"
    return RolloutError(message)


def _moved_on(row: RolloutRow, wanted: int) -> RolloutError:
    message = f"the rollout is on step {row.step} ({row.stage}), not on step {wanted}"
    return RolloutError(message + "; read its state again, then act on the current step")
