"""Recent traffic and reward spread of a decision point, for a forecast."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.rollouts.unit_outcomes import first_id

if TYPE_CHECKING:
    from steersman.db.points import PointRow

_DAY_S = 86_400.0
_LEAST_S = 3600.0
_LARGEST_SD = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """Recent traffic of a decision point.

    Attributes:
        days: length of the log in days, at most the requested number.
        decisions: number of decisions.
        units: number of units.
        units_per_day: units per day; 0 without decisions.
        sd: standard deviation of the units' mean rewards, at most 0.5; None with fewer than two
            units.
        mean: mean of the units' mean rewards; None without units.
    """

    days: float
    decisions: int
    units: int
    units_per_day: float
    sd: float | None
    mean: float | None


async def traffic_of(connection: Any, point: PointRow, *, now: float, days: float = 7.0) -> Traffic:
    """Return the recent traffic of a decision point.

    Args:
        now: seconds since 1970.
        days: length of the period in days, above 0.
    """
    moment = datetime.fromtimestamp(now, UTC)
    since = moment - timedelta(days=days)
    found = await connection.fetchrow(
        "WITH per_unit AS (SELECT count(*) AS decisions, min(d.at) AS first, avg(r.value) AS value "
        "FROM decision AS d LEFT JOIN LATERAL (SELECT r.value FROM reward AS r "
        "  WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r ON true "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.at >= $4 AND d.at <= $5 "
        "AND d.id >= $6 AND NOT d.degraded GROUP BY coalesce(d.unit, d.episode, d.id::text)) "
        "SELECT coalesce(sum(decisions), 0)::bigint AS decisions, count(*) AS units, "
        "min(first) AS first, stddev_samp(value) AS sd, avg(value) AS mean FROM per_unit",
        *(point.tenant, point.skill, point.point, since, moment, first_id(since)),
    )
    covered_s = 0.0 if found["first"] is None else (moment - found["first"]).total_seconds()
    covered = max(covered_s, _LEAST_S) / _DAY_S
    daily = found["units"] / covered
    # With n - 1 below, that of a sample of zeros and ones may come out a little larger.
    sd = None if found["sd"] is None else min(found["sd"], _LARGEST_SD)
    return Traffic(covered, found["decisions"], found["units"], daily, sd, found["mean"])
