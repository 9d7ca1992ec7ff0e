"""Data of a ``steersman monitor`` frame, read from the database per tenant."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.cli.monitor_rollout import age, read_rollouts
from steersman.db.learners import learning_progress
from steersman.db.points import points_as_they_are
from steersman.db.window_figures import BUCKETS, Figures, count_window
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from steersman.cli.monitor_rollout import IncidentView, RolloutView
    from steersman.cli.monitor_service import ServiceView
    from steersman.db.learners import Progress
    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.db.window_figures import Counts


@dataclass(frozen=True, slots=True)
class PointView:
    """State of one decision point.

    Attributes:
        algorithm: algorithm of its policy.
        learning: online or frozen.
        snapshot: live snapshot.
        update_seq: number of updates applied after the snapshot.
        pinned: whether the point stays at this state regardless of updates.
        snapshot_age_s: seconds since the snapshot was made.
        learned_age_s: seconds since the last update; None: no updates.
        lag_s: age of the oldest outcome that is due and not learned; 0: none.
        waiting: number of outcomes that are due and not learned.
        learner: name of the last learner; None: no learner yet.
        learner_seen_s: seconds since its last heartbeat.
        figures: aggregates of the window.
        traffic: decisions by bucket, oldest first.
        rewards: mean reward by bucket, oldest first.
    """

    skill: str
    decision: str
    algorithm: str
    learning: str
    snapshot: str
    update_seq: int
    pinned: bool
    snapshot_age_s: float
    learned_age_s: float | None
    lag_s: float
    waiting: int
    learner: str | None
    learner_seen_s: float | None
    figures: Figures = field(default_factory=Figures)
    traffic: tuple[int, ...] = ()
    rewards: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadableView:
    """A decision point whose stored declaration cannot be read.

    Attributes:
        snapshot: last live snapshot.
        why: the error, and what to do.
    """

    skill: str
    decision: str
    snapshot: str
    why: str


@dataclass(frozen=True, slots=True)
class TenantView:
    """State of one tenant.

    Attributes:
        points: by skill and name.
        rollouts: active rollouts.
        incidents: open incidents, newest first.
        window_s: length of the window.
        capped: whether the window is shorter than requested, because of too many decisions.
        unreadable: points whose declaration cannot be read.
    """

    tenant: str
    points: tuple[PointView, ...]
    rollouts: tuple[RolloutView, ...]
    incidents: tuple[IncidentView, ...]
    window_s: float
    capped: bool
    unreadable: tuple[UnreadableView, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything on the screen.

    Attributes:
        at: time of the reading.
        window_s: length of the window.
        away: why the database cannot be read; empty if it can.
    """

    at: datetime
    window_s: float
    service: ServiceView
    tenants: tuple[TenantView, ...]
    away: str = ""


async def read_tenant(connection: Any, tenant: Tenant, now: float, window_s: float) -> TenantView:
    """Return the state of a tenant.

    Args:
        now: seconds since 1970.
    """
    moment = datetime.fromtimestamp(now, UTC)
    async with as_tenant(connection, tenant.id):
        rows, unreadable = await points_as_they_are(connection, tenant.id)
        counts = await count_window(connection, now, window_s)
        progress = await learning_progress(connection)
        under_way, incidents = await read_rollouts(connection, tenant.id, moment, counts)
    points = tuple(_point(row, progress[row.skill, row.point], counts, moment) for row in rows)
    return TenantView(
        tenant.name,
        points,
        tuple(under_way),
        tuple(incidents),
        counts.window_s,
        counts.capped,
        tuple(UnreadableView(it.skill, it.point, it.snapshot, it.why) for it in unreadable),
    )


def _point(row: PointRow, progress: Progress, counts: Counts, now: datetime) -> PointView:
    place = row.skill, row.point
    buckets = counts.buckets[place]
    served = [buckets.get(number, Figures()) for number in range(BUCKETS)]
    return PointView(
        row.skill,
        row.point,
        row.spec.policy.algorithm,
        row.spec.learning.mode,
        row.snapshot,
        progress.seq or 0 if row.pinned_seq is None else row.pinned_seq,
        pinned=row.pinned_seq is not None,
        snapshot_age_s=age(progress.created_at, now) or 0.0,
        learned_age_s=age(progress.learned_at, now),
        lag_s=age(progress.due_at, now) or 0.0,
        waiting=progress.waiting or 0,
        learner=progress.holder or None,
        learner_seen_s=age(progress.seen_at, now) if progress.holder else None,
        figures=counts.points.get(place, Figures()),
        traffic=tuple(one.decisions for one in served),
        rewards=tuple(one.reward for one in served),
    )
