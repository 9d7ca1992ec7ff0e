"""Rebuilding: another snapshot from the same log, without what should never have been learned.

It serves at once, and its state has the bits of one that never saw what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import InputError
from steersman.learn.conditions import matching, unknown_among, unseen_by
from steersman.learn.relearning import Relearning
from steersman.registry import pack_state
from steersman.store import (
    add_snapshot,
    check_settled,
    exclude_decisions,
    first_update_at,
    hold_point,
    initial_policy,
    lineage,
    record,
    switch_snapshot,
    write_checkpoint,
)
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from steersman.policies import ChoicePolicy
    from steersman.store import Database, Point, PointRow, Segment


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild made.

    Attributes:
        snapshot: the version that serves from now on.
        kept: updates that were learned again.
        excluded: updates that were left out, because of the condition, their ids or an erasure.
        lost: updates that the policy as it is declared now cannot learn: of actions that it lacks,
            or of decisions whose contexts are needed and not there any more.
        unseen: updates that the condition could not judge, because the hot tables hold their
            decisions no more; they were kept. 0 without a condition.
    """

    snapshot: str
    kept: int
    excluded: int
    lost: int
    unseen: int


class _Unwanted(NamedTuple):
    """What is to be left out.

    Attributes:
        condition: as it was written; None: there is none.
        meant: decisions that it holds for.
        named: decisions that were named by their ids.
        keep_unseen: whether what the condition could not judge is kept.
        until: what was learned later is left out.
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
) -> Rebuilt:
    """Relearn a decision point from its log, and let the result serve.

    Erased decisions are left out always, and those that an earlier rebuild excluded stay out. It
    reads the log of the last rebuild: what that one left out, this one cannot bring back. While it
    runs the point goes on serving; its learner waits, and goes on from the new state.

    Args:
        database: migrated.
        row: the decision point.
        actor: who does it, for the audit.
        until: leave out what was learned later.
        exclude: leave out the decisions for which this holds: one SQL expression over the columns
            of table ``decision``, such as ``unit = 'bot-7'``. It sees the hot tables alone.
        decisions: leave out those with these ids, too, wherever their rows are.
        keep_unseen: keep what was learned from decisions that ``exclude`` cannot see, because
            retention has dropped them; otherwise nothing is done where there are any.

    Returns:
        The new snapshot, and what became of the updates.

    Raises:
        InputError: a condition that is not one expression, does not work, or cannot see all that
            was learned; a moment, and nothing else, before all that was learned; an id that this
            point never had; or a point whose policy is trees, which are grown and not relearned.
        StateError: there is no such point.
        RolloutError: a rollout of it is under way; roll it back first, it learned the same.
        StoreError: the server does not answer.
    """
    point = row.tenant, row.skill, row.point
    meant = [] if exclude is None else await matching(database, point, exclude)
    unwanted = _Unwanted(exclude, meant, decisions, keep_unseen, until)
    connection = await database.connect("worker")
    try:
        async with connection.transaction():
            row = await hold_point(connection, point)
            await check_settled(connection, point)
            _check_relearnable(row)
            made, policy = await _relearned(connection, row, unwanted)
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


async def _check_until(connection: Any, point: Point, made: Rebuilt, until: datetime) -> None:
    """Refuse a moment before all that was learned: an hour too early would unlearn it for good."""
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
    if row.spec.policy.algorithm == "sequence_trees":
        raise InputError(
            f"{row.skill}/{row.point} serves trees, which are trained from the log and not "
            "by updates; train them again with `steersman evidence grow`"
        )


async def _relearned(
    connection: Any, row: PointRow, unwanted: _Unwanted
) -> tuple[Rebuilt, ChoicePolicy]:
    """Make a snapshot that has learned nothing, and learn again what led to the one that serves."""
    point = row.tenant, row.skill, row.point
    segments = await lineage(connection, point, row.snapshot)
    policy = initial_policy(row.spec)
    snapshot = await add_snapshot(connection, row, pack_state(policy.state()))
    sources = [segment.id for segment in segments]
    left_out = [*unwanted.meant, *unwanted.named]
    await exclude_decisions(connection, point, sources, snapshot, left_out)
    unseen = await _unseen(connection, row, segments, snapshot, unwanted)
    relearning = Relearning(connection, row, snapshot, policy)
    for segment in segments:
        await relearning.follow(segment, until=unwanted.until)
    counts = relearning.seq, relearning.excluded, relearning.lost
    return Rebuilt(snapshot, *counts, unseen), policy


async def _unseen(
    connection: Any,
    row: PointRow,
    segments: Sequence[Segment],
    snapshot: str,
    unwanted: _Unwanted,
) -> int:
    """Return how many updates the condition could not judge, if they may be kept.

    Raises:
        InputError: they may not, or an id that was named is not of this point.
    """
    point = row.tenant, row.skill, row.point
    if unknown := await unknown_among(connection, point, unwanted.named):
        raise InputError(
            f"{len(unknown)} ids are not decisions of {row.skill}/{row.point}, first "
            f"{unknown[0]}; nothing was changed; correct or remove them"
        )
    if unwanted.condition is None:
        return 0
    unseen, newest = await unseen_by(connection, point, segments, snapshot, unwanted.until)
    if newest is None or unwanted.keep_unseen:
        return unseen
    at = datetime.fromtimestamp(id_time(newest), UTC)
    raise InputError(
        f"the condition cannot check {unseen} updates: retention dropped their decisions, "
        f"the newest of {at:%Y-%m-%d %H:%M} UTC, from the hot tables; nothing was changed. "
        "Find the matching ones with `steersman data query`, which reads the cold store, and list "
        "them with --exclude-decision (decisions=); keep the others with --keep-unseen "
        "(keep_unseen=True)"
    )


async def _serve(connection: Any, row: PointRow, made: Rebuilt, policy: ChoicePolicy) -> None:
    point = row.tenant, row.skill, row.point
    if made.kept:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, made.snapshot, made.kept, state)
    await switch_snapshot(connection, point, made.snapshot, made.kept)
