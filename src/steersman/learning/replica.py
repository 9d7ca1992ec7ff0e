"""Policy replica: base snapshot, checkpoint and updates in log order.

Every process that applies the same updates holds the same sums, bit by bit, with or without a
checkpoint in between. Updates apply in order without gaps. A replica can be pinned to an update.

A replica that does not answer yet is loaded in a thread. A live replica applies updates between
decisions, a millisecond at a time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.db.points import live_version
from steersman.db.updates import base_state, newest_checkpoint, updates_after
from steersman.errors import StateError, SteersmanError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import encode
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import unpack_state
from steersman.policies.undo import withdraw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.db.points import PointRow
    from steersman.db.updates import UpdateRow
    from steersman.policies import ChoicePolicy


class Bases(Protocol):
    """Source of base states for replicas."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Raise an error if the base of ``row.snapshot`` must not be used.

        Called before a checkpoint replaces the base.

        Raises:
            SteersmanError: the base must not be used.
        """

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy of ``row.snapshot`` before its first update.

        Raises:
            SteersmanError: the base is missing or must not be loaded.
        """


class StoredBases:
    """Base states from the database, checked by hash only."""

    async def check(self, connection: Any, row: PointRow) -> None:
        """Accept every base."""

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy from the snapshot row.

        Raises:
            StateError: the snapshot is missing or its bytes do not match their hash.
        """
        point = row.tenant, row.skill, row.point
        state = await base_state(connection, point, row.snapshot)
        return await asyncio.to_thread(lambda: load_policy(unpack_state(state)))


_CHUNK = 250  # updates read at a time
_SLICE_S = 0.001  # of learning before decisions continue
_STORED = StoredBases()


@dataclass(slots=True, eq=False)
class Replica:
    """Policy of a decision point after `seq` updates of `snapshot`.

    Attributes:
        row: the decision point as declared.
        policy: decides, and learns from `apply`.
        features: feature map of the context.
        snapshot: base of the state.
        seq: number of the last applied update.
        stored: number of updates in the checkpoint that it was loaded from.
        until: last update to apply; None to follow the log.
    """

    row: PointRow
    policy: ChoicePolicy
    features: FeatureMap
    snapshot: str
    seq: int = 0
    stored: int = 0
    until: int | None = None

    @property
    def point(self) -> tuple[UUID, str, str]:
        """Tenant, skill and decision point."""
        return self.row.tenant, self.row.skill, self.row.point

    def encode(
        self, context: Mapping[str, object]
    ) -> tuple[NDArray[np.float64] | None, str | None]:
        """Return the encoded context for deciding, storing and learning.

        Returns:
            ``x``, float64 values that float32 holds exactly, or None; ``key``, or None.

        Raises:
            InputError: the context does not match the declaration.
        """
        return encode(self.row.spec, self.features, context)

    def apply(self, updates: Iterable[UpdateRow]) -> None:
        """Apply updates in order.

        Raises:
            StateError: a number is missing or repeated, or the policy rejects an update; earlier
                updates stay applied.
        """
        for update in updates:
            if update.seq != self.seq + 1:
                raise StateError(
                    f"{self.row.skill}/{self.row.point} {self.snapshot} is at update {self.seq} "
                    f"and got {update.seq}; expected {self.seq + 1}; load the replica again"
                )
            try:
                apply_update(self.policy, update)
            except SteersmanError as error:
                raise StateError(
                    f"update {update.seq} of {self.row.skill}/{self.row.point} {self.snapshot} "
                    f"does not fit its policy: {error}; run `steersman learn verify`"
                ) from error
            self.seq = update.seq


def apply_update(policy: ChoicePolicy, update: UpdateRow) -> None:
    """Learn, correct or withdraw an update; an error changes nothing.

    Raises:
        InputError: the policy rejects it.
    """
    x: Any = update.key if update.x is None else np.array(update.x, dtype=np.float64)
    action, change = update.action, update.reward_change
    weight, bucket = update.weight, update.bucket
    if update.weight_change > 0:
        policy.learn(x, action, change, weight=weight, bucket=bucket)
    elif update.weight_change < 0:
        withdraw(policy, x, action, -change, weight=weight, bucket=bucket)
    else:
        policy.revise(x, action, change, weight=weight, bucket=bucket)


async def load(
    connection: Any, row: PointRow, *, until: int | None = None, bases: Bases = _STORED
) -> Replica:
    """Return a replica of a point at the end of its log.

    Args:
        until: last update to apply; None to follow the log.

    Raises:
        StateError: the snapshot is missing, damaged or has another feature map, or there are fewer
            updates than ``until``.
        SteersmanError: ``bases`` rejects the base.
    """
    if problem := row.problem:
        raise StateError(problem)
    replica = await _stored(connection, row, until, FeatureMap(row.spec.context), bases)
    replica.until = until
    await _follow(connection, replica)
    if until is not None:
        _check_reached(replica, until)
    return replica


async def replay(connection: Any, row: PointRow, *, bases: Bases = _STORED) -> Replica:
    """Return a replica built from the base and every update, without checkpoints.

    Raises:
        StateError: the snapshot is missing or damaged, or the log has a gap.
    """
    replica = await _stored(connection, row, 0, FeatureMap(row.spec.context), bases)
    await _follow(connection, replica)
    return replica


async def catch_up(connection: Any, replica: Replica, *, bases: Bases = _STORED) -> int:
    """Apply newly committed updates.

    If the point got another snapshot (a rebuild), the replica switches to it. A changed declaration
    needs `load`; until then this replica keeps its old declaration.

    Raises:
        StateError: the snapshot is damaged or the log has a gap.
    """
    served = await live_version(connection, replica.point)
    declared = replica.row.spec_hash, replica.row.feature_hash
    if served is None or served[1:] != declared:
        return 0
    if served.snapshot == replica.snapshot:
        return await follow(connection, replica)
    row = replace(replica.row, snapshot=served.snapshot)
    other = await _stored(connection, row, None, replica.features, bases)
    await _follow(connection, other)
    replica.row, replica.policy = row, other.policy
    replica.snapshot, replica.seq, replica.stored = other.snapshot, other.seq, other.stored
    return replica.seq


async def follow(connection: Any, replica: Replica) -> int:
    """Apply the updates of a replica's snapshot between its decisions.

    Raises:
        StateError: the log has a gap, or the policy rejects an update.
    """
    return await _follow(connection, replica, serving=True)


async def state_at(
    connection: Any, row: PointRow, snapshot: str, seq: int, *, bases: Bases = _STORED
) -> ChoicePolicy:
    """Return the policy after a given update, for any past decision.

    Raises:
        StateError: the snapshot or update does not exist.
        SteersmanError: ``bases`` rejects the base.
    """
    row = replace(row, snapshot=snapshot)
    replica = await _stored(connection, row, seq, FeatureMap(row.spec.context), bases)
    replica.until = seq
    await _follow(connection, replica)
    _check_reached(replica, seq)
    return replica.policy


def _check_reached(replica: Replica, seq: int) -> None:
    if replica.seq != seq:
        raise StateError(
            f"{replica.row.skill}/{replica.row.point} {replica.snapshot} has {replica.seq} "
            f"updates; got {seq}; allowed are 0 to {replica.seq}"
        )


async def _stored(
    connection: Any, row: PointRow, until: int | None, features: FeatureMap, bases: Bases
) -> Replica:
    """Return a replica of the newest checkpoint, loaded in a thread because it is slow."""
    await bases.check(connection, row)
    point = row.tenant, row.skill, row.point
    found = await newest_checkpoint(connection, point, row.snapshot, until=until)
    if found is None:
        return Replica(row, await bases.base(connection, row), features, row.snapshot)
    seq, state = found
    policy = await asyncio.to_thread(lambda: load_policy(unpack_state(state)))
    return Replica(row, policy, features, row.snapshot, seq, seq)


async def _follow(connection: Any, replica: Replica, *, serving: bool = False) -> int:
    start = replica.seq
    while rows := await updates_after(
        connection,
        replica.point,
        replica.snapshot,
        replica.seq,
        until=replica.until,
        limit=_CHUNK,
    ):
        if serving:
            await _apply_between(replica, rows)
        else:
            await asyncio.to_thread(replica.apply, rows)
    return replica.seq - start


async def _apply_between(replica: Replica, rows: Iterable[UpdateRow]) -> None:
    """Apply updates in the deciding thread, so that no decision sees a partial update."""
    ends = time.perf_counter() + _SLICE_S
    for update in rows:
        replica.apply((update,))
        if time.perf_counter() > ends:
            await asyncio.sleep(0)
            ends = time.perf_counter() + _SLICE_S
