"""What ``steersman monitor`` shows, as values: read from the store, one tenant at a time.

A frame looks at the newest decisions of a window and at no more than 20,000 of a tenant, so that
looking costs the same however busy the tenant is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from steersman.store import as_tenant, points_of

if TYPE_CHECKING:
    from steersman.cli.monitor_rollout import RolloutView
    from steersman.cli.monitor_service import ServiceView
    from steersman.store import PointRow, Tenant

BUCKETS = 24
MOST = 20_000


@dataclass(frozen=True, slots=True)
class Figures:
    """What some decisions earned.

    Attributes:
        decisions: how many.
        rewarded: of those, with a reward.
        reward: their mean, 0 to 1; None: none has one.
        success: mean of the outcome ``success``; None, here and below: nobody reported it.
        errors: share that a fallback answered, or whose outcome ``error`` is above 0.
        p95_ms: of the outcome ``latency_ms``.
        cost_usd: mean of the outcome ``cost_usd``.
    """

    decisions: int = 0
    rewarded: int = 0
    reward: float | None = None
    success: float | None = None
    errors: float | None = None
    p95_ms: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class PointView:
    """How one decision point stands.

    Attributes:
        skill: the application capability.
        decision: the decision point.
        algorithm: of its policy.
        learning: online or frozen.
        snapshot: the state that serves: this snapshot,
        update_seq: and this many updates after it.
        pinned: whether it stays there, whatever is learned.
        snapshot_age_s: since the snapshot was made.
        learned_age_s: since the last update; None: there was none.
        lag_s: age of the oldest outcome that is due and not learned; 0: none.
        waiting: outcomes that are due and not learned.
        learner: who learns; None: nobody ever did.
        learner_seen_s: since it was heard of.
        figures: of the window.
        traffic: decisions by bucket, oldest first.
        rewards: mean reward by bucket.
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
class IncidentView:
    """Something that went wrong and was not closed.

    Attributes:
        kind: a word for programs.
        summary: one sentence.
        age_s: since it was opened.
    """

    kind: str
    summary: str
    age_s: float


@dataclass(frozen=True, slots=True)
class TenantView:
    """How one tenant stands.

    Attributes:
        tenant: its name.
        points: by skill and name.
        rollouts: under way.
        incidents: open, the latest first.
        capped: whether there were more decisions than were looked at.
    """

    tenant: str
    points: tuple[PointView, ...]
    rollouts: tuple[RolloutView, ...]
    incidents: tuple[IncidentView, ...]
    capped: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """All that is shown at once.

    Attributes:
        at: when it was read.
        window_s: how far back figures go.
        service: how it stands.
        tenants: by name.
        away: why the store could not be read just now; empty if it could.
    """

    at: datetime
    window_s: float
    service: ServiceView
    tenants: tuple[TenantView, ...]
    away: str = ""


