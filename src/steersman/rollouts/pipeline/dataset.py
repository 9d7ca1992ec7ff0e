"""Counts of the logged decisions that can be used to evaluate a candidate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.db.points import PointRow


@dataclass(frozen=True, slots=True)
class LogCounts:
    """Counts of a log.

    Attributes:
        decisions: number in the lookback window.
        exact: number with an exact propensity.
        usable: number of exact ones that are not degraded and have a final reward.
        first_at: time of the first decision; None without any.
        last_at: time of the last decision; None without any.
        degraded: share that the fallback answered; None without any.
        since: start of the lookback window.
    """

    decisions: int
    exact: int
    usable: int
    first_at: datetime | None
    last_at: datetime | None
    degraded: float | None
    since: datetime

    def to_json(self) -> dict[str, Any]:
        """Return plain values and dates."""
        return asdict(self)


async def count_log(
    connection: Any, row: PointRow, *, now: datetime, lookback_days: float
) -> LogCounts:
    """Count the decisions of a log in the `lookback_days` before `now`.

    `connection` is in a transaction of the tenant. A decision has no final reward while its window
    is open.
    """
    since = now - timedelta(days=lookback_days)
    found = await connection.fetchrow(
        "SELECT count(*) AS decisions, count(*) FILTER (WHERE d.p_kind = 'exact') AS exact, "
        "count(*) FILTER (WHERE d.p_kind = 'exact' AND NOT d.degraded AND d.weight > 0 "
        "  AND d.window_ends <= $5 AND r.value IS NOT NULL) AS usable, "
        "min(d.at) AS first_at, max(d.at) AS last_at, avg(d.degraded::integer)::float8 AS degraded "
        "FROM decision AS d LEFT JOIN LATERAL (SELECT r.value FROM reward AS r "
        "  WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r ON true "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.at >= $4 AND d.at <= $5",
        *(row.tenant, row.skill, row.point, since, now),
    )
    return LogCounts(**found, since=since)
