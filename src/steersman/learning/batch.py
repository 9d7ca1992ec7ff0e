"""Learner batch: one transaction that processes work rows, rewards and updates.

The transaction commits everything or nothing. The replica applies updates while the transaction is
open, so a rejected update is never written. If the transaction fails, the replica is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.points import find_declared
from steersman.db.rewards import append_rewards, decisions_to_credit
from steersman.db.updates import append_updates
from steersman.db.work_queue import fence, queue_work, take_work
from steersman.errors import SpecError, StateError
from steersman.learning.bases import StoredBases
from steersman.learning.replica import load
from steersman.learning.reward_inputs import read_evidence
from steersman.learning.reward_updates import Draft, draft, failure
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.work_queue import Fence, Point
    from steersman.learning.bases import Bases
    from steersman.learning.claims import Claim
    from steersman.learning.replica import Replica

_STORED = StoredBases()


@dataclass(slots=True)
class BatchDone:
    """Result of one learner batch.

    Attributes:
        point: tenant, skill and decision point.
        taken: number of processed work rows.
        rewards: number of reward revisions written.
        updates: number of updates written.
        refused: rewards that the policy rejected, for example for an unknown action.
        failed: decisions whose reward cannot be computed.
        oldest: queue time of the oldest work row; None if there was no work.
        traceparents: distinct W3C trace contexts of the events and decisions.
    """

    point: Point
    taken: int = 0
    rewards: int = 0
    updates: int = 0
    refused: int = 0
    failed: int = 0
    oldest: datetime | None = None
    traceparents: list[str] = field(default_factory=list)


async def learn_batch(
    connection: Any, claim: Claim, ids: Sequence[int], *, now: float, bases: Bases = _STORED
) -> BatchDone:
    """Process one batch of work of a decision point in one transaction.

    `now`: Unix time in seconds; reward windows that end later are open.

    Raises:
        FencedError: another learner holds the point; nothing was written.
        StateError: the declaration or state cannot be read; nothing was written.
        RegistryError: the base does not verify; nothing was written.
    """
    done = BatchDone(claim.point)
    try:
        async with as_tenant(connection, claim.point[0]):
            held = await fence(connection, claim.point, claim.epoch)
            work = await take_work(connection, ids, now=datetime.fromtimestamp(now, UTC))
            if not work:
                return done
            replica = await _current(connection, claim, held, bases)
            causes = {row.decision: row.traceparent for row in work}
            evidence = await read_evidence(connection, replica.row, held.snapshot, list(causes))
            drafted = draft(replica, evidence, causes, now=now)
            await _write(connection, claim, held, drafted)
    except BaseException:  # any error is raised again
        claim.replica = None  # it may be ahead of the commit
        raise
    done.taken, done.oldest = len(work), min(row.at for row in work)
    done.rewards, done.updates = len(drafted.rewards), len(drafted.updates)
    done.refused, done.failed = drafted.refused, drafted.failed
    asked = [decided.traceparent for decided in evidence.decisions.values()]
    told = [*(row.traceparent for row in work), *asked]
    done.traceparents = list(dict.fromkeys(it for it in told if it is not None))
    return done


async def fail_work(connection: Any, claim: Claim, identifier: int) -> BatchDone:
    """Remove a work row that cannot be processed and record a failed reward.

    Raises:
        FencedError: another learner holds the point; nothing was written.
    """
    done = BatchDone(claim.point, failed=1)
    async with as_tenant(connection, claim.point[0]):
        held = await fence(connection, claim.point, claim.epoch)
        work = await take_work(connection, [identifier])
        ids = [row.decision for row in work]
        known = await decisions_to_credit(connection, claim.point, held.snapshot, ids)
        rows = [failure(decided) for decided in known.values()]
        await append_rewards(connection, claim.point[0], rows)
    done.taken, done.rewards = len(work), len(rows)
    return done


async def _current(connection: Any, claim: Claim, held: Fence, bases: Bases) -> Replica:
    """Return the claim's replica, reloaded if it is behind the log."""
    known = claim.replica
    if known is not None:
        place = known.snapshot, known.seq, known.row.spec_hash
        if place == (held.snapshot, held.seq, held.spec_hash):
            return known
    _, skill, point = claim.point
    try:
        row = await find_declared(connection, claim.point)
        if row is None:
            raise StateError(f"decision point not found: {skill}/{point}; declare it first")
        claim.replica = replica = await load(connection, row, bases=bases)
    except SpecError as error:
        raise StateError(str(error)) from error  # its outcomes stay queued: they are not invalid
    claim.checkpointed = replica.stored
    return replica


async def _write(connection: Any, claim: Claim, held: Fence, drafted: Draft) -> None:
    if drafted.rewards:
        await append_rewards(connection, claim.point[0], drafted.rewards)
    if drafted.later:
        await queue_work(connection, claim.point, drafted.later)
    if drafted.updates:
        await append_updates(connection, claim.point, claim.epoch, held.snapshot, drafted.updates)