@dataclass(slots=True)
class Counts:
    """Figures of the window, by what they are grouped by."""

    points: dict[tuple[str, str], Figures] = field(default_factory=dict)
    buckets: dict[tuple[str, str], dict[int, Figures]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    arms: dict[str, dict[str, Figures]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def capped(self) -> bool:
        """Whether there were more decisions than were looked at."""
        return sum(figures.decisions for figures in self.points.values()) >= MOST


_COUNTS = """
WITH newest AS MATERIALIZED (
  SELECT id, skill, point, rollout, arm, degraded,
    greatest(0, least($4 - 1, floor((extract(epoch FROM at) - $3) / $5)))::int AS bucket
  FROM decision WHERE id >= $1 ORDER BY id DESC LIMIT $2
), least AS (
  SELECT coalesce(min(id::text)::uuid, $1) AS id FROM newest
), scored AS (
  SELECT DISTINCT ON (decision) decision, value FROM reward
  WHERE decision >= (SELECT id FROM least) ORDER BY decision, revision DESC
), told AS (
  SELECT DISTINCT ON (decision, name) decision, name, value FROM outcome
  WHERE decision >= (SELECT id FROM least)
    AND name IN ('success', 'error', 'latency_ms', 'cost_usd')
  ORDER BY decision, name, at DESC, received_at DESC
), said AS (
  SELECT decision, max(value) FILTER (WHERE name = 'success') AS success,
    max(value) FILTER (WHERE name = 'error') AS error,
    max(value) FILTER (WHERE name = 'latency_ms') AS latency_ms,
    max(value) FILTER (WHERE name = 'cost_usd') AS cost_usd
  FROM told GROUP BY decision
)
SELECT n.skill, n.point, n.bucket, n.rollout, n.arm,
  grouping(n.bucket) AS no_bucket, grouping(n.arm) AS no_arm,
  count(*) AS decisions, count(s.value) AS rewarded, avg(s.value) AS reward,
  avg(t.success) AS success,
  avg((n.degraded OR coalesce(t.error, 0) > 0)::int)::float8 AS errors,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY t.latency_ms) AS p95_ms,
  avg(t.cost_usd) AS cost_usd
FROM newest AS n LEFT JOIN scored AS s ON s.decision = n.id LEFT JOIN said AS t ON t.decision = n.id
GROUP BY GROUPING SETS (
  (n.skill, n.point), (n.skill, n.point, n.bucket), (n.skill, n.point, n.rollout, n.arm)
)
"""


async def read_tenant(
    connection: Any, tenant: Tenant, now: float, window_s: float, rollouts: Any
) -> TenantView:
    """Return how a tenant stands.

    Args:
        connection: of role app, not within a transaction.
        tenant: whose rows.
        now: seconds since 1970.
        window_s: how far back figures go.
        rollouts: reads the rollouts, given connection, tenant, time and counts.
    """
    moment = datetime.fromtimestamp(now, UTC)
    async with as_tenant(connection, tenant.id):
        rows = await points_of(connection, tenant.id)
        counts = await _counts(connection, now, window_s)
        standing = await _standing(connection)
        under_way, incidents = await rollouts(connection, tenant.id, moment, counts)
    points = tuple(_point(row, standing, counts, moment) for row in rows)
    return TenantView(tenant.name, points, tuple(under_way), tuple(incidents), counts.capped)


async def _counts(connection: Any, now: float, window_s: float) -> Counts:
    begin = now - window_s
    found = Counts()
    first = UUID(int=int(max(begin, 0.0) * 1000) << 80)
    for row in await connection.fetch(_COUNTS, first, MOST, begin, BUCKETS, window_s / BUCKETS):
        place = row["skill"], row["point"]
        figures = Figures(**{name: row[name] for name in Figures.__slots__})
        if not row["no_bucket"]:
            found.buckets[place][row["bucket"]] = figures
        elif row["no_arm"]:
            found.points[place] = figures
        elif row["rollout"] is not None:
            found.arms[row["rollout"]][row["arm"]] = figures
    return found


async def _standing(connection: Any) -> dict[tuple[str, str], Any]:
    rows = await connection.fetch(
        "SELECT p.skill, p.point, s.created_at, l.holder, l.seen_at, "
        "CASE WHEN l.snapshot = p.snapshot THEN l.seq ELSE 0 END AS seq, "
        "(SELECT u.at FROM update AS u WHERE u.tenant = p.tenant AND u.skill = p.skill "
        " AND u.point = p.point AND u.snapshot = l.snapshot AND u.seq = l.seq) AS learned_at, "
        "w.waiting, w.due_at FROM decision_point AS p "
        "JOIN snapshot AS s ON s.tenant = p.tenant AND s.skill = p.skill AND s.point = p.point "
        " AND s.id = p.snapshot "
        "LEFT JOIN learner AS l ON l.tenant = p.tenant AND l.skill = p.skill AND l.point = p.point "
        "LEFT JOIN (SELECT skill, point, count(*) AS waiting, min(due_at) AS due_at FROM work "
        " WHERE due_at <= now() GROUP BY skill, point) AS w "
        "ON w.skill = p.skill AND w.point = p.point"
    )
    return {(row["skill"], row["point"]): row for row in rows}


def _point(row: PointRow, standing: Any, counts: Counts, now: datetime) -> PointView:
    place = row.skill, row.point
    stands, buckets = standing[place], counts.buckets[place]
    served = [buckets.get(number, Figures()) for number in range(BUCKETS)]
    return PointView(
        row.skill,
        row.point,
        row.spec.policy.algorithm,
        row.spec.learning.mode,
        row.snapshot,
        stands["seq"] or 0 if row.pinned_seq is None else row.pinned_seq,
        pinned=row.pinned_seq is not None,
        snapshot_age_s=age(stands["created_at"], now) or 0.0,
        learned_age_s=age(stands["learned_at"], now),
        lag_s=age(stands["due_at"], now) or 0.0,
        waiting=stands["waiting"] or 0,
        learner=stands["holder"] or None,
        learner_seen_s=age(stands["seen_at"], now) if stands["holder"] else None,
        figures=counts.points.get(place, Figures()),
        traffic=tuple(one.decisions for one in served),
        rewards=tuple(one.reward for one in served),
    )


def age(then: datetime | None, now: datetime) -> float | None:
    """Return the seconds between two times, never below 0; None without the earlier.

    Args:
        then: the earlier.
        now: the later.

    >>> age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    60.0
    """
    return None if then is None else max(0.0, (now - then).total_seconds())
