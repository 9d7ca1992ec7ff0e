"""Rebuild: a new snapshot from the same log without unwanted decisions.

The new snapshot goes live at once. Its state equals, bit by bit, one that never saw those
decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.audit import record
from steersman.db.conditions import matching, unknown_among, unseen_by
from steersman.db.derived_snapshots import (
    add_snapshot,
    exclude_decisions,
    first_update_at,
    hold_point,
    lineage,
    switch_snapshot,
)
from steersman.db.points import check_settled
from steersman.db.updates import write_checkpoint
from steersman.errors import InputError
from steersman.learning.relearn import Relearner
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.db.derived_snapshots import Segment
    from steersman.db.points import PointRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """Result of a rebuild.

    Attributes:
        snapshot: new live version.
        kept: updates learned again.
        excluded: updates left out by the condition, the ids or an erasure.
        lost: updates that the current declaration cannot learn: their action was removed, or their
            context is needed but missing.
        unseen: updates that the condition could not check, because their decisions are not in the
            hot tables; they were kept. 0 without a condition.
    """

    snapshot: str
    kept: int
    excluded: int
    lost: int
    unseen: int


class _Exclusion(NamedTuple):
    """Decisions to leave out.

    Attributes:
        condition: SQL condition; None for none.
        meant: decisions that match the condition.
        named: decisions given by id.
        keep_unseen: whether to keep decisions that the condition cannot check.
        until: leave out updates after this time.
    """

    condition: str | None
    meant: Sequence[UUID]
    named: Sequence[UUID]
    keep_unseen: bool
    until: datetime | None


async def rebuild(
    database: Database,
    row: PointRow,
    *,
    actor: str,
    until: datetime | None = None,
    exclude: str | None = None,
    decisions: Sequence[UUID] = (),
    keep_unseen: bool = False,
) -> RebuildResult:
    """Relearn a decision point from its log and make the result live.

    Erased decisions are always left out, and earlier exclusions stay. A rebuild reads the log of
    the last rebuild, so it cannot restore what that one left out. The point keeps answering during
    the rebuild; its learner waits and then continues from the new state.

    Args:
        exclude: leave out decisions that match this SQL expression over the columns of table
            ``decision``, such as ``unit = 'bot-7'``. It reads the hot tables only.

    Raises:
        InputError: the condition is invalid or cannot check all updates; ``until`` is before the
            first update; an id does not belong to the point; or its policy is trees.
        StateError: the decision point does not exist.
        RolloutError: a rollout is active; roll it back first, because its candidate learned from
            the same log.
        StoreError: the database is unreachable.
    """
    point = row.tenant, row.skill, row.point
    meant = [] if exclude is None else await matching(database, point, exclude)
    exclusion = _Exclusion(exclude, meant, decisions, keep_unseen, until)
    connection = await database.connect("worker")
    try:
        async with connection.transaction():
            row = await hold_point(connection, point)
            await check_settled(connection, point)
            _check_relearnable(row)
            made, policy = await _relearned(connection, row, exclusion)
            if until is not None and exclude is None:
                await _check_until(connection, point, made, until)
            await _serve(connection, row, made, policy)
            detail = {
                "from": row.snapshot,
                "to": made.snapshot,
                "kept": made.kept,
                "lost": made.lost,
                "excluded": made.excluded,
                "unseen": made.unseen,
                "condition": exclude,
                "named": len(decisions),
                "until": until,
            }
            name = f"{row.skill}/{row.point}"
            await record(connection, row.tenant, actor, "learn.rebuild", name, detail)
    finally:
        await connection.close()
    return made


async def _check_until(connection: Any, point: Point, made: RebuildResult, until: datetime) -> None:
    """Raise an error for a time before the first update, because it would unlearn everything."""
    if made.kept or made.excluded or made.lost:
        return
    first = await first_update_at(connection, point)
    if first is not None:
        raise InputError(
            f"no updates up to {until.isoformat()}; the first update is at "
            f"{first.isoformat(timespec='seconds')}; nothing was changed, because a rebuild "
            "cannot be undone; give a later time (UTC is assumed without a zone)"
        )


def _check_relearnable(row: PointRow) -> None:
    if not row.spec.policy.policy_class.learns_online:
        raise InputError(
            f"{row.skill}/{row.point} has a {row.spec.policy.algorithm} policy, which is trained "
            "from the log and not by updates; train it again and publish the snapshot"
        )


async def _relearned(
    connection: Any, row: PointRow, exclusion: _Exclusion
) -> tuple[RebuildResult, ChoicePolicy]:
    """Create an empty snapshot and relearn the live lineage."""
    point = row.tenant, row.skill, row.point
    segments = await lineage(connection, point, row.snapshot)
    policy = initial_policy(row.spec)
    snapshot = await add_snapshot(connection, row, pack_state(policy.state()))
    sources = [segment.id for segment in segments]
    left_out = [*exclusion.meant, *exclusion.named]
    await exclude_decisions(connection, point, sources, snapshot, left_out)
    unseen = await _unseen(connection, row, segments, snapshot, exclusion)
    relearning = Relearner(connection, row, snapshot, policy)
    for segment in segments:
        await relearning.follow(segment, until=exclusion.until)
    counts = relearning.seq, relearning.excluded, relearning.lost
    return RebuildResult(snapshot, *counts, unseen), policy


async def _unseen(
    connection: Any,
    row: PointRow,
    segments: Sequence[Segment],
    snapshot: str,
    exclusion: _Exclusion,
) -> int:
    """Return the number of updates that the condition could not check, if they may stay."""
    point = row.tenant, row.skill, row.point
    if unknown := await unknown_among(connection, point, exclusion.named):
        raise InputError(
            f"{len(unknown)} id(s) are not decisions of {row.skill}/{row.point}, first "
            f"{unknown[0]}; nothing was changed; correct or remove them"
        )
    if exclusion.condition is None:
        return 0
    unseen, newest = await unseen_by(connection, point, segments, snapshot, exclusion.until)
    if newest is None or exclusion.keep_unseen:
        return unseen
    at = datetime.fromtimestamp(id_time(newest), UTC)
    raise InputError(
        f"the condition cannot check {unseen} updates: retention dropped their decisions, "
        f"the newest of {at:%Y-%m-%d %H:%M} UTC, from the hot tables; nothing was changed. "
        "Find the matching ones with `steersman data query`, which reads the cold store, and list "
        "them with --exclude-decision (decisions=); keep the others with --keep-unseen "
        "(keep_unseen=True)"
    )


async def _serve(connection: Any, row: PointRow, made: RebuildResult, policy: ChoicePolicy) -> None:
    point = row.tenant, row.skill, row.point
    if made.kept:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, made.snapshot, made.kept, state)
    await switch_snapshot(connection, point, made.snapshot, made.kept)
