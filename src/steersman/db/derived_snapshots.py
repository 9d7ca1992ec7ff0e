"""Lineage of relearned snapshots: logs, exclusions and the switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.points import find_as_it_is, find_declared
from steersman.db.updates import UPDATE_COLUMNS, UpdateRow, tell_replicas
from steersman.errors import StateError
from steersman.platform.postgres.database import set_tenant
from steersman.registry.versions import Ingredients, next_version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.points import PointRow, UnreadablePoint
    from steersman.db.work_queue import Point
    from steersman.spec.point import DecisionPoint

_THIS = "tenant = $1 AND skill = $2 AND point = $3"


class Segment(NamedTuple):
    """Snapshot as part of a lineage.

    Attributes:
        id: snapshot version.
        parent: snapshot that was live before it, or that it branched from.
        spec_hash: hash of its declaration.
        feature_hash: hash of the feature map of its updates.
        reason: declared (started empty), rebuilt (from all before it) or published (from a
            state of another).
        last: last update in the lineage; None: all.
    """

    id: str
    parent: str | None
    spec_hash: bytes
    feature_hash: bytes
    reason: str
    last: int | None = None


class LineageUpdate(NamedTuple):
    """Update of a lineage.

    Attributes:
        update: the row.
        at: original write time.
        barred: whether its decision was erased or excluded.
    """

    update: UpdateRow
    at: datetime
    barred: bool


async def hold_point(connection: Any, point: Point) -> PointRow:
    """Lock a point until the transaction ends; it is not learned, declared or rebuilt meanwhile.

    Raises:
        StateError: the decision point does not exist.
    """
    row = await hold_snapshots(connection, point)
    await connection.execute(f"SELECT FROM learner WHERE {_THIS} FOR UPDATE", *point)
    return row


async def hold_as_it_is(connection: Any, point: Point) -> PointRow | UnreadablePoint:
    """Lock a point as `hold_point` does, readable or not.

    Raises:
        StateError: the decision point does not exist.
    """
    await _lock(connection, point)
    row = await find_as_it_is(connection, point)
    if row is None:
        raise _absent(point)
    await connection.execute(f"SELECT FROM learner WHERE {_THIS} FOR UPDATE", *point)
    return row


async def hold_snapshots(connection: Any, point: Point) -> PointRow:
    """Lock the snapshots of a point until the transaction ends; its learner continues.

    Raises:
        StateError: the decision point does not exist.
    """
    await _lock(connection, point)
    return await hold_view(connection, point)


async def _lock(connection: Any, point: Point) -> None:
    await set_tenant(connection, point[0])
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        "declare/" + "/".join(map(str, point)),
    )


def _absent(point: Point) -> StateError:
    return StateError(f"decision point not found: {point[1]}/{point[2]}; declare it first")


async def hold_view(connection: Any, point: Point) -> PointRow:
    """Return a point without a lock, and set its tenant until the transaction ends.

    Raises:
        StateError: the decision point does not exist.
        SpecError: its declaration cannot be read.
    """
    await set_tenant(connection, point[0])
    row = await find_declared(connection, point)
    if row is not None:
        return row
    raise _absent(point)


async def last_update(connection: Any, point: Point) -> int:
    """Return the last update number of the live snapshot.

    Returns:
        The number; 0 without updates.
    """
    seq: int = await connection.fetchval(f"SELECT seq FROM learner WHERE {_THIS}", *point)  # noqa: S608 (a constant)
    return seq


async def first_update_at(connection: Any, point: Point) -> datetime | None:
    """Return the time of the oldest stored update of a point.

    Returns:
        The time; None without updates.
    """
    at: datetime | None = await connection.fetchval(
        f"SELECT min(at) FROM update WHERE {_THIS}",  # noqa: S608 (a constant)
        *point,
    )
    return at


async def lineage(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> list[Segment]:
    """Return the snapshots whose logs hold everything a point has learned, oldest first.

    A declared snapshot started empty, so earlier learning is in its parent. A rebuilt one has all
    earlier learning in its own log. A published one continues a state of another.

    Args:
        until: last update that counts; None: all.

    Raises:
        StateError: the snapshot does not exist.
    """
    rows = await connection.fetch(
        "SELECT id, CASE WHEN reason = 'published' THEN line ELSE parent END, spec_hash, "  # noqa: S608 (a constant)
        f"feature_hash, reason, line_seq FROM snapshot WHERE {_THIS}",
        *point,
    )
    known = {row["id"]: Segment(*row) for row in rows}
    found = [known[snapshot]._replace(last=until)]
    while found[0].reason != "rebuilt" and found[0].parent in known:
        ends = known[found[0].id].last if found[0].reason == "published" else None
        found.insert(0, known[found[0].parent]._replace(last=ends))
    return found


async def exclude_decisions(
    connection: Any, point: Point, sources: Sequence[str], snapshot: str, more: Sequence[UUID]
) -> None:
    """Exclude decisions from a snapshot, together with all exclusions of its sources."""
    await connection.execute(
        "INSERT INTO excluded (tenant, skill, point, snapshot, decision) "  # noqa: S608 (a constant)
        f"SELECT $1, $2, $3, $4, decision FROM excluded WHERE {_THIS} AND snapshot = ANY($5) "
        "UNION SELECT $1, $2, $3, $4, * FROM unnest($6::uuid[]) ON CONFLICT DO NOTHING",
        *(*point, snapshot, sources, more),
    )


async def logged_after(
    connection: Any, point: Point, source: Segment, target: str, seq: int, until: datetime | None
) -> list[LineageUpdate]:
    """Return the next updates of a snapshot, with their exclusion from another.

    Returns:
        Updates in order; empty at the end.
    """
    rows = await connection.fetch(
        f"SELECT {UPDATE_COLUMNS}, at, EXISTS (SELECT FROM erasure AS e "  # noqa: S608 (constants)
        "WHERE e.tenant = $1 AND e.decision = u.decision) OR EXISTS (SELECT FROM excluded AS e "
        "WHERE e.tenant = $1 AND e.skill = $2 AND e.point = $3 AND e.snapshot = $5 "
        f"AND e.decision = u.decision) FROM update AS u WHERE {_THIS} AND snapshot = $4 "
        "AND seq > $6 AND ($7::timestamptz IS NULL OR at <= $7) "
        "AND ($8::bigint IS NULL OR seq <= $8) ORDER BY seq LIMIT 2000",
        *(*point, source.id, target, seq, until, source.last),
    )
    return [LineageUpdate(UpdateRow(*row[:-2]), *row[-2:]) for row in rows]


async def copy_updates(
    connection: Any, point: Point, snapshot: str, rows: Sequence[tuple[UpdateRow, datetime]]
) -> None:
    """Write copies of updates for another snapshot."""
    await connection.execute(
        "INSERT INTO update SELECT u.* FROM unnest($1::update[]) AS u",
        [(*point, snapshot, *update, at) for update, at in rows],
    )


async def contexts_of(connection: Any, tenant: UUID, ids: Sequence[UUID]) -> dict[UUID, Any]:
    """Return the contexts of existing decisions."""
    rows = await connection.fetch(
        "SELECT id, context FROM decision WHERE tenant = $1 AND id = ANY($2)", tenant, ids
    )
    return {row["id"]: row["context"] for row in rows}


async def add_snapshot(
    connection: Any, row: PointRow, state: bytes, *, before: DecisionPoint | None = None
) -> str:
    """Store the base of a rebuilt snapshot under the next minor or major version.

    Args:
        state: bytes from `pack_state`.
        before: current declaration; None: the same.
    """
    point = row.tenant, row.skill, row.point
    taken = await connection.fetch(f"SELECT id FROM snapshot WHERE {_THIS}", *point)  # noqa: S608 (a constant)
    earlier = Ingredients.of(before or row.spec, row.snapshot)
    after = Ingredients.of(row.spec)
    identifier = next_version(earlier, after, [other["id"] for other in taken], least="minor")
    await connection.execute(
        "INSERT INTO snapshot (tenant, skill, point, id, parent, spec_hash, feature_hash, reason, "
        "state, sha256, algorithm, samples) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, 'rebuilt', $8, sha256($8), $9, 0)",
        *(*point, identifier, row.snapshot, row.spec_hash, row.feature_hash, state),
        row.spec.policy.algorithm,
    )
    return identifier


async def switch_snapshot(
    connection: Any,
    point: Point,
    snapshot: str,
    seq: int,
    *,
    declared: tuple[bytes, bytes, bool] | None = None,
) -> None:
    """Make another snapshot live; learners are fenced, replicas notified, a pin is removed.

    Args:
        declared: hashes of its declaration and feature map, and whether outcomes credit
            whole episodes; None: unchanged.
    """
    await connection.execute(
        f"UPDATE learner SET epoch = epoch + 1, holder = '', snapshot = $4, seq = $5 WHERE {_THIS}",  # noqa: S608 (a constant)
        *(*point, snapshot, seq),
    )
    await connection.execute(
        "UPDATE decision_point SET snapshot = $4, pinned_seq = NULL, updated_at = now(), "  # noqa: S608 (a constant)
        "spec_hash = coalesce($5, spec_hash), feature_hash = coalesce($6, feature_hash), "
        f"per_episode = coalesce($7, per_episode) WHERE {_THIS}",
        *(*point, snapshot, *(declared or (None, None, None))),
    )
    await tell_replicas(connection, point)
