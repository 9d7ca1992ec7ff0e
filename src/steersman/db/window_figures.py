"""Figures of a time window: one query over the newest decisions of a tenant.

If a window holds more than 20,000 decisions, only the newest count. So the cost is the same for
a busy tenant.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from steersman.wire import id_time

BUCKETS = 24
MOST = 20_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Aggregates of some decisions; None: nothing reported.

    Attributes:
        rewarded: number of decisions with a reward.
        reward: mean reward, 0 to 1.
        success: mean of the outcome ``success``.
        errors: share of decisions from a fallback, or with an outcome ``error`` above 0.
        p95_ms: 95th percentile of the outcome ``latency_ms``.
        cost_usd: mean of the outcome ``cost_usd``.
    """

    decisions: int = 0
    rewarded: int = 0
    reward: float | None = None
    success: float | None = None
    errors: float | None = None
    p95_ms: float | None = None
    cost_usd: float | None = None


@dataclass(slots=True)
class Counts:
    """Figures of a window, by group.

    Attributes:
        window_s: length of the window.
        capped: whether the window is shorter than requested, because of too many decisions.
        points: figures by (skill, point).
        buckets: figures by (skill, point) and bucket number, oldest 0.
        arms: figures by rollout and arm.
    """

    window_s: float
    capped: bool = False
    points: dict[tuple[str, str], Figures] = field(default_factory=dict)
    buckets: dict[tuple[str, str], dict[int, Figures]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    arms: dict[str, dict[str, Figures]] = field(default_factory=lambda: defaultdict(dict))


_BEYOND = "SELECT id FROM decision WHERE id >= $1 ORDER BY id DESC OFFSET $2 LIMIT 1"
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


async def count_window(connection: Any, now: float, window_s: float) -> Counts:
    """Return the figures of a window.

    Args:
        now: end of the window, in seconds since 1970.
    """
    begin = now - window_s
    first = UUID(int=int(max(begin, 0.0) * 1000) << 80)
    beyond = await connection.fetchval(_BEYOND, first, MOST)
    if beyond is not None:
        begin = min(now - 1e-3, id_time(beyond))
    found = Counts(now - begin, capped=beyond is not None)
    width_s = found.window_s / BUCKETS
    for row in await connection.fetch(_COUNTS, first, MOST, begin, BUCKETS, width_s):
        place = row["skill"], row["point"]
        figures = Figures(**{name: row[name] for name in Figures.__slots__})
        if not row["no_bucket"]:
            found.buckets[place][row["bucket"]] = figures
        elif row["no_arm"]:
            found.points[place] = figures
        elif row["rollout"] is not None:
            found.arms[row["rollout"]][row["arm"]] = figures
    return found
