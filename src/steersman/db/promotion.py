"""Live snapshot of a point: promotion, return to an earlier one, and pins.

The caller locks the point (`hold_point`), so no update is written between the copy and the switch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import (
    copy_updates,
    exclude_decisions,
    hold_point,
    switch_snapshot,
)
from steersman.db.points import learned_from, tell_services
from steersman.db.rewards import spec_of
from steersman.db.snapshots import find_snapshot, line_of
from steersman.db.updates import UPDATE_COLUMNS
from steersman.errors import InputError, RolloutError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.updates import UpdateRow
    from steersman.db.work_queue import Point

_THIS = "tenant = $1 AND skill = $2 AND point = $3"


async def promote_snapshot(
    connection: Any,
    point: Point,
    version: str,
    *,
    rows: Sequence[tuple[UpdateRow, datetime]] | None = None,
) -> int:
    """Make another snapshot live, with the updates learned meanwhile.

    The current declaration stays if the snapshot fits it; otherwise the snapshot's declaration
    becomes current. A pin is removed, the learner is fenced, replicas and services are notified.
    The caller writes the audit row.

    Args:
        rows: updates to write after the snapshot's own, numbered from them, with their
            original times; empty if already written. None: copy what the live lineage
            learned after the freeze, which is exact if the snapshot comes from the live
            lineage with the same policy.

    Raises:
        StateError: the snapshot does not exist or may not go live; or, with None, it is not
            from the live lineage, has other features, or has its own updates; nothing was
            changed.
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
    """Make an earlier live snapshot live again; later decisions are learned again.

    Its log continues. Decisions that only later snapshots learned are put on the learner's queue.

    Raises:
        StateError: the snapshot does not exist or may not go live; nothing was changed.
    """
    row = await hold_point(connection, point)
    serving = await line_of(connection, point, row.snapshot)
    shared = {one.snapshot: one.last for one in await line_of(connection, point, version)}
    last = await promote_snapshot(connection, point, version, rows=())
    # The base of a lineage that is not shared was relearned from earlier lineages.
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
    """Pin a point to one update of its snapshot while learning continues.

    The caller locks the point and makes sure that no other rollout uses it.

    Args:
        seq: update number, 0 for the snapshot itself; None: remove the pin.

    Raises:
        InputError: the update does not exist.
        StateError: the decision point does not exist.
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
    """Remove the pin of a point, unless a rollout holds it.

    Raises:
        RolloutError: a rollout is active or pinned the point; nothing was changed.
        StateError: the decision point does not exist.
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
        why = f"has {last} updates after it"
    if why is not None:
        raise StateError(
            f"{row.skill}/{row.point} {target.version} {why}; its updates cannot be copied as they "
            "are; relearn them and pass the rows"
        )


async def _copy(connection: Any, point: Point, target: SnapshotRow) -> int:
    """Write the updates after the frozen state into the new lineage; return the last number."""
    columns = UPDATE_COLUMNS.removeprefix("seq, ")
    await connection.execute(
        f"INSERT INTO update (tenant, skill, point, snapshot, seq, {columns}, at) "  # noqa: S608 (constants)
        f"SELECT tenant, skill, point, $5, seq - $6, {columns}, at FROM update "
        f"WHERE {_THIS} AND snapshot = $4 AND seq > $6 ORDER BY seq",
        *(*point, target.line, target.version, target.line_seq),
    )
    return await last_number(connection, point, target.version)


async def last_number(connection: Any, point: Point, version: str) -> int:
    """Return the last update number of any snapshot.

    Returns:
        The number; 0 without updates.
    """
    seq: int = await connection.fetchval(
        f"SELECT coalesce(max(seq), 0) FROM update WHERE {_THIS} AND snapshot = $4",  # noqa: S608 (a constant)
        *(*point, version),
    )
    return seq
