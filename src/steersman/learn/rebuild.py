"""Relearning: another snapshot from the same log, without what should never have been learned.

Updates are copied in their order under new numbers and applied to a fresh state, so the result has
the bits of a state that never saw what was left out. Where the declaration has changed since, what
the policy sees is encoded anew from the contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.learn.conditions import matching
from steersman.learn.replica import apply_update
from steersman.learn.seeing import sees
from steersman.registry import pack_state
from steersman.store import (
    add_snapshot,
    contexts_of,
    copy_updates,
    encode,
    exclude_decisions,
    hold_point,
    initial_policy,
    lineage,
    logged_after,
    record,
    spec_of,
    switch_snapshot,
    write_checkpoint,
)
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.policies import ChoicePolicy
    from steersman.spec import DecisionPoint
    from steersman.store import Database, Logged, PointRow, Segment, UpdateRow


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
        InputError: a condition that is not one expression, or does not work.
        StateError: there is no such point.
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/learn/test_rebuild.py`` shows it.
    """
    point = row.tenant, row.skill, row.point
    unwanted = [] if exclude is None else await matching(database, point, exclude)
    connection = await database.connect("worker")
    try:
        async with connection.transaction():
            row = await hold_point(connection, point)
            segments = await lineage(connection, point, row.snapshot)
            policy = initial_policy(row.spec)
            snapshot = await add_snapshot(connection, row, pack_state(policy.state()))
            sources = [segment.id for segment in segments]
            await exclude_decisions(connection, point, sources, snapshot, unwanted)
            relearning = _Relearning(connection, row, snapshot, policy)
            for segment in segments:
                await relearning.follow(segment, until)
            made = Rebuilt(snapshot, relearning.seq, relearning.excluded, relearning.lost)
            await _serve(connection, row, made, policy)
            detail = {
                "from": row.snapshot,
                "to": snapshot,
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


async def _serve(connection: Any, row: PointRow, made: Rebuilt, policy: ChoicePolicy) -> None:
    point = row.tenant, row.skill, row.point
    if made.kept:
        state = pack_state(policy.state())
        await write_checkpoint(connection, point, made.snapshot, made.kept, state)
    await switch_snapshot(connection, point, made.snapshot, made.kept)


class _Relearning:
    """Applies the logs of a lineage to a fresh policy, and copies them as its log."""

    def __init__(self, connection: Any, row: PointRow, snapshot: str, policy: ChoicePolicy) -> None:
        self.seq = 0
        self.excluded = 0
        self.lost = 0
        self._connection = connection
        self._row = row
        self._snapshot = snapshot
        self._policy = policy
        self._features = FeatureMap(row.spec.context)
        self._held: dict[UUID, float] = {}

    async def follow(self, segment: Segment, until: datetime | None) -> None:
        """Learn the log of one snapshot after those before it."""
        point = self._row.tenant, self._row.skill, self._row.point
        spec = await spec_of(self._connection, segment.spec_hash)
        place = 0
        before = dict(self._held)
        while logged := await logged_after(
            self._connection, point, segment.id, self._snapshot, place, until
        ):
            place = logged[-1].update.seq
            wanted = [one for one in logged if not one.barred]
            self.excluded += len(logged) - len(wanted)
            seen = await self._translated(segment, spec, wanted)
            rows = []
            for one, update in zip(wanted, seen, strict=True):
                if update is not None and self._learn(step := self._rebased(update, before)):
                    rows.append((step._replace(seq=self.seq), one.at))
            await copy_updates(self._connection, point, self._snapshot, rows)

    def _rebased(self, update: UpdateRow, before: dict[UUID, float]) -> UpdateRow:
        """Make a first reward a correction where an older snapshot had learned the decision."""
        held = before.pop(update.decision, None)
        if held is not None and update.weight_change > 0:
            change = update.reward_change - held
            update = update._replace(reward_change=change, weight_change=0.0)
        return update

    def _learn(self, update: UpdateRow) -> bool:
        held = self._held.get(update.decision)
        if held is None and update.weight_change <= 0:  # what it corrects was lost
            self.lost += 1
            return False
        try:
            apply_update(self._policy, update)
        except InputError:
            self.lost += 1
            return False
        self.seq += 1
        if update.weight_change < 0:
            del self._held[update.decision]
        else:
            self._held[update.decision] = (held or 0.0) + update.reward_change
        return True

    async def _translated(
        self, segment: Segment, spec: DecisionPoint, logged: Sequence[Logged]
    ) -> list[UpdateRow | None]:
        """Return updates as the policy of today would have learned them; None where it cannot."""
        updates = [one.update for one in logged]
        bucket_s = self._row.spec.learning.bucket_s
        if spec.learning.bucket_s != bucket_s:
            updates = [
                update._replace(bucket=int(id_time(update.decision) // bucket_s))
                for update in updates
            ]
        if sees(spec, segment.feature_hash) == sees(self._row.spec, self._row.feature_hash):
            return list(updates)
        ids = [update.decision for update in updates]
        contexts = await contexts_of(self._connection, self._row.tenant, ids)
        return [self._encoded(update, contexts.get(update.decision)) for update in updates]

    def _encoded(self, update: UpdateRow, context: Any) -> UpdateRow | None:
        joint = self._row.spec.policy.algorithm.startswith("joint_")
        if context is None or joint:  # other features of actions cannot be known afterwards
            self.lost += 1
            return None
        try:
            x, key = encode(self._row.spec, self._features, context)
        except InputError:
            self.lost += 1
            return None
        return update._replace(x=None if x is None else x.tolist(), key=key)
