"""Learner: waits for work, claims decision points and learns them in batches.

Any number of learners can run; one at a time learns a point. The queue is in the database, so a
killed learner loses nothing: uncommitted work stays in the queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from steersman.db.points import find_declared
from steersman.db.rewards import append_rewards, decisions_to_credit
from steersman.db.updates import append_updates, write_checkpoint
from steersman.db.work_queue import due_work, fence, holder_of, queue_work, take_work
from steersman.errors import FencedError, RegistryError, SpecError, StateError, StoreError
from steersman.learning.claims import Claims
from steersman.learning.replica import StoredBases, load
from steersman.learning.reward_inputs import read_evidence
from steersman.learning.reward_updates import Draft, draft, failure
from steersman.platform.postgres.database import (
    AWAY,
    as_tenant,
    end_unfinished,
    plan_by_index,
    work_under_lease,
)
from steersman.points.state_bytes import pack_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from steersman.db.work_queue import Fence, Point
    from steersman.learning.claims import Claim
    from steersman.learning.replica import Bases, Replica
    from steersman.platform.postgres.database import Database

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


def tell(span: trace.Span, name: str, traceparents: Sequence[str]) -> None:
    """Add a span ``learned`` to the traces of the learned decisions and events.

    The span lasts as long as the batch and links to it, so one trace shows a decision from request
    to learning. Traces that were not sampled get no span.

    `span`: span of the batch, which links to the first 32 traces.
    `traceparents`: distinct W3C trace contexts; at most 512 are used.

    >>> tell(trace.INVALID_SPAN, "a/b", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
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
            start_time=getattr(span, "start_time", None),  # the API does not expose it
        ).end()


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


