"""What serves: another snapshot takes over with what was learned since, or a number is held.

The caller holds the point (`hold_point`), so no update is written between the last that is copied
and the switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import InputError, RolloutError, StateError
from steersman.store.crediting import spec_of
from steersman.store.learning import UPDATE_COLUMNS
from steersman.store.lines import line_of
from steersman.store.points import learned_from, tell_services
from steersman.store.relearning import (
    copy_updates,
    exclude_decisions,
    hold_point,
    switch_snapshot,
)
from steersman.store.snapshots import find_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.store.learning import UpdateRow
    from steersman.store.points import PointRow
    from steersman.store.snapshots import SnapshotRow
    from steersman.store.work import Point

_THIS = "tenant = $1 AND skill = $2 AND point = $3"


async def promote_snapshot(
    connection: Any,
    point: Point,
    version: str,
    *,
    rows: Sequence[tuple[UpdateRow, datetime]] | None = None,
) -> int:
    """Let a point serve and learn another snapshot, with what was learned meanwhile.

    The declaration stays in force where the snapshot depends on it in no other way; else the one
    that the snapshot was made under is in force from now on. A pin is taken off, the learner is
    fenced, replicas and services are told. The caller writes the audit.

    Args:
        connection: of role worker, within a transaction; it holds the point from here on.
        point: tenant, skill and decision point.
        version: of the snapshot: published and not retracted, or one that served before.
        rows: updates to write after those that the snapshot has, numbered on from them, with the
            time at which each was written first; empty if they were written already. None: copy
            what the serving line learned after the state that was frozen, which is exact where the
            snapshot was frozen from the serving line under the same policy.

    Returns:
        The number of the snapshot's last update.

    Raises:
        StateError: there is no such snapshot, it may not serve, or None and it is not of the
            serving line, sees decisions otherwise, or has updates of its own; nothing was changed.
    """
    row = await hold_point(connection, point)
    target = await find_snapshot(connection, point, version)
    _check_servable(row, target)
    spec = await spec_of(connection, target.spec_hash)
    same = target.feature_hash == row.feature_hash and learned_from(spec) == learned_from(row.spec)
    last = await last_number(connection, point, version)
    if rows is None:
        _check_continues(row, target, last, same=same)
        last = await _copy(connection, point, target)
    elif rows:
        numbers = [update.seq for update, _ in rows]
        if numbers != list(range(last + 1, last + 1 + len(rows))):
            raise StateError(
                f"updates {numbers[0]} to {numbers[-1]} of {point[1]}/{point[2]} {version} do not "
                f"follow its last update {last}; continue the numbers from there"
            )
        await copy_updates(connection, point, version, rows)
        last += len(rows)
    await exclude_decisions(connection, point, [row.snapshot], version, ())
    per_episode = spec.reward.scope == "episode"
    declared = None if same else (target.spec_hash, target.feature_hash, per_episode)
    await switch_snapshot(connection, point, version, last, declared=declared)
    await tell_services(connection, point)
    return last


async def take_back_snapshot(connection: Any, point: Point, version: str) -> int:
    """Let a snapshot serve again that served before; what was learned since is learned anew.

    Its log goes on where it ended. The decisions that only the snapshots after it had learned are
    put on the learner's queue: it compares what the state holds of each with its reward.

    Args:
        connection: of role worker, within a transaction; it holds the point from here on.
        point: tenant, skill and decision point.
        version: of the snapshot.

    Returns:
        The number of its last update.

    Raises:
        StateError: there is no such snapshot, or it may not serve; nothing was changed.
    """
    row = await hold_point(connection, point)
    serving = await line_of(connection, point, row.snapshot)
    shared = {one.snapshot: one.last for one in await line_of(connection, point, version)}
    last = await promote_snapshot(connection, point, version, rows=())
    # What a line that both do not share began with was relearned from lines that were there before.
    own = serving[1:] if len(serving) > 1 and serving[0].snapshot not in shared else serving
    since = [(one.snapshot, shared.get(one.snapshot, 0)) for one in own if one.snapshot != version]
    await connection.execute(
        "INSERT INTO work (tenant, skill, point, decision, due_at) "  # noqa: S608 (a constant)
        "SELECT DISTINCT u.tenant, u.skill, u.point, u.decision, now() FROM update AS u "
        "JOIN unnest($4::text[], $5::bigint[]) AS s (snapshot, last) USING (snapshot) "
        f"WHERE {_THIS} AND u.seq > s.last",
        *(*point, [name for name, _ in since], [last or 0 for _, last in since]),
    )
    await connection.execute("SELECT pg_notify('steersman_work', '')")
    return last


async def pin_point(
    connection: Any, point: Point, seq: int | None, *, rollout: UUID | None = None
) -> None:
    """Let a point serve its snapshot after one of its updates, while learning goes on.

    Who calls it holds the point, and knows that no rollout holds it, or does it for that rollout.

    Args:
        connection: of role worker, within a transaction of the tenant.
        point: tenant, skill and decision point.
        seq: the number of the update, 0 for the snapshot itself; None: follow all of them again.
        rollout: that freezes it; `unpin_point` refuses then.

    Raises:
        InputError: the snapshot has no such update.
        StateError: there is no such point.
    """
    last = await connection.fetchval(f"SELECT seq FROM learner WHERE {_THIS}", *point)  # noqa: S608 (a constant)
    if last is None:
        raise StateError(f"decision point not found: {point[1]}/{point[2]}; declare it first")
    if seq is not None and not 0 <= seq <= last:
        raise InputError(
            f"{point[1]}/{point[2]} cannot be pinned to update {seq!r}; allowed are 0 to {last}"
        )
    await connection.execute(
        "UPDATE decision_point SET pinned_seq = $4, pinned_by = $5, updated_at = now() "  # noqa: S608 (a constant)
        f"WHERE {_THIS}",
        *(*point, seq, rollout),
    )
    await tell_services(connection, point)


async def unpin_point(connection: Any, point: Point) -> bool:
    """Let a point follow what it learns again, unless a rollout keeps it where it is.

    Args:
        connection: of role worker, within a transaction; it holds the point from here on, so no
            rollout starts, ends or freezes it before the transaction ends.
        point: tenant, skill and decision point.

    Returns:
        Whether it was pinned.

    Raises:
        RolloutError: a rollout is under way, or one froze the point; nothing was changed.
        StateError: there is no such point.
    """
    row = await hold_point(connection, point)
    name = f"{point[1]}/{point[2]}"
    if row.pinned_by is not None:
        raise RolloutError(
            f"{name} is pinned by rollout {row.pinned_by}, and only that rollout can unpin it; "
            f"run `steersman rollout resume {row.pinned_by}` with a reason"
        )
    under_way = await connection.fetchrow(
        f"SELECT id, candidate FROM rollout WHERE {_THIS} AND status IN ('running', 'paused')",  # noqa: S608 (a constant)
        *point,
    )
    if under_way is not None:
        raise RolloutError(
            f"rollout {under_way['id']} of {name} {under_way['candidate']} is active, so "
            "its control must not change; promote it, or roll it back first with "
            f"`steersman rollout rollback {under_way['id']}`"
        )
    if row.pinned_seq is None:
        return False
    await pin_point(connection, point, None)
    return True


def _check_servable(row: PointRow, target: SnapshotRow) -> None:
    name = f"{row.skill}/{row.point} {target.version}"
    if target.version == row.snapshot:
        raise StateError(f"{name} is already live; nothing to promote")
    if target.is_available or (target.reason != "published" and target.is_stored):
        return
    why = "no longer has a state"
    if target.reason == "published" and target.is_stored:
        why = "was never published" if target.published_at is None else "was retracted"
    raise StateError(f"{name} {why} and cannot go live; publish another version")


def _check_continues(row: PointRow, target: SnapshotRow, last: int, *, same: bool) -> None:
    why = None
    if target.line != row.snapshot:
        why = f"is not a state of the live snapshot {row.snapshot}"
    elif not same:
        why = "has other features than the live snapshot"
    elif last:
        why = f"has {last} updates of its own"
    if why is not None:
        raise StateError(
            f"{row.skill}/{row.point} {target.version} {why}; its updates cannot be copied as they "
            "are; relearn them and pass the rows"
        )


async def _copy(connection: Any, point: Point, target: SnapshotRow) -> int:
    """Write the updates after the frozen state as the first of the new line; return the last."""
    columns = UPDATE_COLUMNS.removeprefix("seq, ")
    await connection.execute(
        f"INSERT INTO update (tenant, skill, point, snapshot, seq, {columns}, at) "  # noqa: S608 (constants)
        f"SELECT tenant, skill, point, $5, seq - $6, {columns}, at FROM update "
        f"WHERE {_THIS} AND snapshot = $4 AND seq > $6 ORDER BY seq",
        *(*point, target.line, target.version, target.line_seq),
    )
    return await last_number(connection, point, target.version)


async def last_number(connection: Any, point: Point, version: str) -> int:
    """Return the last number in the log of a snapshot, which need not be the serving one.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        version: of the snapshot.

    Returns:
        The number; 0 if it has no updates.
    """
    seq: int = await connection.fetchval(
        f"SELECT coalesce(max(seq), 0) FROM update WHERE {_THIS} AND snapshot = $4",  # noqa: S608 (a constant)
        *(*point, version),
    )
    return seq
