"""One batch of learning: rewards, updates and the state after them, in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from steersman.db.points import find_declared
from steersman.db.rewards import append_rewards, decisions_to_credit
from steersman.db.updates import append_updates
from steersman.db.work_queue import (
    Point,
    claim,
    fence,
    holder_of,
    keep_claims,
    queue_work,
    take_work,
)
from steersman.errors import SpecError, StateError
from steersman.learning.replica import StoredBases, load
from steersman.learning.reward_inputs import read_evidence
from steersman.learning.reward_updates import Draft, draft, failure
from steersman.platform.postgres.database import (
    as_tenant,
)
from steersman.platform.postgres.lease import Lease, Leases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from steersman.db.work_queue import Fence
    from steersman.learning.replica import Bases, Replica

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Claim(Lease):
    """Decision point that this process learns.

    Attributes:
        point: tenant, skill and decision point.
        epoch: fencing epoch of its writes.
        replica: state after the last batch; None if not loaded.
        checkpointed: last update in a stored checkpoint.
        used: time of the last batch, on the event loop's clock.
    """

    point: Point
    epoch: int
    replica: Replica | None = None
    checkpointed: int = 0
    used: float = 0.0


class Claims(Leases[Point, Claim]):
    """Decision points that one learner holds; see `Leases`."""

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        super().__init__("learn", connection, holder, lease_s)

    async def take(self, key: Point) -> Claim | None:
        """Return the claim on a point, as `Leases.take`."""
        found = await super().take(key)
        if found is not None:
            found.used = asyncio.get_running_loop().time()
        return found

    async def fenced(self, point: Point, holder: str | None) -> None:
        """Drop a point after another learner or a new snapshot has ended its epoch.

        Args:
            holder: its current learner; None or empty: none yet.
        """
        if holder:
            _log.warning("another learner holds the lock on %s/%s", *point[1:])
        await self.give_up(point, pause_s=self._lease_s / 2 if holder else 0.0)

    async def keep(self) -> None:
        """Send a heartbeat and drop points that another learner has taken."""
        tenants: dict[UUID, list[Claim]] = defaultdict(list)
        for held in self.held.values():
            tenants[held.point[0]].append(held)
        for tenant, claims in tenants.items():
            rows = [(*held.point[1:], held.epoch) for held in claims]
            async with self._turn, as_tenant(self._connection, tenant):
                lost = await keep_claims(self._connection, tenant, rows)
                holders = {
                    (tenant, *name): await holder_of(self._connection, (tenant, *name))
                    for name in lost
                }
            for held in claims:
                if held.point in holders and self.has(held.point, held):
                    await self.fenced(held.point, holders[held.point])
        await super().keep()

    async def _claim(self, key: Point, idle_s: float | None) -> Claim | None:
        epoch = await claim(self._connection, key, self._holder, idle_s=idle_s)
        return None if epoch is None else Claim(key, epoch)


_MOST_LINKS = 32
_MOST_TOLD = 512
_POINT = "steersman.point"
_tracer = trace.get_tracer("steersman.learning")


@contextmanager
def batch_span(name: str) -> Iterator[trace.Span]:
    """Record a batch as a span; without a provider this costs about a microsecond.

    >>> with batch_span("route/model") as span:
    ...     span.is_recording()
    False
    """
    with _tracer.start_as_current_span("learn", attributes={_POINT: name}) as span:
        yield span


def trace_learned(span: trace.Span, name: str, traceparents: Sequence[str]) -> None:
    """Add a span ``learned`` to the traces of the learned decisions and events.

    The span lasts as long as the batch and links to it, so one trace shows a decision from request
    to learning. Traces that were not sampled get no span.

    `span`: span of the batch, which links to the first 32 traces.
    `traceparents`: distinct W3C trace contexts; at most 512 are used.

    >>> trace_learned(
    ...     trace.INVALID_SPAN, "a/b", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]
    ... )
    """
    if not span.is_recording():
        return
    propagator = TraceContextTextMapPropagator()
    batch = trace.Link(span.get_span_context())
    for traceparent in traceparents[:_MOST_TOLD]:
        context = propagator.extract({"traceparent": traceparent})
        cause = trace.get_current_span(context).get_span_context()
        if not cause.is_valid:
            continue
        if len(getattr(span, "links", ())) < _MOST_LINKS:
            span.add_link(cause)
        _tracer.start_span(
            "learned",
            context,
            attributes={_POINT: name},
            links=[batch],
            start_time=getattr(span, "start_time", None),  # not part of the OpenTelemetry API
        ).end()


_STORED = StoredBases()


@dataclass(slots=True)
class BatchResult:
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
) -> BatchResult:
    """Process one batch of work of a decision point in one transaction.

    `now`: Unix time in seconds; reward windows that end later are open.

    Raises:
        FencedError: another learner holds the point; nothing was written.
        StateError: the declaration or state cannot be read; nothing was written.
        RegistryError: the base does not verify; nothing was written.
    """
    done = BatchResult(claim.point)
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
    except BaseException:
        claim.replica = None  # its state may contain uncommitted updates
        raise
    done.taken, done.oldest = len(work), min(row.at for row in work)
    done.rewards, done.updates = len(drafted.rewards), len(drafted.updates)
    done.refused, done.failed = drafted.refused, drafted.failed
    decided = [decision.traceparent for decision in evidence.decisions.values()]
    traceparents = [*(row.traceparent for row in work), *decided]
    done.traceparents = list(dict.fromkeys(it for it in traceparents if it is not None))
    return done


async def fail_work(connection: Any, claim: Claim, identifier: int) -> BatchResult:
    """Remove a work row that cannot be processed and record a failed reward.

    Raises:
        FencedError: another learner holds the point; nothing was written.
    """
    done = BatchResult(claim.point, failed=1)
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
    """Return the claim's replica; reload it if it is behind the log."""
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
        raise StateError(str(error)) from error  # valid outcomes stay in the queue
    claim.checkpointed = replica.stored
    return replica


async def _write(connection: Any, claim: Claim, held: Fence, drafted: Draft) -> None:
    if drafted.rewards:
        await append_rewards(connection, claim.point[0], drafted.rewards)
    if drafted.later:
        await queue_work(connection, claim.point, drafted.later)
    if drafted.updates:
        await append_updates(connection, claim.point, claim.epoch, held.snapshot, drafted.updates)
