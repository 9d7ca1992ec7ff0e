"""Snapshots made from the log of others: their lineage, what they leave out, and the switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import StateError
from steersman.registry import Ingredients, next_version
from steersman.store.database import set_tenant
from steersman.store.learning import UPDATE_COLUMNS, UpdateRow, tell_replicas
from steersman.store.points import find_as_it_is, find_declared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.spec import DecisionPoint
    from steersman.store.points import PointRow, UnreadablePoint
    from steersman.store.work import Point

_THIS = "tenant = $1 AND skill = $2 AND point = $3"


class Segment(NamedTuple):
    """A snapshot, as part of the lineage of another.

    Attributes:
        id: its version.
        parent: the one that served before it, or that it goes on from.
        spec_hash: of the declaration that it was made under.
        feature_hash: of the feature map that its updates were encoded with.
        reason: declared (it began with nothing learned), rebuilt (from all before it) or published
            (it goes on from a state of another).
        last: the last of its updates that belongs to the lineage; None: all of them.
    """

    id: str
    parent: str | None
    spec_hash: bytes
    feature_hash: bytes
    reason: str
    last: int | None = None


class Logged(NamedTuple):
    """An update of a lineage.

    Attributes:
        update: the row.
        at: when it was written.
        barred: whether its decision was erased or excluded.
    """

    update: UpdateRow
    at: datetime
    barred: bool


async def hold_point(connection: Any, point: Point) -> PointRow:
    """Hold a point until the transaction ends: nobody learns, declares or rebuilds it meanwhile.

    Args:
        connection: of role worker, within a transaction; the tenant is set here.
        point: tenant, skill and decision point.

    Returns:
        The point as it is.

    Raises:
        StateError: there is no such point.
    """
    row = await hold_snapshots(connection, point)
    await connection.execute(f"SELECT FROM learner WHERE {_THIS} FOR UPDATE", *point)
    return row


async def hold_as_it_is(connection: Any, point: Point) -> PointRow | UnreadablePoint:
    """Hold a point as `hold_point` does, though its declaration may not be readable.

    Args:
        connection: of role worker, within a transaction; the tenant is set here.
        point: tenant, skill and decision point.

    Returns:
        The point as it is.

    Raises:
        StateError: there is no such point.
    """
    await _lock(connection, point)
    row = await find_as_it_is(connection, point)
    if row is None:
        raise _absent(point)
    await connection.execute(f"SELECT FROM learner WHERE {_THIS} FOR UPDATE", *point)
    return row


async def hold_snapshots(connection: Any, point: Point) -> PointRow:
    """Hold the snapshots of a point until the transaction ends, while its learner goes on.

    Args:
        connection: of role worker, within a transaction; the tenant is set here.
        point: tenant, skill and decision point.

    Returns:
        The point as it is; nobody declares, rebuilds or promotes it meanwhile.

    Raises:
        StateError: there is no such point.
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
    """Return a point as it is, and see its tenant's rows until the transaction ends.

    Args:
        connection: within a transaction; the tenant is set here.
        point: tenant, skill and decision point.

    Returns:
        The point.

    Raises:
        StateError: there is no such point.
        SpecError: its declaration cannot be read.
    """
    await set_tenant(connection, point[0])
    row = await find_declared(connection, point)
    if row is not None:
        return row
    raise _absent(point)


async def last_update(connection: Any, point: Point) -> int:
    """Return the last number that was given out for the serving snapshot.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.

    Returns:
        The number; 0 before the first.
    """
    seq: int = await connection.fetchval(f"SELECT seq FROM learner WHERE {_THIS}", *point)  # noqa: S608 (a constant)
    return seq


async def first_update_at(connection: Any, point: Point) -> datetime | None:
    """Return when the first update of a point was written, of those that are still kept.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.

    Returns:
        The time; None where there is none.
    """
    at: datetime | None = await connection.fetchval(
        f"SELECT min(at) FROM update WHERE {_THIS}",  # noqa: S608 (a constant)
        *point,
    )
    return at


async def lineage(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> list[Segment]:
    """Return the snapshots that hold what a point has learned, oldest first.

    A snapshot that was declared began with nothing, so what was learned before is in its parent;
    one that was rebuilt has all before it in its own log; one that was published goes on from a
    state of another.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        snapshot: the last of them.
        until: the last of its updates that counts; None: all of them.

    Returns:
        At least the snapshot itself.

    Raises:
        StateError: there is no such snapshot.
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
    """Exclude decisions from a snapshot: more of them, and all that its sources excluded.

    Args:
        connection: of role worker, within a transaction of the tenant.
        point: tenant, skill and decision point.
        sources: snapshots that it is made from.
        snapshot: the new one.
        more: ids of decisions.
    """
    await connection.execute(
        "INSERT INTO excluded (tenant, skill, point, snapshot, decision) "  # noqa: S608 (a constant)
        f"SELECT $1, $2, $3, $4, decision FROM excluded WHERE {_THIS} AND snapshot = ANY($5) "
        "UNION SELECT $1, $2, $3, $4, * FROM unnest($6::uuid[]) ON CONFLICT DO NOTHING",
        *(*point, snapshot, sources, more),
    )


async def logged_after(
    connection: Any, point: Point, source: Segment, target: str, seq: int, until: datetime | None
) -> list[Logged]:
    """Return the next updates of a snapshot, with what is to be left out of another.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        source: the snapshot whose log is read, as far as it belongs to the lineage.
        target: the snapshot that excludes decisions.
        seq: those after this number.
        until: none written later.

    Returns:
        Some of them, in order; none: that was all.
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
    return [Logged(UpdateRow(*row[:-2]), *row[-2:]) for row in rows]


async def copy_updates(
    connection: Any, point: Point, snapshot: str, rows: Sequence[tuple[UpdateRow, datetime]]
) -> None:
    """Write updates that were written before, for another snapshot.

    Args:
        connection: of role worker, within a transaction of the tenant that holds the point.
        point: tenant, skill and decision point.
        snapshot: the new one.
        rows: numbered anew, with the time at which each was written first.
    """
    await connection.execute(
        "INSERT INTO update SELECT u.* FROM unnest($1::update[]) AS u",
        [(*point, snapshot, *update, at) for update, at in rows],
    )


async def contexts_of(connection: Any, tenant: UUID, ids: Sequence[UUID]) -> dict[UUID, Any]:
    """Return the contexts of decisions; of those that are still there.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        ids: of decisions.

    Returns:
        Contexts by decision.
    """
    rows = await connection.fetch(
        "SELECT id, context FROM decision WHERE tenant = $1 AND id = ANY($2)", tenant, ids
    )
    return {row["id"]: row["context"] for row in rows}


async def add_snapshot(
    connection: Any, row: PointRow, state: bytes, *, before: DecisionPoint | None = None
) -> str:
    """Store the base of a rebuilt snapshot under the next minor version, or the next major one.

    Args:
        connection: of role worker, within a transaction of the tenant that holds the point.
        row: the point, under the declaration that the snapshot follows.
        state: as `pack_state` returns it.
        before: the declaration in force; None: the same.

    Returns:
        Its version.
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
    """Let a point serve and learn another snapshot; learners are fenced, replicas told.

    A pin is taken off: it was a number of the snapshot before.

    Args:
        connection: of role worker, within a transaction of the tenant that holds the point.
        point: tenant, skill and decision point.
        snapshot: the new one.
        seq: the last of its updates.
        declared: hashes of declaration and feature map that are in force with it, and whether
            outcomes credit the whole episode; None: as they are.
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
