"""Rollout rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

Status = Literal["running", "paused", "promoted", "rolled_back", "aborted"]
StageName = Literal["shadow", "canary", "ab", "live"]
ROLLOUT_COLUMNS = (
    "tenant, id, skill, point, status, stage, step, share, salt, candidate, control, control_seq, "
    "plan, concurrent, started_at, step_started_at, ended_at, epoch, holder, seen_at, reason"
)


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """Rollout.

    Attributes:
        tenant: tenant id.
        id: UUIDv7.
        skill: skill name.
        point: decision point name.
        status: running, paused, promoted, rolled_back or aborted.
        stage: shadow, canary, ab or live.
        step: step of its plan, from 0.
        share: share of units on the candidate, 0 to 1.
        salt: salt of the unit hash.
        candidate: published candidate version, without later updates.
        control: live snapshot at the start,
        control_seq: and the number of its updates.
        plan: plan as JSON.
        concurrent: whether other rollouts of the skill may be active.
        started_at: start time.
        step_started_at: start time of its step.
        ended_at: end time; None while active.
        epoch: fencing epoch.
        holder: display name of the last holder.
        seen_at: last heartbeat of the holder.
        reason: explanation for operators.
    """

    tenant: UUID
    id: UUID
    skill: str
    point: str
    status: Status
    stage: StageName
    step: int
    share: float
    salt: str
    candidate: str
    control: str
    control_seq: int
    plan: dict[str, Any]
    concurrent: bool
    started_at: datetime
    step_started_at: datetime
    ended_at: datetime | None
    epoch: int
    holder: str
    seen_at: datetime
    reason: str

    @property
    def is_under_way(self) -> bool:
        """Whether it is active: running or paused."""
        return self.ended_at is None


async def find_rollout(connection: Any, tenant: UUID, identifier: UUID) -> RolloutRow | None:
    """Return one rollout of a tenant.

    Returns:
        The row; None if this tenant has no such rollout.
    """
    row = await connection.fetchrow(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout WHERE tenant = $1 AND id = $2",  # noqa: S608 (constants)
        *(tenant, identifier),
    )
    return None if row is None else RolloutRow(*row)


async def active_rollouts(connection: Any, tenant: UUID) -> list[RolloutRow]:
    """Return the active rollouts (running or paused), at most one per point."""
    rows = await connection.fetch(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND status IN ('running', 'paused') ORDER BY skill, point",
        tenant,
    )
    return [RolloutRow(*row) for row in rows]


async def rollouts_of(
    connection: Any,
    tenant: UUID,
    *,
    skill: str | None = None,
    point: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[RolloutRow]:
    """Return rollouts of a tenant, newest first."""
    rows = await connection.fetch(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND ($2::text IS NULL OR skill = $2) "
        "AND ($3::text IS NULL OR point = $3) AND ($4::uuid IS NULL OR id < $4) "
        "ORDER BY id DESC LIMIT $5",
        *(tenant, skill, point, before, limit),
    )
    return [RolloutRow(*row) for row in rows]
