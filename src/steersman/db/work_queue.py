"""Work queue of the learner, and a fence per decision point.

Work rows are written with the event or decision that causes them, and deleted in the transaction
that processes them. Workers use no cursor, so a late commit brings its rows with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

Point = tuple["UUID", str, str]
"""Tenant, skill and decision point."""
_THIS = "tenant = $1 AND skill = $2 AND point = $3"
_DUE = (
    "id, tenant, skill, point, due_at FROM work WHERE due_at <= $1 AND NOT EXISTS ("
    "SELECT FROM unnest($2::uuid[], $3::text[], $4::text[]) AS o (tenant, skill, point) "
    "WHERE o.tenant = work.tenant AND o.skill = work.skill AND o.point = work.point)"
)
_MOST_AGAIN = 20_000
"""Maximum queue rows to search for the same decisions, oldest first."""
_AGAIN = f"""
WITH oldest AS MATERIALIZED (
  SELECT * FROM work WHERE due_at <= $5 AND EXISTS (
    SELECT FROM decision_point WHERE {_THIS} AND per_episode
  ) ORDER BY due_at LIMIT $6
), again AS (
  DELETE FROM work WHERE id = ANY(ARRAY(
    SELECT id FROM oldest WHERE {_THIS} AND (decision IN (SELECT unnest($4::uuid[]))) IS TRUE
  )) RETURNING *
) SELECT * FROM again ORDER BY id
"""  # noqa: S608 (a constant)


class WorkRow(NamedTuple):
    """Decision whose reward may have changed.

    Attributes:
        id: row id.
        decision: decision id.
        at: queue time.
        traceparent: W3C trace context of its cause.
    """

    id: int
    decision: UUID
    at: datetime
    traceparent: str | None


class Fence(NamedTuple):
    """State of a point, locked until the transaction ends.

    Attributes:
        snapshot: the snapshot that learns.
        seq: last assigned update number.
        spec_hash: hash of the current declaration.
    """

    snapshot: str
    seq: int
    spec_hash: bytes


async def due_work(
    connection: Any, now: datetime, *, without: Sequence[Point] = (), limit: int = 2000
) -> dict[Point, list[int]]:
    """Return due work by decision point: the oldest, and some of the newest.

    With the oldest only, one long queue would block all other points.
    """
    rows = await connection.fetch(
        f"(SELECT {_DUE} ORDER BY due_at, id LIMIT $5) UNION "
        f"(SELECT {_DUE} ORDER BY due_at DESC, id DESC LIMIT $5 / 4) ORDER BY due_at, id",
        now,
        *([point[part] for point in without] for part in range(3)),
        limit,
    )
    found: dict[Point, list[int]] = {}
    for row in rows:
        point = row["tenant"], row["skill"], row["point"]
        found.setdefault(point, []).append(row["id"])
    return dict(sorted(found.items(), key=lambda item: len(item[1])))


async def take_work(
    connection: Any, ids: Sequence[int], *, now: datetime | None = None
) -> list[WorkRow]:
    """Take work rows off the queue; a rollback puts them back.

    Every event of an episode queues all its decisions. So other rows of the same decisions are
    taken together if whole episodes are credited.

    Args:
        now: also take other rows of the same decisions that are due by then; None: only
            these.
    """
    rows = await connection.fetch(
        "WITH taken AS (DELETE FROM work WHERE id = ANY($1) "
        "RETURNING *) SELECT t.* FROM taken AS t "
        "JOIN unnest($1::bigint[]) WITH ORDINALITY AS o (id, place) USING (id) ORDER BY o.place",
        ids,
    )
    if rows and now is not None:
        point = [rows[0][column] for column in ("tenant", "skill", "point")]
        decisions = list({row["decision"] for row in rows})
        rows += await connection.fetch(_AGAIN, *point, decisions, now, _MOST_AGAIN)
    return [WorkRow(*(row[column] for column in WorkRow._fields)) for row in rows]


async def queue_work(
    connection: Any, point: Point, due: Iterable[tuple[UUID, datetime, str | None]]
) -> None:
    """Queue decisions for later."""
    columns = list(zip(*due, strict=True)) or [(), (), ()]
    await connection.execute(
        "INSERT INTO work (tenant, skill, point, decision, due_at, traceparent) "
        "SELECT $1, $2, $3, * FROM unnest($4::uuid[], $5::timestamptz[], $6::text[])",
        *(*point, *columns),
    )


async def unfinished(connection: Any, point: Point, ids: Sequence[UUID]) -> set[UUID]:
    """Return the decisions with due work."""
    rows = await connection.fetch(
        f"SELECT decision FROM work WHERE {_THIS} AND decision = ANY($4) AND due_at <= now()",  # noqa: S608 (a constant)
        *(*point, ids),
    )
    return {row["decision"] for row in rows}


async def claim(connection: Any, point: Point, holder: str, *, idle_s: float | None) -> int | None:
    """Claim a point as its learner; the previous learner is fenced.

    Args:
        idle_s: claim only after this many seconds without a heartbeat; None: always.

    Returns:
        The new epoch; None if its learner is alive or the point does not exist.
    """
    epoch: int | None = await connection.fetchval(
        f"UPDATE learner SET epoch = epoch + 1, holder = $4, seen_at = clock_timestamp() "  # noqa: S608 (a constant)
        f"WHERE {_THIS} AND ($5::float8 IS NULL "
        "OR seen_at < clock_timestamp() - $5 * interval '1 second') RETURNING epoch",
        *(*point, holder, idle_s),
    )
    return epoch


async def holder_of(connection: Any, point: Point) -> str | None:
    """Return the last learner of a point; empty after a new snapshot, None if the point is gone."""
    holder: str | None = await connection.fetchval(
        f"SELECT holder FROM learner WHERE {_THIS}",  # noqa: S608 (a constant)
        *point,
    )
    return holder


async def keep_claims(
    connection: Any, tenant: UUID, claims: Sequence[tuple[str, str, int]]
) -> set[tuple[str, str]]:
    """Send a heartbeat for claims; locked rows are skipped, because their users do the same."""
    columns = list(zip(*claims, strict=True)) or [(), (), ()]
    rows = await connection.fetch(
        "WITH mine AS MATERIALIZED ("
        "  SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[]) AS m (skill, point, epoch)"
        "), kept AS ("
        "  UPDATE learner AS l SET seen_at = clock_timestamp() FROM ("
        "    SELECT k.skill, k.point, k.epoch FROM learner AS k JOIN mine USING (skill, point)"
        "    WHERE k.tenant = $1 AND k.epoch = mine.epoch FOR UPDATE OF k SKIP LOCKED) AS free"
        "  WHERE l.tenant = $1 AND l.skill = free.skill AND l.point = free.point"
        ") SELECT l.skill, l.point FROM learner AS l JOIN mine USING (skill, point) "
        "WHERE l.tenant = $1 AND l.epoch <> mine.epoch",
        *(tenant, *columns),
    )
    return {(row["skill"], row["point"]) for row in rows}


async def fence(connection: Any, point: Point, epoch: int) -> Fence:
    """Lock a claimed point until the transaction ends.

    Raises:
        FencedError: another learner claimed it, or it does not exist.
    """
    row = await connection.fetchrow(
        "UPDATE learner AS l SET seen_at = clock_timestamp() FROM decision_point AS p "
        "WHERE l.tenant = $1 AND l.skill = $2 AND l.point = $3 AND l.epoch = $4 "
        "AND p.tenant = $1 AND p.skill = $2 AND p.point = $3 "
        "RETURNING l.snapshot, l.seq, p.spec_hash",
        *(*point, epoch),
    )
    if row is None:
        raise FencedError(
            f"another learner has locked {point[1]}/{point[2]} since epoch {epoch}; nothing was "
            "written, and this learner stops"
        )
    return Fence(*row)
