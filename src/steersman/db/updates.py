"""Learned state rows: numbered updates and checkpoints of a snapshot."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import FencedError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.db.work_queue import Point

UPDATE_COLUMNS = (
    "seq, decision, revision, x, key, action, reward_change, weight_change, weight, bucket, "
    "traceparent"
)


class UpdateRow(NamedTuple):
    """Policy update with a gapless number.

    Attributes:
        seq: number within its snapshot: 1, 2, 3, …
        decision: decision of the reward.
        revision: revision of the learned reward.
        x: features; None for policies that learn by key or without context.
        key: key, for policies that learn by key.
        action: logged action.
        reward_change: the reward, its correction, or minus the withdrawn reward.
        weight_change: 1: first learned; 0: corrected; -1: withdrawn.
        weight: number of observations it counts for.
        bucket: time bucket of its decision.
        traceparent: W3C trace context of its cause.
    """

    seq: int
    decision: UUID
    revision: int
    x: list[float] | None
    key: str | None
    action: str
    reward_change: float
    weight_change: float
    weight: float
    bucket: int
    traceparent: str | None


async def updates_after(
    connection: Any,
    point: Point,
    snapshot: str,
    seq: int,
    *,
    until: int | None = None,
    limit: int = 1000,
) -> list[UpdateRow]:
    """Return the updates of a snapshot after a number, in order.

    Args:
        until: last number; None: no limit.
    """
    rows = await connection.fetch(
        f"SELECT {UPDATE_COLUMNS} FROM update WHERE tenant = $1 AND skill = $2 AND point = $3 "  # noqa: S608 (a constant)
        "AND snapshot = $4 AND seq > $5 AND ($6::bigint IS NULL OR seq <= $6) "
        "ORDER BY seq LIMIT $7",
        *(*point, snapshot, seq, until, limit),
    )
    return [UpdateRow(*row) for row in rows]


async def update_causes(connection: Any, *, without_events: str) -> list[tuple[str, int, float]]:
    """Return decision point and number of each update, and when its first event arrived.

    Args:
        without_events: prefix of event ids to leave out.

    Returns:
        Times in seconds since 1970.
    """
    rows = await connection.fetch(
        "SELECT u.point, u.seq, extract(epoch FROM min(e.received_at))::float8 "
        "FROM update AS u JOIN event AS e ON e.decision = u.decision "
        "WHERE e.outcomes IS NOT NULL AND e.id NOT LIKE $1 GROUP BY u.point, u.seq",
        f"{without_events}%",
    )
    return [tuple(row) for row in rows]


async def newest_checkpoint(
    connection: Any, point: Point, snapshot: str, *, until: int | None = None
) -> tuple[int, bytes] | None:
    """Return the newest checkpoint of a snapshot.

    Args:
        until: last number; None: the newest.

    Returns:
        Its update number and its bytes; None without a checkpoint.

    Raises:
        StateError: the bytes do not match their hash.
    """
    found = await connection.fetchrow(
        "SELECT seq, state, sha256 FROM checkpoint WHERE tenant = $1 AND skill = $2 "
        "AND point = $3 AND snapshot = $4 AND ($5::bigint IS NULL OR seq <= $5) "
        "ORDER BY seq DESC LIMIT 1",
        *(*point, snapshot, until),
    )
    return None if found is None else (found["seq"], _whole(found, point, snapshot))


async def base_state(connection: Any, point: Point, snapshot: str) -> bytes:
    """Return the base state of a snapshot from its row.

    Returns:
        Its bytes. Only a signature can show that bytes and hash were not changed together.

    Raises:
        StateError: the snapshot does not exist, or its bytes do not match their hash.
    """
    found = await connection.fetchrow(
        "SELECT 0::bigint AS seq, state, sha256 FROM snapshot "
        "WHERE tenant = $1 AND skill = $2 AND point = $3 AND id = $4",
        *(*point, snapshot),
    )
    if found is None:
        message = f"{point[1]}/{point[2]} has no snapshot {snapshot!r}; "
        raise StateError(message + "`steersman snapshot list` lists all")
    return _whole(found, point, snapshot)


def _whole(found: Any, point: Point, snapshot: str) -> bytes:
    state: bytes | None = found["state"]
    if state is None:
        raise StateError(
            f"the state of {point[1]}/{point[2]} {snapshot} was removed, because it learned from "
            "erased data; use a later snapshot"
        )
    if sha256(state).digest() != found["sha256"]:
        raise StateError(
            f"the state of {point[1]}/{point[2]} {snapshot} after {found['seq']} updates is "
            "damaged: its hash differs; delete that checkpoint, or restore the database"
        )
    return state


async def append_updates(
    connection: Any, point: Point, epoch: int, snapshot: str, rows: Sequence[UpdateRow]
) -> None:
    """Write the next updates of a snapshot and notify the replicas.

    Raises:
        FencedError: the numbers do not follow, so another learner wrote updates.
    """
    last = await connection.fetchval(
        "UPDATE learner SET seq = seq + $6 WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND epoch = $4 AND snapshot = $5 RETURNING seq",
        *(*point, epoch, snapshot, len(rows)),
    )
    if last != rows[-1].seq:
        raise FencedError(
            f"updates {rows[0].seq} to {rows[-1].seq} of {point[1]}/{point[2]} {snapshot} do not "
            f"follow the assigned numbers (last {last}); nothing was written"
        )
    await connection.execute(
        f"INSERT INTO update SELECT tenant, skill, point, snapshot, {UPDATE_COLUMNS}, now() "  # noqa: S608 (a constant)
        "FROM unnest($1::update[]) AS u ORDER BY seq",
        [(*point, snapshot, *row, None) for row in rows],
    )
    await tell_replicas(connection, point)


async def tell_replicas(connection: Any, point: Point) -> None:
    """Notify the replicas of new updates after the commit."""
    name = "/".join(map(str, point))
    await connection.execute("SELECT pg_notify('steersman_update', $1)", name)


async def write_checkpoint(
    connection: Any, point: Point, snapshot: str, seq: int, state: bytes, *, keep: int = 3
) -> None:
    """Store a checkpoint and delete older ones of the snapshot.

    Args:
        state: bytes from `pack_state`.
    """
    await connection.execute(
        "INSERT INTO checkpoint (tenant, skill, point, snapshot, seq, state, sha256) "
        "VALUES ($1, $2, $3, $4, $5, $6, sha256($6)) ON CONFLICT DO NOTHING",
        *(*point, snapshot, seq, state),
    )
    await connection.execute(
        "DELETE FROM checkpoint WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND snapshot = $4 AND seq NOT IN (SELECT seq FROM checkpoint WHERE tenant = $1 "
        "AND skill = $2 AND point = $3 AND snapshot = $4 ORDER BY seq DESC LIMIT $5)",
        *(*point, snapshot, keep),
    )
