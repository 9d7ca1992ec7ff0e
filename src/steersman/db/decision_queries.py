"""Reads of decisions with their rewards and events, besides `decisions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.decisions import DecisionRow

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from steersman.db.work_queue import Point


class PointCounts(NamedTuple):
    """Counts of one decision point.

    Attributes:
        decisions: number of decisions.
        degraded: number of these answered by the fallback.
        rewarded: number of these with a reward.
        total: sum of these rewards.
    """

    decisions: int = 0
    degraded: int = 0
    rewarded: int = 0
    total: float = 0.0


class LogCounts(NamedTuple):
    """Counts of a log.

    Attributes:
        decisions: number in the time range.
        exact: number with an exact propensity.
        usable: number of exact ones that are not degraded and have a final reward.
        first_at: time of the first decision; None without any.
        last_at: time of the last decision; None without any.
        degraded: share that the fallback answered; None without any.
        since: start of the time range.
    """

    decisions: int
    exact: int
    usable: int
    first_at: datetime | None
    last_at: datetime | None
    degraded: float | None
    since: datetime


class UnitCounts(NamedTuple):
    """Counts of units and of their mean rewards.

    Attributes:
        decisions: number of decisions.
        units: number of units.
        first: time of the first decision; None without any.
        sd: standard deviation of the units' mean rewards; None with fewer than two.
        mean: mean of the units' mean rewards; None without any.
    """

    decisions: int
    units: int
    first: datetime | None
    sd: float | None
    mean: float | None


async def counts_since(
    connection: Any, first: UUID, *, limit: int
) -> dict[tuple[str, str], PointCounts]:
    """Return the counts of the transaction's tenant, by skill and decision point.

    Args:
        first: smallest decision id; ids contain their time, so the primary key suffices.
        limit: count only so many newest decisions.
    """
    rows = await connection.fetch(
        "WITH newest AS MATERIALIZED ("
        "  SELECT id, skill, point, degraded FROM decision WHERE id >= $1 ORDER BY id DESC LIMIT $2"
        "), last AS ("
        "  SELECT DISTINCT ON (decision) decision, value FROM reward WHERE decision >= $1 "
        "  AND decision >= coalesce((SELECT min(id::text)::uuid FROM newest), $1) "
        "  ORDER BY decision, revision DESC"
        ") SELECT n.skill, n.point, count(*) AS decisions, "
        "count(*) FILTER (WHERE n.degraded) AS degraded, count(l.value) AS rewarded, "
        "coalesce(sum(l.value), 0) AS total "
        "FROM newest AS n LEFT JOIN last AS l ON l.decision = n.id GROUP BY n.skill, n.point",
        *(first, limit),
    )
    return {(skill, point): PointCounts(*counts) for skill, point, *counts in rows}


async def log_counts(connection: Any, point: Point, since: datetime, until: datetime) -> LogCounts:
    """Return the counts of a point's decisions between two times.

    A reward counts if its window ended by the second time.
    """
    found = await connection.fetchrow(
        "SELECT count(*) AS decisions, count(*) FILTER (WHERE d.p_kind = 'exact') AS exact, "
        "count(*) FILTER (WHERE d.p_kind = 'exact' AND NOT d.degraded AND d.weight > 0 "
        "  AND d.window_ends <= $5 AND r.value IS NOT NULL) AS usable, "
        "min(d.at) AS first_at, max(d.at) AS last_at, avg(d.degraded::integer)::float8 AS degraded "
        "FROM decision AS d LEFT JOIN LATERAL (SELECT r.value FROM reward AS r "
        "  WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r ON true "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.at >= $4 AND d.at <= $5",
        *(*point, since, until),
    )
    return LogCounts(**found, since=since)


async def unit_counts(
    connection: Any, point: Point, since: datetime, until: datetime, *, first: UUID
) -> UnitCounts:
    """Return the counts of a point's units between two times, without fallbacks.

    Args:
        first: smallest decision id.
    """
    found = await connection.fetchrow(
        "WITH per_unit AS (SELECT count(*) AS decisions, min(d.at) AS first, avg(r.value) AS value "
        "FROM decision AS d LEFT JOIN LATERAL (SELECT r.value FROM reward AS r "
        "  WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r ON true "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.at >= $4 AND d.at <= $5 "
        "AND d.id >= $6 AND NOT d.degraded GROUP BY coalesce(d.unit, d.episode, d.id::text)) "
        "SELECT coalesce(sum(decisions), 0)::bigint AS decisions, count(*) AS units, "
        "min(first) AS first, stddev_samp(value) AS sd, avg(value) AS mean FROM per_unit",
        *(*point, since, until, first),
    )
    return UnitCounts(**found)


async def count_rows(connection: Any, *, without_events: str) -> int:
    """Return the number of decisions and events of the transaction's tenant.

    Args:
        without_events: prefix of event ids to leave out, with the decisions without a draw.
    """
    count: int = await connection.fetchval(
        "SELECT (SELECT count(*) FROM decision WHERE p_kind <> 'none') "
        "+ (SELECT count(*) FROM event WHERE id NOT LIKE $1)",
        f"{without_events}%",
    )
    return count


class RewardRevision(NamedTuple):
    """Revision of a decision's reward.

    Attributes:
        revision: revision number, from 1.
        value: reward, 0 to 1; None if there is none.
        status: how it was computed.
        terms: value of each declared term.
        final: whether the window is closed.
        at: time of the revision.
    """

    revision: int
    value: float | None
    status: str
    terms: Any
    final: bool
    at: datetime


class ReportedEvent(NamedTuple):
    """Event of a decision or of its episode.

    Attributes:
        id: event id.
        type: interaction, output, feedback or task_result.
        decision: decision id; None for an event of the episode.
        at: time of the event.
        received_at: time of its arrival.
        outcomes: numbers by name, or None.
        action_taken: action of the application instead of the decided one, or None.
        body: free content.
    """

    id: str
    type: str
    decision: UUID | None
    at: datetime
    received_at: datetime
    outcomes: dict[str, float] | None
    action_taken: str | None
    body: Any


async def decision_row(connection: Any, identifier: UUID) -> DecisionRow | None:
    """Return a decision of the transaction's tenant."""
    found = await connection.fetchrow("SELECT * FROM decision WHERE id = $1", identifier)
    return None if found is None else DecisionRow(**found)


async def is_erased(connection: Any, identifier: UUID) -> bool:
    """Return whether a decision of the transaction's tenant was erased."""
    found = await connection.fetchval("SELECT true FROM erasure WHERE decision = $1", identifier)
    return bool(found)


async def reward_revisions(connection: Any, identifier: UUID) -> list[RewardRevision]:
    """Return all revisions of a decision's reward, in order."""
    rows = await connection.fetch(
        "SELECT revision, value, status, terms, final, at FROM reward WHERE decision = $1 "
        "ORDER BY revision",
        identifier,
    )
    return [RewardRevision(*row) for row in rows]


async def reported_events(
    connection: Any, identifier: UUID, episode: str | None, *, limit: int
) -> list[ReportedEvent]:
    """Return the first events of a decision and of its episode, in order of arrival."""
    rows = await connection.fetch(
        "SELECT id, type, decision, at, received_at, outcomes, action_taken, body FROM event "
        "WHERE decision = $1 OR ($2::text IS NOT NULL AND episode = $2) "
        "ORDER BY received_at, id LIMIT $3",
        *(identifier, episode, limit),
    )
    return [ReportedEvent(*row) for row in rows]
