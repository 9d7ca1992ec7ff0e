"""One turn of a controller: reads the evidence, judges and acts in one transaction."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from steersman.db.derived_snapshots import hold_point, hold_view
from steersman.db.incidents import incidents_of, open_incident
from steersman.db.rollout_transitions import fence_rollout, move_rollout
from steersman.db.verdicts import add_verdict
from steersman.errors import SnapshotError, StateError
from steersman.platform.postgres.database import set_tenant
from steersman.rollouts.transitions import CONTROLLER, audit, finish, next_stage, roll_back
from steersman.rollouts.verdicts import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.rollouts import RolloutRow
    from steersman.rollouts.evidence import SourceEvidence
    from steersman.rollouts.evidence_cache import EvidenceMemory, Paces
    from steersman.rollouts.trusted_clock import ClockReading
    from steersman.rollouts.verdicts import Judgement

_log = logging.getLogger(__name__)

_STOPPING = {"sample_ratio", "missing_values"}

Acted = Literal["none", "next_stage", "promoted", "rolled_back", "held"]


@dataclass(frozen=True, slots=True)
class ControllerStep:
    """Inputs of a turn.

    Attributes:
        row: the rollout as it was claimed or last moved.
        looking: evidence from earlier turns.
        sources: current error counts.
        moment: current time.
        paces: intervals of the controller.
    """

    row: RolloutRow
    looking: EvidenceMemory
    sources: Sequence[SourceEvidence]
    moment: ClockReading
    paces: Paces

    @property
    def at(self) -> datetime:
        """Current time."""
        return datetime.fromtimestamp(self.moment.now, UTC)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of a turn.

    Attributes:
        row: rollout after the turn.
        judgement: judgement; None: the rollout had ended.
        acted: resulting action.
        stored: whether the verdict was stored; always after an action.
    """

    row: RolloutRow
    judgement: Judgement | None = None
    acted: Acted = "none"
    stored: bool = False


async def take_turn(connection: Any, turn: ControllerStep) -> StepResult:
    """Judge a rollout and act, in one transaction.

    Raises:
        FencedError: another controller has the rollout; nothing was written.
    """
    done = await _try(connection, turn, holding=False)
    if done is None:
        try:
            # Promotion locks the point first, then the rollout, as all code does: no deadlocks.
            done = await _try(connection, turn, holding=True)
        except (StateError, SnapshotError) as error:
            turn.looking.trouble = f"the candidate cannot become the live policy: {error!s:.300}"
            done = await _try(connection, turn, holding=False)
    return done or StepResult(turn.row)


async def _try(connection: Any, turn: ControllerStep, *, holding: bool) -> StepResult | None:
    """Take the turn; return None if it needs a lock on the decision point."""
    row = turn.row
    point_name = row.tenant, row.skill, row.point
    async with connection.transaction():
        await set_tenant(connection, row.tenant)
        if holding:
            await hold_point(connection, point_name)
        row = await fence_rollout(connection, row, row.epoch)
        if not row.is_under_way:
            return StepResult(row)
        point = await hold_view(connection, point_name)
        evidence = await turn.looking.look(connection, row, point, turn.sources, turn.moment)
        judged = judge(turn.looking.plan, row.step, evidence, turn.moment.now)
        acted = _action_for(turn, row, judged)
        if acted == "promoted" and not holding:
            return None
        stored = await _write(connection, turn, row, judged, acted)
        moved = await _act(connection, turn, row, judged, acted)
        if moved.is_under_way:
            moved = await _tell(connection, turn, moved, judged)
    if acted in {"next_stage", "promoted", "rolled_back"}:
        _log.info(
            "rollout %s of %s/%s %s: %s at %s: %s",
            *(row.id, row.skill, row.point, row.candidate, acted, row.stage),
            "; ".join(judged.reasons),
        )
    return StepResult(moved, judged, acted, stored)


def _action_for(turn: ControllerStep, row: RolloutRow, judged: Judgement) -> Acted:
    """Return the action for a verdict."""
    if judged.verdict == "roll_back":
        return "rolled_back"
    if row.status == "paused":
        return "held"
    if judged.verdict == "promote":
        last = row.step == len(turn.looking.plan.stages) - 1
        return "promoted" if last else "next_stage"
    return "held" if judged.verdict == "hold" else "none"


async def _write(
    connection: Any, turn: ControllerStep, row: RolloutRow, judged: Judgement, acted: Acted
) -> bool:
    """Store the verdict if it is new or the last one is old; return whether it was stored."""
    last = turn.looking.verdict
    said = judged.verdict, acted, row.step
    if (
        last is not None
        and acted in {"none", "held"}
        and (last.verdict, last.acted, last.step) == said
        and 0 <= turn.moment.now - last.inputs["now"] < turn.paces.keep_s
    ):
        return False
    turn.looking.verdict = await add_verdict(
        connection,
        row,
        row.epoch,
        at=turn.at,
        verdict=judged.verdict,
        acted=acted,
        inputs=judged.inputs,
        reasons=list(judged.reasons),
    )
    return True


async def _act(
    connection: Any, turn: ControllerStep, row: RolloutRow, judged: Judgement, acted: Acted
) -> RolloutRow:
    reason = judged.reasons[0]
    if acted == "rolled_back":
        kind = judged.incident or "rolled_back"
        return await roll_back(
            connection, row, actor=CONTROLLER, kind=kind, reasons=judged.reasons, now=turn.at
        )
    who = {"actor": CONTROLLER, "reason": reason}
    if acted == "next_stage":
        return await next_stage(connection, row, turn.looking.plan, now=turn.at, **who)
    if acted == "promoted":
        return await finish(connection, row, now=turn.at, **who)
    return row


async def _tell(
    connection: Any, turn: ControllerStep, row: RolloutRow, judged: Judgement
) -> RolloutRow:
    """Open an incident, once per kind, and return the row.

    If the arms cannot be compared, the rollout pauses until a person resumes it.
    """
    kind = "candidate" if turn.looking.trouble else judged.incident
    if judged.verdict != "hold" or kind is None:
        return row
    known = await incidents_of(connection, row.tenant, rollout=row.id, open_only=True)
    if kind not in {incident.kind for incident in known}:
        summary = f"{row.skill}/{row.point} {row.candidate} is held at {row.stage}: "
        detail = {"candidate": row.candidate, "stage": row.stage, "reasons": list(judged.reasons)}
        await open_incident(
            connection,
            row.tenant,
            rollout=row.id,
            at=turn.at,
            kind=kind,
            summary=summary + judged.reasons[0][:400],
            detail=detail,
        )
    if kind not in _STOPPING or row.status == "paused":
        return row
    reason = f"stopped: {judged.reasons[0]}"
    moved = await move_rollout(
        connection, row, row.epoch, now=turn.at, status="paused", reason=reason
    )
    await audit(connection, moved, "rollout.pause", actor=CONTROLLER, reason=reason)
    return moved