_log = logging.getLogger(__name__)
_AWAY = (*AWAY, StoreError)
_BAD_DATA = ("22", "23")  # classes of SQL states: data exceptions, violated constraints
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_SCAN = 2000
_IDLE_S = 60.0
_BROKEN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Settings of a learner.

    Attributes:
        batch: maximum work rows per transaction, plus further work rows of the same decisions if
            outcomes credit whole episodes.
        checkpoint_every: updates between two checkpoints of a point.
        lease_s: seconds without a heartbeat after which another learner takes over.
        poll_s: maximum wait for work, in case a notification is lost.
        linger_s: pause between batches in seconds; more gives fewer, larger transactions.
        holder: display name; default: host and process id.
    """

    batch: int = 500
    checkpoint_every: int = 1000
    lease_s: float = 10.0
    poll_s: float = 1.0
    linger_s: float = 0.01
    holder: str = ""


async def run_learner(
    database: Database,
    *,
    stop: asyncio.Event,
    clock: Callable[[], float] = time.time,
    watch: Callable[[BatchDone], None] = lambda _done: None,
    settings: LearnerSettings | None = None,
    bases: Bases | None = None,
) -> None:
    """Learn until stopped; then store the states and return.

    If the database is unavailable, the learner retries and claims all points again.

    Args:
        clock: Unix time in seconds, for due work and reward windows.
        bases: source of base states; None uses the snapshot rows.
    """
    given = settings or LearnerSettings(), bases or StoredBases()
    learner = _Learner(database, stop, clock, watch, *given)
    failures = 0
    while not stop.is_set():
        try:
            await learner.serve()
        except* _AWAY as group:
            failures = 0 if learner.did_work else failures + 1
            delay = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
            _log.warning(
                "the database is unavailable, retrying in %g s: %r", delay, group.exceptions
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await stop.wait()


class _Learner:
    def __init__(
        self,
        database: Database,
        stop: asyncio.Event,
        clock: Callable[[], float],
        watch: Callable[[BatchDone], None],
        settings: LearnerSettings,
        bases: Bases,
    ) -> None:
        self.did_work = False
        self._database = database
        self._stop = stop
        self._clock = clock
        self._watch = watch
        self._settings = settings
        self._bases = bases
        self._broken: dict[Point, str] = {}
        self._wake = asyncio.Event()

    async def serve(self) -> None:
        """Work with one set of connections until stopped or disconnected."""
        self.did_work = False
        async with AsyncExitStack() as stack:
            work, locks, wakes = [await self._connect(stack) for _ in range(3)]
            await wakes.add_listener("steersman_work", lambda *_: self._wake.set())
            for connection in (work, locks, wakes):
                connection.add_termination_listener(lambda _: self._wake.set())
            holder = self._settings.holder or f"{socket.gethostname()}/{os.getpid()}"
            claims = Claims(locks, holder, self._settings.lease_s)
            async with asyncio.TaskGroup() as group:
                others = [
                    group.create_task(self._keep(claims, wakes)),
                    group.create_task(self._watcher()),
                ]
                await self._work(work, claims, (work, locks, wakes))
                for task in others:
                    task.cancel()

    async def _connect(self, stack: AsyncExitStack) -> Any:
        connection = await self._database.connect("worker", command_timeout=60)
        stack.push_async_callback(_close, connection)
        await work_under_lease(connection, "learner", self._settings.lease_s)
        await plan_by_index(connection)
        return connection

    async def _keep(self, claims: Claims, connection: Any) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 4)
            await end_unfinished(connection, self._settings.lease_s)
            with suppress(asyncpg.LockNotAvailableError):  # retried next time
                await claims.keep()

    async def _watcher(self) -> None:
        await self._stop.wait()
        self._wake.set()

    async def _work(self, connection: Any, claims: Claims, all_of_them: Sequence[Any]) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            if any(each.is_closed() for each in all_of_them):
                raise StoreError("lost a connection to PostgreSQL")
            taken = await self._round(connection, claims)
            await self._let_idle_go(connection, claims)
            if taken == 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.poll_s):
                        await self._wake.wait()
            if taken < self._settings.batch:
                await asyncio.sleep(self._settings.linger_s)
        for claim in list(claims.held.values()):
            await self._last_checkpoint(connection, claim)

    async def _round(self, connection: Any, claims: Claims) -> int:
        """Process due work; return its amount."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        due = await due_work(connection, now, without=claims.elsewhere(), limit=_SCAN)
        taken = 0
        for point, ids in due.items():
            for place in range(0, len(ids), self._settings.batch):
                claim = await claims.take(point)
                if claim is None or self._stop.is_set():
                    break
                chunk = ids[place : place + self._settings.batch]
                done = await self._learn(connection, claims, claim, chunk)
                if done == 0:
                    break
                taken += done
        return taken

    async def _learn(
        self, connection: Any, claims: Claims, claim: Claim, ids: Sequence[int]
    ) -> int:
        """Process one batch, or log why not; return the number of work rows."""
        try:
            taken = await self._batch(connection, claim, ids)
        except FencedError as error:
            _log.warning("%s", error)
            async with as_tenant(connection, claim.point[0]):
                holder = await holder_of(connection, claim.point)
            await claims.give_up(claim.point, fenced=bool(holder))
        except (StateError, RegistryError) as error:
            self._tell_broken(claim.point, error)
            await claims.give_up(claim.point)
            claims.avoid(claim.point, _BROKEN_S)
        except asyncpg.LockNotAvailableError:
            _log.info("%s/%s is locked by another process", *claim.point[1:])
            claims.avoid(claim.point, self._settings.lease_s / 20)
        else:
            self._broken.pop(claim.point, None)
            return taken
        return 0

    def _tell_broken(self, point: Point, error: Exception) -> None:
        """Log a failing point once; it is retried, and its lag stays visible."""
        if self._broken.get(point) != str(error):
            _log.error(
                "learning of %s/%s failed, retrying every %g s",
                *point[1:],
                _BROKEN_S,
                exc_info=error,
            )
        self._broken[point] = str(error)

    async def _batch(self, connection: Any, claim: Claim, ids: Sequence[int]) -> int:
        """Process one batch; find a row that breaks it by bisection and set it aside."""
        try:
            with batch_span("/".join(claim.point[1:])) as span:
                done = await learn_batch(
                    connection, claim, ids, now=self._clock(), bases=self._bases
                )
                tell(span, "/".join(claim.point[1:]), done.traceparents)
        except Exception as error:
            if not _is_poison(error):
                raise
            if len(ids) > 1:
                half = len(ids) // 2
                parts = ids[:half], ids[half:]
                return sum([await self._batch(connection, claim, part) for part in parts])
            _log.exception("cannot process work row %d of %s/%s", ids[0], *claim.point[1:])
            done = await fail_work(connection, claim, ids[0])
        self.did_work = True
        self._watch(done)
        await self._checkpoint(connection, claim, after=self._settings.checkpoint_every)
        return done.taken

    async def _checkpoint(self, connection: Any, claim: Claim, *, after: int) -> None:
        replica = claim.replica
        if replica is None or replica.seq < claim.checkpointed + after:
            return
        state = pack_state(replica.policy.state())
        async with as_tenant(connection, claim.point[0]):
            # A former holder's state may contain data that was erased since.
            await fence(connection, claim.point, claim.epoch)
            await write_checkpoint(connection, claim.point, replica.snapshot, replica.seq, state)
        claim.checkpointed = replica.seq

    async def _last_checkpoint(self, connection: Any, claim: Claim) -> None:
        """Store the state of a released point unless another learner holds it."""
        try:
            await self._checkpoint(connection, claim, after=1)
        except (FencedError, asyncpg.LockNotAvailableError) as error:
            _log.info("cannot store the last state of %s/%s: %s", *claim.point[1:], error)

    async def _let_idle_go(self, connection: Any, claims: Claims) -> None:
        now = asyncio.get_running_loop().time()
        idle = [claim for claim in claims.held.values() if claim.used < now - _IDLE_S]
        for claim in idle:  # other claims may be lost while one state is stored
            await self._last_checkpoint(connection, claim)
            await claims.give_up(claim.point)


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2)
    except (*_AWAY, asyncio.CancelledError):
        connection.terminate()
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop


def _is_poison(error: Exception) -> bool:
    """Return whether a retry of the same rows would fail again."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_BAD_DATA)
    return not isinstance(error, (*_AWAY, StateError, RegistryError))
