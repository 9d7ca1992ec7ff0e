"""Moves of a rollout, by a controller or a person.

Every function runs in one transaction under a claimed epoch: the row, the incident, the audit entry
and the notices are written together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import RolloutError
from steersman.learn import promote
from steersman.store import (
    active_rollouts,
    move_rollout,
    open_incident,
    record,
    take_back_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from steersman.rollout.machine import Status
    from steersman.rollout.plan import RolloutPlan
    from steersman.store import RolloutRow

CONTROLLER = "controller"
"""Actor of the controller in the audit log."""


async def next_stage(
    connection: Any, row: RolloutRow, plan: RolloutPlan, *, actor: str, reason: str, now: datetime
) -> RolloutRow:
    """Go on to the next step of the plan.

    Args:
        connection: of role worker, within a transaction of the tenant.
        row: the rollout, not on its last step, as it was claimed.
        plan: its plan.
        actor: who does it.
        reason: why.
        now: when.

    Returns:
        The rollout on its next step.

    Raises:
        FencedError: somebody else has claimed it since; nothing is written.
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
    """Let the candidate take the decision point over, and end the rollout.

    Args:
        connection: of role worker, within a transaction that holds the point (`hold_point`).
        row: the rollout as it was claimed.
        actor: who does it.
        reason: why.
        now: when.

    Returns:
        The rollout, promoted.

    Raises:
        FencedError: somebody else has claimed it since; nothing is written.
        StateError: the candidate may not serve; nothing is written.
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
    """Take the candidate back: control serves everybody, the candidate is frozen, people are told.

    Args:
        connection: of role worker, within a transaction of the tenant.
        row: the rollout as it was claimed.
        actor: who does it.
        kind: of the incident: a word for programs.
        reasons: why, at least one.
        now: when.
        status: ``rolled_back``, or ``aborted`` where the candidate served nobody: no incident then.

    Returns:
        The rollout, ended.

    Raises:
        FencedError: somebody else has claimed it since; nothing is written.
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
    """Let the control of a rollout that was promoted serve again; it learns what it missed.

    Args:
        connection: of role worker, within a transaction that holds the point (`hold_point`).
        row: the rollout.
        serving: the snapshot that serves now.

    Raises:
        RolloutError: something else serves or is on its way by now.
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
    """Write down what was done to a rollout.

    Args:
        connection: within a transaction of the tenant.
        row: the rollout as it is now.
        action: what, such as ``rollout.pause``.
        actor: who did it.
        reason: why.
        detail: more of it.
    """
    told = {
        "rollout": str(row.id),
        "candidate": row.candidate,
        "status": row.status,
        "stage": row.stage,
        "reason": reason,
        **(detail or {}),
    }
    await record(connection, row.tenant, actor, action, f"{row.skill}/{row.point}", told)
