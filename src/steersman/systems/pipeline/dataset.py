"""What the log of a decision point holds that a candidate could be judged on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.store import PointRow


@dataclass(frozen=True, slots=True)
class LogCounts:
    """What a log holds.

    Attributes:
        decisions: in the time that was looked at.
        exact: whose probability is known exactly.
        usable: of these, not degraded, and with a reward that is final.
        first_at: when the first decision was made; None without any.
        last_at: when the last was.
        degraded: share that a fallback answered; None without any.
        since: where looking began.
    """

    decisions: int
    exact: int
    usable: int
    first_at: datetime | None
    last_at: datetime | None
    degraded: float | None
    since: datetime

    def to_json(self) -> dict[str, Any]:
        """Return plain values, dates among them."""
        return asdict(self)


async def count_log(
    connection: Any, row: PointRow, *, now: datetime, lookback_days: float
) -> LogCounts:
    """Count what a log holds.

    Args:
        connection: within a transaction of the tenant.
        row: the decision point.
        now: where looking ends.
        lookback_days: how far back it begins, above 0.

    Returns:
        The counts. A decision whose window is open has no final reward yet.
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
