"""What a state is made of: the logs of the snapshots that it stands on.

A snapshot that was declared or rebuilt begins with nothing, and its own updates are all that its
states hold. A published one begins with a state of another line, so what that line had learned by
then is part of it too, and so on down to a line that began with nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import StateError

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.store.work import Point


class Stretch(NamedTuple):
    """The updates of one snapshot, as far as a state stands on them.

    Attributes:
        snapshot: its version.
        last: the number of the last of them; None: all there are.
    """

    snapshot: str
    last: int | None


async def line_of(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> list[Stretch]:
    """Return the logs that a state stands on, the oldest first.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        snapshot: the base of the state.
        until: the last of its updates that the state holds; None: all there are.

    Returns:
        The first begins with nothing learned, the last is the snapshot's own.

    Raises:
        StateError: there is no such snapshot, or one that it stands on is gone.
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
    """Return the decisions that updates are of.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        stretch: the updates,
        after: of which only those after this one count.

    Returns:
        Each once.
    """
    rows = await connection.fetch(
        "SELECT DISTINCT decision FROM update WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND snapshot = $4 AND seq > $5 AND ($6::bigint IS NULL OR seq <= $6)",
        *(*point, stretch.snapshot, after, stretch.last),
    )
    return [row["decision"] for row in rows]


async def same_update(
    connection: Any, point: Point, one: tuple[str, int], other: tuple[str, int]
) -> bool:
    """Return whether two updates are one: written for a snapshot, and copied for another.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        one: a snapshot and a number of its log.
        other: likewise.

    Returns:
        False where there is no such number.
    """
    same: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM update AS a JOIN update AS b "
        "USING (tenant, skill, point, decision, revision, at) "
        "WHERE a.tenant = $1 AND a.skill = $2 AND a.point = $3 "
        "AND a.snapshot = $4 AND a.seq = $5 AND b.snapshot = $6 AND b.seq = $7)",
        *(*point, *one, *other),
    )
    return same
