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
