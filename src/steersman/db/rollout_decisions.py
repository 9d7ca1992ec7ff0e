"""Decisions of a rollout: closed windows, error counts and reported outcomes, by arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow

_CANDIDATE = (
    "FROM decision WHERE tenant = $1 AND rollout = $2 AND skill = $3 AND point = $4 "
    "AND arm = 'candidate' AND stage <> 'shadow' AND NOT degraded AND window_ends <= $5 "
    # An action taken by the application says nothing about the candidate.
    "AND NOT EXISTS (SELECT FROM event AS e WHERE e.tenant = $1 AND e.decision = decision.id "
    "AND e.action_taken <> decision.action AND e.at <= decision.window_ends)"
)
# An episode begins with a decision of the candidate and ends before the next one's.
_PERCENTILES = """
WITH told AS (
    SELECT d.id, d.arm, (
        SELECT o.value FROM outcome AS o WHERE o.tenant = $1 AND o.decision = d.id AND o.name = $3
        ORDER BY o.at DESC, o.event DESC LIMIT 1) AS value
    FROM decision AS d
    WHERE d.tenant = $1 AND d.rollout = $2 AND d.arm IN ('candidate', 'control') AND NOT d.degraded
        AND d.stage <> 'shadow'
), counted AS (
    SELECT arm, value, greatest(0, count(*) FILTER (WHERE arm = 'candidate') OVER (ORDER BY id) - 1)
        / $4::int AS episode
    FROM told WHERE value IS NOT NULL
)
SELECT
    percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY value)
        FILTER (WHERE arm = 'candidate') AS own,
    percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY value)
        FILTER (WHERE arm = 'control') AS others
