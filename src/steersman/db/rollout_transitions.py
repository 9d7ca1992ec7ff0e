"""Rollout transitions: start, claim, move and end.

A controller claims a rollout under an epoch that grows with every claim. An operator's action
claims it too, so that a controller with an outdated view is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.points import tell_services
from steersman.db.rollouts import ROLLOUT_COLUMNS, RolloutRow
from steersman.errors import FencedError, RolloutError
from steersman.wire import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import StageName, Status
    from steersman.db.work_queue import Point

_THIS = "tenant = $1 AND id = $2"


async def start_rollout(
    connection: Any,
    point: Point,
    *,
    candidate: str,
    control: str,
    control_seq: int,
    stage: StageName,
    share: float,
    salt: str,
    plan: Mapping[str, Any],
    now: datetime,
    concurrent: bool = False,
    reason: str = "",
) -> RolloutRow:
    """Start a rollout and notify services and controllers; the caller writes the audit row.

    Args:
        share: share of units on the candidate, 0 to 1.

    Returns:
        The running rollout at step 0.

    Raises:
        RolloutError: another rollout is active, or an arm cannot be loaded.
    """
    await _check_arms(connection, point, candidate, control)
    try:
        async with connection.transaction():  # so that the error can name the rows
            row = await connection.fetchrow(
                "INSERT INTO rollout (tenant, skill, point, id, status, stage, step, share, salt, "  # noqa: S608 (constants)
                "candidate, control, control_seq, plan, concurrent, started_at, step_started_at, "
                "seen_at, reason) VALUES ($1, $2, $3, $4, 'running', $5, 0, $6, $7, $8, $9, $10, "
                f"$11, $12, $13, $13, $13, $14) RETURNING {ROLLOUT_COLUMNS}",
                *(*point, new_id(), stage, share, salt, candidate, control, control_seq),
                *(dict(plan), concurrent, now, reason),
            )
    except asyncpg.UniqueViolationError:
        raise RolloutError(await _under_way(connection, point)) from None
    except asyncpg.CheckViolationError as error:
        message = f"cannot start a rollout of {point[1]}/{point[2]}: {error}; change the plan"
        raise RolloutError(message) from None
    await connection.execute(
        "INSERT INTO rollout_task (tenant, rollout, due_at) VALUES ($1, $2, $3)",
        *(point[0], row["id"], now),
    )
    found = RolloutRow(*row)
    await tell_services(connection, point)
    await tell_controllers(connection, found)
    return found


async def due_rollouts(
    connection: Any, now: datetime, *, limit: int = 1000
) -> list[tuple[UUID, UUID]]:
    """Return the rollouts of all tenants that a controller must check."""
    rows = await connection.fetch(
        "SELECT tenant, rollout FROM rollout_task WHERE due_at <= $1 "
        "ORDER BY due_at, rollout LIMIT $2",
        *(now, limit),
    )
    return [(row["tenant"], row["rollout"]) for row in rows]


async def claim_rollout(
    connection: Any, tenant: UUID, identifier: UUID, holder: str, *, idle_s: float | None
) -> RolloutRow | None:
    """Claim a rollout; the previous holder is fenced.

    Args:
        idle_s: claim only after this many seconds without a heartbeat; None: always.

    Returns:
        The rollout with its new epoch; None if its holder is alive or it does not exist.
    """
    row = await connection.fetchrow(
        "UPDATE rollout SET epoch = epoch + 1, holder = $3, seen_at = clock_timestamp() "  # noqa: S608 (constants)
        f"WHERE {_THIS} AND ($4::float8 IS NULL OR holder = '' "
        "OR seen_at < clock_timestamp() - $4 * interval '1 second') "
        f"RETURNING {ROLLOUT_COLUMNS}",
        *(tenant, identifier, holder, idle_s),
    )
    return None if row is None else RolloutRow(*row)


async def fence_rollout(
    connection: Any, row: RolloutRow, epoch: int, *, due_at: datetime | None = None
) -> RolloutRow:
    """Lock a rollout until the transaction ends.

    Args:
        due_at: next check by a controller; None: unchanged.

    Raises:
        FencedError: another process claimed it, or it does not exist.
    """
    held = await connection.fetchrow(
        f"UPDATE rollout SET seen_at = clock_timestamp() WHERE {_THIS} AND epoch = $3 "  # noqa: S608 (constants)
        f"RETURNING {ROLLOUT_COLUMNS}",
        *(row.tenant, row.id, epoch),
    )
    if held is None:
        raise FencedError(
            f"another process has locked rollout {row.id} of {row.skill}/{row.point} since "
            f"epoch {epoch}; nothing was written, and this process stops"
        )
    if due_at is not None:
        await connection.execute(
            "UPDATE rollout_task SET due_at = $3 WHERE tenant = $1 AND rollout = $2",
            *(row.tenant, row.id, due_at),
        )
    return RolloutRow(*held)


async def move_rollout(
    connection: Any,
    row: RolloutRow,
    epoch: int,
    *,
    now: datetime,
    status: Status | None = None,
    stage: StageName | None = None,
    step: int | None = None,
    share: float | None = None,
    step_started_at: datetime | None = None,
    reason: str | None = None,
) -> RolloutRow:
    """Change the state of a rollout and notify services and controllers.

    The caller checks that the transition is legal. A final status sets the end time, and
    controllers stop checking it.

    Args:
        status: running, paused, promoted, rolled_back or aborted; None, here and below:
            unchanged.
        share: share of units on the candidate, 0 to 1.

    Raises:
        FencedError: another process claimed it; nothing was changed.
        RolloutError: a value is out of range; nothing was changed.
    """
    await fence_rollout(connection, row, epoch)
    try:
        async with connection.transaction():
            moved = await connection.fetchrow(
                "UPDATE rollout SET status = coalesce($3, status), stage = coalesce($4, stage), "  # noqa: S608 (constants)
                "step = coalesce($5, step), share = coalesce($6, share), "
                "step_started_at = coalesce($7, step_started_at), reason = coalesce($8, reason), "
                "ended_at = CASE WHEN coalesce($3, status) NOT IN ('running', 'paused') "
                f"THEN coalesce(ended_at, $9) END WHERE {_THIS} RETURNING {ROLLOUT_COLUMNS}",
                *(row.tenant, row.id, status, stage, step, share, step_started_at, reason, now),
            )
    except (asyncpg.CheckViolationError, asyncpg.UniqueViolationError) as error:
        message = f"cannot move rollout {row.id} of {row.skill}/{row.point}: {error}; "
        raise RolloutError(message + "nothing was changed") from None
    found = RolloutRow(*moved)
    if not found.is_under_way:
        await connection.execute(
            "DELETE FROM rollout_task WHERE tenant = $1 AND rollout = $2", row.tenant, row.id
        )
    await tell_services(connection, (row.tenant, row.skill, row.point))
    await tell_controllers(connection, found)
    return found


async def tell_controllers(connection: Any, row: RolloutRow) -> None:
    """Notify the controllers of a rollout after the commit."""
    await connection.execute("SELECT pg_notify('steersman_rollout', $1)", f"{row.tenant}/{row.id}")


async def _check_arms(connection: Any, point: Point, candidate: str, control: str) -> None:
    rows = await connection.fetch(
        "SELECT id, published_at, retracted_at, state IS NULL AS is_gone FROM snapshot "
        "WHERE tenant = $1 AND skill = $2 AND point = $3 AND id = ANY($4)",
        *(*point, [candidate, control]),
    )
    known = {row["id"]: row for row in rows}
    why = None
    if candidate == control:
        why = f"its candidate {candidate} is already live"
    elif control not in known:
        why = f"control {control!r} was not found"
    elif candidate not in known or known[candidate]["published_at"] is None:
        why = f"its candidate {candidate!r} was never published"
    elif known[candidate]["retracted_at"] is not None:
        why = f"its candidate {candidate} was retracted"
    elif known[candidate]["is_gone"] or known[control]["is_gone"]:
        why = f"the state of {candidate} or {control} was removed"
    if why is not None:
        raise RolloutError(
            f"cannot start a rollout of {point[1]}/{point[2]}: {why}; publish a snapshot and "
            "use its version"
        )


async def _under_way(connection: Any, point: Point) -> str:
    other = await connection.fetchrow(
        "SELECT id, skill, point, candidate FROM rollout WHERE tenant = $1 AND skill = $2 "
        "AND status IN ('running', 'paused') ORDER BY point = $3 DESC, id LIMIT 1",
        *point,
    )
    return (
        f"cannot start a rollout of {point[1]}/{point[2]}: rollout {other['id']} of "
        f"{other['skill']}/{other['point']} {other['candidate']} is active; end it first, or "
        "set concurrent: true in the plan of another decision point"
    )
