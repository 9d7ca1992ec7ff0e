"""Rollouts as rows: where each stands and stood."""

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
    """A rollout as it stands.

    Attributes:
        tenant: whose it is.
        id: UUIDv7.
        skill: the application capability.
        point: the decision point's name.
        status: running, paused, promoted, rolled_back or aborted.
        stage: shadow, canary, ab or live.
        step: the place in its plan, from 0.
        share: of the units that the candidate serves, 0 to 1.
        salt: of the hash that places units.
        candidate: the published version that is tried, after no update.
        control: the snapshot that served when it started,
        control_seq: and after how many of its updates.
        plan: as JSON.
        concurrent: whether the skill may have others under way beside it.
        started_at: when it started.
        step_started_at: when its step did.
        ended_at: when it ended; None while it is under way.
        epoch: grows with every holder.
        holder: who claimed it last, for people.
        seen_at: when the holder was last heard of.
        reason: why it is as it is.
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
        """Whether the candidate may be serving: running or paused."""
        return self.ended_at is None


async def find_rollout(connection: Any, tenant: UUID, identifier: UUID) -> RolloutRow | None:
    """Return one rollout of a tenant.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose it must be.
        identifier: its id.

    Returns:
        The row; None if this tenant has no such rollout, whoever else may have.
    """
    row = await connection.fetchrow(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout WHERE tenant = $1 AND id = $2",  # noqa: S608 (constants)
        *(tenant, identifier),
    )
    return None if row is None else RolloutRow(*row)


async def active_rollouts(connection: Any, tenant: UUID) -> list[RolloutRow]:
    """Return the rollouts that are under way, running or paused: one of a point at most.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.

    Returns:
        By skill and point.
    """
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
    """Return rollouts of a tenant, those that ended too.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        skill: of this skill alone.
        point: of decision points of this name alone.
        before: only those that were started before this one, to go on where the last call ended.
        limit: most rows.

    Returns:
        The latest first.
    """
    rows = await connection.fetch(
        f"SELECT {ROLLOUT_COLUMNS} FROM rollout WHERE tenant = $1 "  # noqa: S608 (constants)
        "AND ($2::text IS NULL OR skill = $2) "
        "AND ($3::text IS NULL OR point = $3) AND ($4::uuid IS NULL OR id < $4) "
        "ORDER BY id DESC LIMIT $5",
        *(tenant, skill, point, before, limit),
    )
    return [RolloutRow(*row) for row in rows]
