"""Relearning: copy the log of one snapshot to another, for another policy.

Updates keep their order, get new numbers and are applied to a new policy. The result equals, bit by
bit, a state that never saw excluded decisions. If the declarations differ, contexts are encoded
again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import contexts_of, copy_updates, logged_after
from steersman.db.rewards import spec_of
from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.learning.replica import apply_update
from steersman.learning.reward_updates import sees
from steersman.points.feature_encoding import encode
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.derived_snapshots import LineageUpdate, Segment
    from steersman.db.points import PointRow
    from steersman.db.rewards import CreditedUpdate
    from steersman.db.updates import UpdateRow
    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint


class Relearner:
    """Copies the logs of a lineage to a new snapshot and applies them to its policy.

    Args:
        connection: of role worker, inside a transaction of the tenant that locks the point.
        row: the declaration of the policy.
        snapshot: receives the updates, numbered from 1.
        policy: base policy that learns them.
        held: rewards that the base already learned, by decision.

    Attributes:
        seq: last assigned number.
        excluded: updates left out by an exclusion or an erasure.
        lost: updates that the policy cannot learn.
    """

    def __init__(
        self,
        connection: Any,
        row: PointRow,
        snapshot: str,
        policy: ChoicePolicy,
        *,
        held: Mapping[UUID, CreditedUpdate] | None = None,
    ) -> None:
        self.seq = 0
        self.excluded = 0
        self.lost = 0
        self._connection = connection
        self._row = row
        self._snapshot = snapshot
        self._policy = policy
        self._features = FeatureMap(row.spec.context)
        self._known = {one.decision: one for one in (held or {}).values() if one.value is not None}
        self._held: dict[UUID, float] = {key: one.value or 0.0 for key, one in self._known.items()}

    async def follow(
        self, segment: Segment, *, after: int = 0, until: datetime | None = None
    ) -> None:
        """Learn the log of one snapshot after the previous ones."""
        point = self._row.tenant, self._row.skill, self._row.point
        spec = await spec_of(self._connection, segment.spec_hash)
        before = dict(self._held)
        while logged := await logged_after(
            self._connection, point, segment, self._snapshot, after, until
        ):
            after = logged[-1].update.seq
            wanted = [one for one in logged if self._belongs(one)]
            self.excluded += len(logged) - len(wanted)
            contexts = await self._contexts(segment, spec, wanted)
            # In a thread, because the process may also answer requests.
            rows = await asyncio.to_thread(self._relearned, wanted, spec, contexts, before)
            await copy_updates(self._connection, point, self._snapshot, rows)

    def _relearned(
        self,
        wanted: Sequence[LineageUpdate],
        spec: DecisionPoint,
        contexts: Mapping[UUID, Any] | None,
        before: dict[UUID, float],
    ) -> list[tuple[UpdateRow, datetime]]:
        """Learn updates; return the rows of those that succeeded."""
        rows = []
        for one in wanted:
            update = self._translated(one.update, spec, contexts)
            if update is not None and self._learn(step := self._rebased(update, before)):
                rows.append((step._replace(seq=self.seq), one.at))
        return rows

    def _rebased(self, update: UpdateRow, before: dict[UUID, float]) -> UpdateRow:
        """Turn a first reward into a correction if an older snapshot learned the decision."""
        held = before.pop(update.decision, None)
        if held is not None and update.weight_change > 0:
            change = update.reward_change - held
            update = update._replace(reward_change=change, weight_change=0.0)
        elif held is not None and update.weight_change < 0:
            # Rounding may put a sum of corrections slightly out of range.
            update = update._replace(reward_change=-min(1.0, max(0.0, held)))
        return update

    def _belongs(self, logged: LineageUpdate) -> bool:
        """Return whether to learn an update; excluded decisions allow only withdrawals."""
        update = logged.update
        return not logged.barred or (update.weight_change < 0 and update.decision in self._held)

    def _learn(self, update: UpdateRow) -> bool:
        held = self._held.get(update.decision)
        if held is None and update.weight_change <= 0:  # the corrected update was lost
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

    async def _contexts(
        self, segment: Segment, spec: DecisionPoint, logged: Sequence[LineageUpdate]
    ) -> dict[UUID, Any] | None:
        """Return contexts to encode again; None if the stored features fit."""
        if sees(spec, segment.feature_hash) == sees(self._row.spec, self._row.feature_hash):
            return None
        ids = [one.update.decision for one in logged]
        return await contexts_of(self._connection, self._row.tenant, ids)

    def _translated(
        self, update: UpdateRow, spec: DecisionPoint, contexts: Mapping[UUID, Any] | None
    ) -> UpdateRow | None:
        """Return an update with the policy's own features; None if impossible."""
        bucket_s = self._row.spec.learning.bucket_s
        if spec.learning.bucket_s != bucket_s:
            update = update._replace(bucket=int(id_time(update.decision) // bucket_s))
        return update if contexts is None else self._encoded(update, contexts.get(update.decision))

    def _encoded(self, update: UpdateRow, context: Any) -> UpdateRow | None:
        known = self._known.get(update.decision)
        if (
            known is not None and update.weight_change <= 0
        ):  # it uses the features of the first update
            return update._replace(x=known.x, key=known.key, bucket=known.bucket)
        joint = self._row.spec.policy.reads == "action_features"
        if context is None or joint:  # missing action features cannot be recovered
            self.lost += 1
            return None
        try:
            x, key = encode(self._row.spec, self._features, context)
        except InputError:
            self.lost += 1
            return None
        return update._replace(x=None if x is None else x.tolist(), key=key)
