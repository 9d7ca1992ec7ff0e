"""Rebuilding: another snapshot from the same log, without what should never have been learned.

It serves at once, and its state has the bits of one that never saw what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.learn.conditions import matching
from steersman.learn.relearning import Relearning
from steersman.registry import pack_state
from steersman.store import (
    add_snapshot,
    check_settled,
    exclude_decisions,
    hold_point,
    initial_policy,
    lineage,
    record,
    switch_snapshot,
    write_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.policies import ChoicePolicy
    from steersman.store import Database, PointRow


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild made.

    Attributes:
        snapshot: the version that serves from now on.
        kept: updates that were learned again.
        excluded: updates that were left out, because of the condition or an erasure.
        lost: updates that the policy as it is declared now cannot learn: of actions that it lacks,
            or of decisions whose contexts are needed and not there any more.
    """

    snapshot: str
    kept: int
    excluded: int
    lost: int


async def rebuild(
    database: Database,
    row: PointRow,
    *,
    actor: str,
    until: datetime | None = None,
    exclude: str | None = None,
) -> Rebuilt:
    """Relearn a decision point from its log, and let the result serve.

    Erased decisions are left out always, and those that an earlier rebuild excluded stay out. While
    it runs the point goes on serving; its learner waits, and goes on from the new state.

    Args:
        database: migrated.
        row: the decision point.
        actor: who does it, for the audit.
        until: leave out what was learned later.
        exclude: leave out the decisions for which this holds: one SQL expression over the columns
            of table ``decision``, such as ``unit = 'bot-7'``.

    Returns:
        The new snapshot, and what became of the updates.

    Raises:
        InputError: a condition that is not one expression, or does not work; or a point whose
            policy is trees, which are grown and not relearned.
        StateError: there is no such point.
        RolloutError: a rollout of it is under way; roll it back first, it learned the same.
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/learn/test_rebuild.py`` shows it.
    """
    point = row.tenant, row.skill, row.point
    unwanted = [] if exclude is None else await matching(database, point, exclude)
    connection = await database.connect("worker")
    try:
        async with connection.transaction():
            row = await hold_point(connection, point)
            await check_settled(connection, point)
            _check_relearnable(row)
            made, policy = await _relearned(connection, row, unwanted, until)
            await _serve(connection, row, made, policy)
            detail = {
                "from": row.snapshot,
                "to": made.snapshot,
                "kept": made.kept,
                "lost": made.lost,
                "excluded": made.excluded,
                "condition": exclude,
                "until": until,
            }
            name = f"{row.skill}/{row.point}"
            await record(connection, row.tenant, actor, "learn.rebuild", name, detail)
    finally:
        await connection.close()
    return made


def _check_relearnable(row: PointRow) -> None:
    if row.spec.policy.algorithm == "sequence_trees":
        raise InputError(
            f"{row.skill}/{row.point} serves trees, which are grown from the log and not relearned "
            "update by update; grow them anew with `steersman evidence grow`"
        )


async def _relearned(
    connection: Any, row: PointRow, unwanted: Sequence[UUID], until: datetime | None
) -> tuple[Rebuilt, ChoicePolicy]:
    """Make a snapshot that has learned nothing, and learn again what led to the one that serves."""
    point = row.tenant, row.skill, row.point
    segments = await lineage(connection, point, row.snapshot)
    policy = initial_policy(row.spec)
    snapshot = await add_snapshot(connection, row, pack_state(policy.state()))
    sources = [segment.id for segment in segments]
    await exclude_decisions(connection, point, sources, snapshot, unwanted)
    relearning = Relearning(connection, row, snapshot, policy)
    for segment in segments:
        await relearning.follow(segment, until=until)
    return Rebuilt(snapshot, relearning.seq, relearning.excluded, relearning.lost), policy


async def _serve(connection: Any, row: PointRow, made: Rebuilt, policy: ChoicePolicy) -> None:
    point = row.tenant, row.skill, row.point
    if made.kept:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, made.snapshot, made.kept, state)
    await switch_snapshot(connection, point, made.snapshot, made.kept)