FROM counted GROUP BY episode HAVING bool_or(arm = 'candidate') ORDER BY episode
"""


class ClosedDecision(NamedTuple):
    """Decision of a rollout whose reward window has ended.

    Attributes:
        id: decision id.
        unit: its unit, its episode or its id.
        arm: control or candidate.
        stage: canary, ab or live.
        window_ends: end of the window.
    """

    id: UUID
    unit: str
    arm: str
    stage: str
    window_ends: datetime


class ErrorBucket(NamedTuple):
    """Errors of one arm within one stretch of time.

    Attributes:
        place: time in seconds since 1970, divided by the width of a bucket.
        candidate: whether the plan gives these units to the candidate.
        errors: number of failed decisions.
        decisions: number of decisions.
    """

    place: int
    candidate: bool
    errors: int
    decisions: int


class ReportedOutcomes(NamedTuple):
    """Outcomes of a candidate's decisions.

    Attributes:
        decisions: time of each decision and its outcomes by name, in time order.
        older: number of decisions before them that were not read.
    """

    decisions: list[tuple[datetime, dict[str, float]]]
    older: int


async def last_decided(connection: Any, row: RolloutRow, first: UUID) -> datetime | None:
    """Return the time of a rollout's last decision.

    Args:
        first: smallest decision id.
    """
    last: datetime | None = await connection.fetchval(
        "SELECT max(at) FROM decision WHERE tenant = $1 AND rollout = $2 AND skill = $3 "
        "AND point = $4 AND id >= $5",
        *(*_named(row), first),
    )
    return last


async def candidate_answered(connection: Any, row: RolloutRow) -> bool:
    """Return whether the candidate has answered any decision of a rollout."""
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM decision WHERE tenant = $1 AND rollout = $2 AND skill = $3 "
        "AND point = $4 AND arm = 'candidate')",
        *_named(row),
    )
    return found


async def count_closed(
    connection: Any, row: RolloutRow, since: datetime, until: datetime, *, ids: tuple[UUID, UUID]
) -> int:
    """Return the number of decisions whose windows ended between two times.

    Args:
        ids: smallest decision id, and the end of the ids.
    """
    found: int = await connection.fetchval(
        "SELECT count(*) FROM decision WHERE tenant = $1 AND rollout = $2 AND skill = $3 "
        "AND point = $4 AND stage <> 'shadow' AND window_ends >= $5 AND window_ends <= $6 "
        "AND id >= $7 AND id < $8",
        *(*_named(row), since, until, *ids),
    )
    return found


async def closed_decisions(
    connection: Any,
    row: RolloutRow,
    since: datetime | None,
    until: datetime,
    *,
    ids: tuple[UUID, UUID],
    after: tuple[datetime, UUID] | None,
    limit: int,
) -> list[ClosedDecision]:
    """Return decisions whose windows ended by a time, in that order.

    Args:
        ids: smallest decision id, and the end of the ids; the planner skips other partitions.
        after: end of the window and id of the last row of the page before.
    """
    rows = await connection.fetch(
        "SELECT id, coalesce(unit, episode, id::text) AS unit, arm, stage, window_ends "
        "FROM decision WHERE tenant = $1 AND rollout = $2 AND skill = $3 AND point = $4 "
        "AND stage <> 'shadow' AND window_ends <= $5 "
        "AND ($6::timestamptz IS NULL OR window_ends >= $6) AND id >= $7 AND id < $8 "
        "AND ($9::timestamptz IS NULL OR (window_ends, id) > ($9, $10::uuid)) "
        "ORDER BY window_ends, id LIMIT $11",
        *(*_named(row), until, since, *ids, *(after or (None, None)), limit),
    )
    return [ClosedDecision(*one) for one in rows]


async def error_buckets(
    connection: Any,
    row: RolloutRow,
    times: tuple[datetime, datetime],
    *,
    ids: tuple[UUID, UUID],
    below: tuple[bytes, bytes],
    width_s: float,
) -> list[ErrorBucket]:
    """Return decisions and errors between two times, by bucket and planned arm.

    Args:
        times: first time, and the end.
        ids: smallest decision id, and the end of the ids.
        below: bound of the unit hashes of the candidate, at stage live and at others.
        width_s: length of a bucket in seconds.
    """
    rows = await connection.fetch(
        "WITH counted AS MATERIALIZED (SELECT d.id, d.at, d.degraded, d.arm, "
        # As `position` places a unit: the first eight bytes, compared as they are.
        "  substr(sha256(convert_to($5, 'UTF8') || '\\x00'::bytea || "
        "    convert_to(coalesce(d.unit, d.episode, d.id::text), 'UTF8')), 1, 8) "
        "  < CASE d.stage WHEN 'live' THEN $6::bytea ELSE $7::bytea END AS candidate "
        "FROM decision AS d WHERE d.tenant = $1 AND d.rollout = $2 AND d.skill = $3 "
        "AND d.point = $4 AND d.stage <> 'shadow' AND d.id >= $9 AND d.id < $10 "
        "AND d.at >= $11 AND d.at < $12), "
        # Each day's events are looked through once, and not for every decision.
        "failed AS MATERIALIZED (SELECT DISTINCT e.decision FROM event AS e "
        "WHERE e.tenant = $1 AND e.decision = ANY(ARRAY(SELECT id FROM counted)) AND "
        "CASE jsonb_typeof(e.outcomes -> 'error') WHEN 'number' "
        "THEN (e.outcomes ->> 'error')::float8 > 0 END) "
        "SELECT floor(extract(epoch FROM c.at) / $8::float8)::bigint, c.candidate, "
        "count(*) FILTER (WHERE c.degraded OR f.decision IS NOT NULL OR "
        "(c.candidate AND c.arm = 'control')), count(*) "
        "FROM counted AS c LEFT JOIN failed AS f ON f.decision = c.id GROUP BY 1, 2",
        *(*_named(row), row.salt, *below, width_s, *ids, *times),
    )
    return [ErrorBucket(*one) for one in rows]


async def reported_outcomes(
    connection: Any, row: RolloutRow, closed: datetime, *, limit: int
) -> ReportedOutcomes:
    """Return the outcomes of the candidate's newest decisions whose windows ended by a time.

    Fallbacks, the stage shadow and decisions with another ``action_taken`` are left out.
    """
    rows = await connection.fetch(
        "SELECT d.at, coalesce(o.told, '{}'::jsonb), "  # noqa: S608 (a constant)
        f"(SELECT count(*) {_CANDIDATE}) AS decided FROM ("
        f"  SELECT * {_CANDIDATE} ORDER BY id DESC LIMIT $6"
        ") AS d LEFT JOIN LATERAL ("
        "  SELECT jsonb_object_agg(o.name, o.value ORDER BY o.at, o.event) AS told "
        "  FROM outcome AS o "
        "  WHERE o.tenant = $1 AND o.decision = d.id AND o.at <= d.window_ends"
        ") AS o ON true ORDER BY d.id",
        *(*_named(row), closed, limit),
    )
    older = rows[0]["decided"] - len(rows) if rows else 0
    return ReportedOutcomes([(at, outcomes) for at, outcomes, _ in rows], older)


async def outcome_percentiles(
    connection: Any, tenant: UUID, rollout: str, outcome: str, *, decisions: int
) -> list[tuple[list[float], list[float] | None]]:
    """Return medians and 95th percentiles of an outcome by episode, in time order.

    Args:
        decisions: decisions of the candidate in an episode; the last may have fewer.

    Returns:
        Those of the candidate, and those of control at the same time; None without any.
    """
    rows = await connection.fetch(_PERCENTILES, tenant, rollout, outcome, decisions)
    return [(row["own"], row["others"]) for row in rows]


def _named(row: RolloutRow) -> tuple[UUID, str, str, str]:
    return row.tenant, str(row.id), row.skill, row.point
