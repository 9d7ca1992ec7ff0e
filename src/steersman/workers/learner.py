"""Learner process: waits for work, claims decision points and learns them in batches.

Any number of learners can run; one at a time learns a point. The queue is in the database, so a
killed learner loses nothing: uncommitted work stays in the queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.updates import write_checkpoint
from steersman.db.work_queue import due_work, fence, holder_of
from steersman.errors import FencedError, RegistryError, StateError
from steersman.learning.learner import Claims, batch_span, fail_work, learn_batch, trace_learned
from steersman.learning.replica import StoredBases
from steersman.platform.postgres.database import as_tenant, plan_by_index
from steersman.points.state_bytes import pack_state
from steersman.workers.runner import UNAVAILABLE, Pace, Session, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.db.work_queue import Point
    from steersman.learning.learner import BatchResult, Claim
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database

_log = logging.getLogger(__name__)
_BAD_DATA = ("22", "23")  # SQLSTATE classes: data exceptions, constraint violations
_SCAN = 2000
_IDLE_S = 60.0
_BROKEN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Settings of a learner.

    Attributes:
        batch: maximum work rows per transaction; with rewards per episode, plus further rows of the
            same decisions.
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
    watch: Callable[[BatchResult], None] = lambda _done: None,
    settings: LearnerSettings | None = None,
    bases: Bases | None = None,
) -> None:
    """Learn until stopped; then store the states and return.

    If the database is unavailable, the learner retries and claims all points again.

    Args:
        clock: Unix time in seconds, for due work and reward windows.
        bases: source of base states; None uses the snapshot rows.
    """
    chosen = settings or LearnerSettings()
    learner = _Learner(stop, clock, watch, chosen, bases or StoredBases())
    pace = Pace(
        worker="learner", poll_s=chosen.poll_s, channel="steersman_work", lease_s=chosen.lease_s
    )
    await run_worker(database, pace, learner.serve, stop=stop)


class _Learner:
    def __init__(
        self,
        stop: asyncio.Event,
        clock: Callable[[], float],
        watch: Callable[[BatchResult], None],
        settings: LearnerSettings,
        bases: Bases,
    ) -> None:
        self._stop = stop
        self._clock = clock
        self._watch = watch
        self._settings = settings
        self._bases = bases
        self._broken: dict[Point, str] = {}

    async def serve(self, session: Session) -> None:
        """Work until stopped or disconnected; then store the states."""
        for connection in session.connections:
            await plan_by_index(connection)
        work, locks, _ = session.connections
        claims = Claims(locks, self._settings.holder, self._settings.lease_s)
        session.heartbeat = claims.keep
        while session.goes_on():
            taken = await self._round(work, claims)
            await self._let_idle_go(work, claims)
            if taken == 0:
                await session.wait()
            if taken < self._settings.batch:
                await asyncio.sleep(self._settings.linger_s)
        for claim in list(claims.held.values()):
            await self._last_checkpoint(work, claim)

    async def _round(self, connection: Any, claims: Claims) -> int:
        """Process due work; return the number of work rows."""
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
            await claims.fenced(claim.point, holder)
        except (StateError, RegistryError) as error:
            self._tell_broken(claim.point, error)
            await claims.give_up(claim.point, pause_s=_BROKEN_S)
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
                trace_learned(span, "/".join(claim.point[1:]), done.traceparents)
        except Exception as error:
            if not _is_poison(error):
                raise
            if len(ids) > 1:
                half = len(ids) // 2
                parts = ids[:half], ids[half:]
                return sum([await self._batch(connection, claim, part) for part in parts])
            _log.exception("cannot process work row %d of %s/%s", ids[0], *claim.point[1:])
            done = await fail_work(connection, claim, ids[0])
        self._watch(done)
        await self._checkpoint(connection, claim, after=self._settings.checkpoint_every)
        return done.taken

    async def _checkpoint(self, connection: Any, claim: Claim, *, after: int) -> None:
        replica = claim.replica
        if replica is None or replica.seq < claim.checkpointed + after:
            return
        state = pack_state(replica.policy.state())
        async with as_tenant(connection, claim.point[0]):
            # The state from an earlier claim may contain erased data.
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


def _is_poison(error: Exception) -> bool:
    """Return whether the error would occur again with the same rows."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_BAD_DATA)
    return not isinstance(error, (*UNAVAILABLE, StateError, RegistryError))
