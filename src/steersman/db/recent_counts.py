"""Counts of recent decisions; only the newest rows are read, so the cost has a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID


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
