"""Learner rows and their queue: how far each decision point has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    Name = tuple[str, str]
    """Skill and decision point."""


class LearnerRow(NamedTuple):
    """Position of a learner.

    Attributes:
        snapshot: snapshot that it learns from.
        seq: number of updates after that snapshot.
    """

    snapshot: str
    seq: int


class LearnerState(NamedTuple):
    """State of a learner and of its queue.

    Attributes:
        skill: skill name.
        point: decision point name.
        snapshot: snapshot that it learns from.
        seq: number of updates after that snapshot.
        holder: display name of the last learner; empty: none yet.
        seen_at: last heartbeat.
        waiting: number of pending work rows.
    """

    skill: str
    point: str
    snapshot: str
    seq: int
    holder: str
    seen_at: datetime
    waiting: int


class Progress(NamedTuple):
    """Learning progress of a decision point.

    Attributes:
        created_at: creation time of the live snapshot.
        holder: display name of the last learner; empty or None: none yet.
        seen_at: last heartbeat; None without a learner.
        seq: number of updates after the live snapshot.
        learned_at: time of the last update; None without any.
        waiting: number of pending work rows; None: none.
        due_at: due time of the oldest of these; None without any.
    """

    created_at: datetime
    holder: str | None
    seen_at: datetime | None
    seq: int | None
    learned_at: datetime | None
    waiting: int | None
    due_at: datetime | None


async def learner_positions(connection: Any) -> dict[Name, LearnerRow]:
    """Return the positions of the learners of the transaction's tenant."""
    rows = await connection.fetch("SELECT skill, point, snapshot, seq FROM learner")
    return {(skill, point): LearnerRow(snapshot, seq) for skill, point, snapshot, seq in rows}


async def oldest_due(connection: Any) -> dict[Name, datetime]:
    """Return when the oldest pending work of each point was due; points without any are absent."""
    rows = await connection.fetch(
        "SELECT skill, point, min(due_at) FROM work WHERE due_at <= now() GROUP BY skill, point"
    )
    return {(skill, point): due_at for skill, point, due_at in rows}


async def learner_states(connection: Any) -> list[LearnerState]:
    """Return the learners of the transaction's tenant, by skill and decision point."""
    rows = await connection.fetch(
        "SELECT l.skill, l.point, l.snapshot, l.seq, l.holder, l.seen_at, "
        "  (SELECT count(*) FROM work AS w "
        "   WHERE w.skill = l.skill AND w.point = l.point AND w.due_at <= now()) "
        "FROM learner AS l ORDER BY l.skill, l.point"
    )
    return [LearnerState(*row) for row in rows]


async def learning_progress(connection: Any) -> dict[Name, Progress]:
    """Return the progress of each decision point of the transaction's tenant."""
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
    return {(skill, point): Progress(*progress) for skill, point, *progress in rows}


async def learner_lags(connection: Any, *, limit: int) -> dict[Name, float]:
    """Return the age in seconds of each point's oldest pending work.

    Args:
        limit: read only so many oldest rows.
    """
    rows = await connection.fetch(
        "SELECT skill, point, extract(epoch FROM now() - min(due_at))::float8 "
        "FROM (SELECT skill, point, due_at FROM work WHERE due_at <= now() "
        "ORDER BY due_at LIMIT $1) AS due GROUP BY skill, point",
        limit,
    )
    return {(skill, point): lag_s for skill, point, lag_s in rows}


async def oldest_lag_s(connection: Any) -> float | None:
    """Return the age in seconds of the oldest pending work; None without any."""
    lag_s: float | None = await connection.fetchval(
        "SELECT extract(epoch FROM now() - min(due_at))::float8 FROM work WHERE due_at <= now()"
    )
    return lag_s


async def count_due(connection: Any) -> int:
    """Return the amount of pending work of the transaction's tenant."""
    count: int = await connection.fetchval("SELECT count(*) FROM work WHERE due_at <= now()")
    return count
