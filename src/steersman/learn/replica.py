"""A copy of a point's policy that follows its log: base snapshot, checkpoint, updates in order.

Every process that applies the same updates holds the same sums, to the bit, whether it followed
from the start or loaded a checkpoint in between. Updates without gaps are applied in order or not
at all. A replica may be pinned to a number: it goes no further.

What nobody decides from yet is made in a thread; a replica that serves learns between decisions,
a millisecond at a time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import StateError, SteersmanError
from steersman.features import FeatureMap
from steersman.learn.bases import StoredBases
from steersman.policies import load_policy, withdraw
from steersman.registry import unpack_state
from steersman.store import encode, newest_checkpoint, updates_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.learn.bases import Bases
    from steersman.policies import ChoicePolicy
    from steersman.store import PointRow, UpdateRow

_CHUNK = 250  # updates read at a time
_SLICE_S = 0.001  # of learning before decisions have their turn
_STORED = StoredBases()


@dataclass(slots=True, eq=False)
class Replica:
    """A decision point's policy after `seq` updates of `snapshot`.

    Attributes:
        row: the point as it is declared.
        policy: decides, and learns what `apply` is given.
        features: the map of the point's context.
        snapshot: the base of the state.
        seq: the number of the last update that was applied.
        stored: the number of updates in the newest stored state that it was made from.
        until: the last update that it may apply; None: it follows its log.
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
        """Return what the policy makes of a context, as it is decided from, stored and learned.

        Args:
            context: values by field name.

        Returns:
            ``x``, float64 that float32 holds exactly, or None; ``key``, or None.

        Raises:
            InputError: a context that is not as declared.
        """
        return encode(self.row.spec, self.features, context)

    def apply(self, updates: Iterable[UpdateRow]) -> None:
        """Apply updates in their order.

        Args:
            updates: the next ones of this snapshot.

        Raises:
            StateError: a number is missing or repeated, or the policy refuses one; what came
                before it was applied.
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
    """Learn, correct or withdraw what an update says; on any error nothing was changed.

    Args:
        policy: of the update's point.
        update: one row.

    Raises:
        InputError: the policy refuses it.
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
    """Return a replica of a point, as far as its log goes.

    Args:
        connection: within a transaction of the tenant.
        row: the point; the replica is of ``row.snapshot``.
        until: pin it to this update; None: follow the log.
        bases: gives the state before the first update.

    Returns:
        A replica after the last update that is committed, or after ``until``.

    Raises:
        StateError: a snapshot that is missing or damaged, was made with another feature map, or
            has fewer updates than ``until``.
        SteersmanError: ``bases`` refuses it.
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
    """Return a replica of a point made from its base and every update, whatever is stored besides.

    Args:
        connection: within a transaction of the tenant.
        row: the point.
        bases: gives the state before the first update.

    Returns:
        A replica after the last update that is committed.

    Raises:
        StateError: a snapshot that is missing or damaged, or a log with a gap.
    """
    replica = await _stored(connection, row, 0, FeatureMap(row.spec.context), bases)
    await _follow(connection, replica)
    return replica


async def catch_up(connection: Any, replica: Replica, *, bases: Bases = _STORED) -> int:
    """Apply the updates that were committed meanwhile.

    Where the point was given another snapshot (a rebuild), the replica continues from that one. A
    point that was declared anew is for `load`: this replica keeps serving what it was declared as.

    Args:
        connection: within a transaction of the tenant.
        replica: changed in place; no other task may do so meanwhile.
        bases: gives the state before the first update.

    Returns:
        How many updates were applied; after another snapshot, all of that one.

    Raises:
        StateError: a damaged snapshot, or a log with a gap.
    """
    served = await connection.fetchrow(
        "SELECT snapshot, spec_hash, feature_hash FROM decision_point "
        "WHERE tenant = $1 AND skill = $2 AND point = $3",
        *replica.point,
    )
    declared = replica.row.spec_hash, replica.row.feature_hash
    if served is None or (served["spec_hash"], served["feature_hash"]) != declared:
        return 0
    if served["snapshot"] == replica.snapshot:
        return await follow(connection, replica)
    row = replace(replica.row, snapshot=served["snapshot"])
    other = await _stored(connection, row, None, replica.features, bases)
    await _follow(connection, other)
    replica.row, replica.policy = row, other.policy
    replica.snapshot, replica.seq, replica.stored = other.snapshot, other.seq, other.stored
    return replica.seq


async def follow(connection: Any, replica: Replica) -> int:
    """Apply the updates of a replica's own snapshot, between the decisions that it makes.

    Args:
        connection: within a transaction of the tenant.
        replica: changed in place, never further than its ``until``; no other task may do so.

    Returns:
        How many updates were applied.

    Raises:
        StateError: a log with a gap, or an update that the policy refuses.
    """
    return await _follow(connection, replica, serving=True)


async def state_at(
    connection: Any, row: PointRow, snapshot: str, seq: int, *, bases: Bases = _STORED
) -> ChoicePolicy:
    """Return the policy as it was after an update, for any decision ever made.

    Args:
        connection: within a transaction of the tenant.
        row: the point.
        snapshot: as the decision says.
        seq: likewise, its ``update_seq``.
        bases: gives the state before the first update.

    Returns:
        A policy of its own.

    Raises:
        StateError: there is no such snapshot or update.
        SteersmanError: ``bases`` refuses it.
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
    """Return a replica of the newest stored state, made in a thread: it takes long at times."""
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
    """Apply updates in the thread that decides, so that no decision sees half of one."""
    ends = time.perf_counter() + _SLICE_S
    for update in rows:
        replica.apply((update,))
        if time.perf_counter() > ends:
            await asyncio.sleep(0)
            ends = time.perf_counter() + _SLICE_S
