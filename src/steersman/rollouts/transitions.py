"""Moves of a rollout, by a controller or a person.

Every function runs in one transaction under a claimed epoch: the row, the incident, the audit entry
and the notices are written together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.db.audit import record
from steersman.db.incidents import open_incident
from steersman.db.promotion import take_back_snapshot
from steersman.db.rollout_transitions import move_rollout
from steersman.db.rollouts import active_rollouts
from steersman.errors import RolloutError
from steersman.snapshots.promote import promote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from steersman.db.rollouts import RolloutRow
    from steersman.rollouts.plan import RolloutPlan
    from steersman.rollouts.state_machine import Status

CONTROLLER = "controller"
"""Actor of the controller in the audit log."""


async def next_stage(
    connection: Any, row: RolloutRow, plan: RolloutPlan, *, actor: str, reason: str, now: datetime
) -> RolloutRow:
    """Move to the next step of the plan.

    Raises:
        FencedError: another controller or person claimed it; nothing is written.
    """
    stage = plan.stages[row.step + 1]
    moved = await move_rollout(
        connection,
        row,
        row.epoch,
        now=now,
        stage=stage.name,
        step=row.step + 1,
        share=stage.share,
        step_started_at=now,
        reason=reason,
    )
    to = {"step": moved.step, "stage": moved.stage, "share": moved.share}
    await audit(connection, moved, "rollout.next_stage", actor=actor, reason=reason, detail=to)
    return moved


async def finish(
    connection: Any, row: RolloutRow, *, actor: str, reason: str, now: datetime
) -> RolloutRow:
    """Make the candidate the live policy and end the rollout.

    Raises:
        FencedError: another controller or person claimed it; nothing is written.
        StateError: the candidate must not serve; nothing is written.
    """
    moved = await move_rollout(
        connection, row, row.epoch, now=now, status="promoted", reason=reason
    )
    name = row.tenant, row.skill, row.point
    done = await promote(
        connection, name, row.candidate, actor=actor, reason=reason, rollout=row.id
    )
    detail = {"before": done.before, "seq": done.seq}
    await audit(connection, moved, "rollout.promoted", actor=actor, reason=reason, detail=detail)
    return moved


async def roll_back(
    connection: Any,
    row: RolloutRow,
    *,
    actor: str,
    kind: str,
    reasons: Sequence[str],
    now: datetime,
    status: Status = "rolled_back",
) -> RolloutRow:
    """Roll back: control serves all units, the candidate is frozen, an incident opens.

    Raises:
        FencedError: another controller or person claimed it; nothing is written.
    """
    reason = "; ".join(reasons)
    moved = await move_rollout(connection, row, row.epoch, now=now, status=status, reason=reason)
    detail: dict[str, Any] = {"kind": kind}
    if status == "rolled_back":
        incident = await open_incident(
            connection,
            row.tenant,
            rollout=row.id,
            at=now,
            kind=kind,
            summary=f"{row.skill}/{row.point} {row.candidate} was rolled back at {row.stage}: "
            + reason[:400],
            detail={
                "candidate": row.candidate,
                "control": row.control,
                "stage": row.stage,
                "step": row.step,
                "share": row.share,
                "reasons": list(reasons),
                "actor": actor,
            },
        )
        detail["incident"] = str(incident.id)
    await audit(connection, moved, f"rollout.{status}", actor=actor, reason=reason, detail=detail)
    return moved


async def take_back(connection: Any, row: RolloutRow, serving: str) -> None:
    """Make the control of a promoted rollout live again; it catches up on missed updates.

    Raises:
        RolloutError: another snapshot is live or in a rollout.
    """
    others = await active_rollouts(connection, row.tenant)
    busy = [other for other in others if (other.skill, other.point) == (row.skill, row.point)]
    if busy or serving != row.candidate:
        now = f"rollout {busy[0].id} is active" if busy else f"{serving} is the live policy now"
        message = f"{row.candidate} of {row.skill}/{row.point} cannot be rolled back: {now}; "
        raise RolloutError(message + "roll back that one first")
    await take_back_snapshot(connection, (row.tenant, row.skill, row.point), row.control)


async def audit(
    connection: Any,
    row: RolloutRow,
    action: str,
    *,
    actor: str,
    reason: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write an audit entry about a rollout."""
    entry = {
        "rollout": str(row.id),
        "candidate": row.candidate,
        "status": row.status,
        "stage": row.stage,
        "reason": reason,
        **(detail or {}),
    }
    await record(connection, row.tenant, actor, action, f"{row.skill}/{row.point}", entry)
