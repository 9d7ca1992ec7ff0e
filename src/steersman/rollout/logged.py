"""What the log says of traffic and spread, to tell beforehand how long a rollout will take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.rollout.gather import first_id

if TYPE_CHECKING:
    from steersman.store import PointRow

_DAY_S = 86_400.0
_LEAST_S = 3600.0
_LARGEST_SD = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a decision point had of late.

    Attributes:
        days: that the log covers, at most those that were asked for.
        decisions: in that time.
        units: likewise.
        units_per_day: of them; 0 without decisions.
        sd: standard deviation of the units' mean rewards, at most 0.5, as none in 0 to 1 is larger;
            None with fewer than two.
        mean: of the units' mean rewards; None without any.
    """

    days: float
    decisions: int
    units: int
    units_per_day: float
    sd: float | None
    mean: float | None


async def traffic_of(connection: Any, point: PointRow, *, now: float, days: float = 7.0) -> Traffic:
    """Return what a decision point had of late: units, and how much their rewards differ.

    Args:
        connection: within a transaction of the tenant.
        point: the decision point.
        now: seconds since 1970.
        days: how far back; above 0.

    Returns:
        Its traffic. The first hour of a log counts as an hour.
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
