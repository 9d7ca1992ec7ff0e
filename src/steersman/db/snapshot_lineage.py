"""Lineage of a state: the logs of the snapshots that it builds on.

A declared or rebuilt snapshot starts empty, so its own updates are its whole content. A published
snapshot starts from a state of another lineage, so that lineage's earlier updates belong to it too,
down to a lineage that started empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import StateError

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.work_queue import Point


class Stretch(NamedTuple):
    """Updates of one snapshot that a state includes.

    Attributes:
        snapshot: snapshot version.
        last: number of the last update; None: all.
    """

    snapshot: str
    last: int | None


async def line_of(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> list[Stretch]:
    """Return the logs that a state builds on, oldest first.

    Args:
        until: last update in the state; None: all.

    Returns:
        The first started empty; the last is the snapshot's own.

    Raises:
        StateError: the snapshot or one that it builds on does not exist.
    """
    rows = await connection.fetch(
        "WITH RECURSIVE line AS ("
        "  SELECT s.id, s.line, s.line_seq, $5::bigint AS last, 0 AS depth FROM snapshot AS s "
        "  WHERE s.tenant = $1 AND s.skill = $2 AND s.point = $3 AND s.id = $4"
        "  UNION ALL "
        "  SELECT s.id, s.line, s.line_seq, b.line_seq, b.depth + 1 FROM line AS b "
        "  JOIN snapshot AS s ON s.tenant = $1 AND s.skill = $2 AND s.point = $3 AND s.id = b.line"
        ") SELECT id, line, last FROM line ORDER BY depth DESC",
        *(*point, snapshot, until),
    )
    if not rows or rows[0]["line"] is not None:
        missing = rows[0]["line"] if rows else snapshot
        raise StateError(
            f"{point[1]}/{point[2]} has no snapshot {missing!r}; "
            "`steersman snapshot list` lists all"
        )
    return [Stretch(row["id"], row["last"]) for row in rows]


async def decisions_learned(
    connection: Any, point: Point, stretch: Stretch, *, after: int = 0
) -> list[UUID]:
    """Return the decisions of some updates."""
    rows = await connection.fetch(
        "SELECT DISTINCT decision FROM update WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND snapshot = $4 AND seq > $5 AND ($6::bigint IS NULL OR seq <= $6)",
        *(*point, stretch.snapshot, after, stretch.last),
    )
    return [row["decision"] for row in rows]


async def same_update(
    connection: Any, point: Point, one: tuple[str, int], other: tuple[str, int]
) -> bool:
    """Return whether two updates are copies of one."""
    same: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM update AS a JOIN update AS b "
        "USING (tenant, skill, point, decision, revision, at) "
        "WHERE a.tenant = $1 AND a.skill = $2 AND a.point = $3 "
        "AND a.snapshot = $4 AND a.seq = $5 AND b.snapshot = $6 AND b.seq = $7)",
        *(*point, *one, *other),
    )
    return same
