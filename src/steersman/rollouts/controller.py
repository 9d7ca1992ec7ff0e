"""Rollout controller: judges every active rollout and moves it forward or back.

Any number of controllers may run; one at a time moves a rollout. A turn is one transaction: it
checks
the claim, then writes the verdict with its inputs and the resulting move. A killed controller
leaves
either the whole turn or nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.rollout_transitions import claim_rollout, due_rollouts
from steersman.db.tenants import list_tenants
from steersman.errors import FencedError, StoreError
from steersman.learning.replica import StoredBases
from steersman.platform.postgres.advisory_lock import try_lock, unlock
from steersman.platform.postgres.database import AWAY, as_tenant, end_unfinished, work_under_lease
from steersman.rollouts.controller_step import Turn, TurnDone, take_turn
from steersman.rollouts.error_sources import StoreSource
from steersman.rollouts.evidence import SourceEvidence
from steersman.rollouts.evidence_cache import Looking
from steersman.rollouts.trusted_clock import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.learning.replica import Bases
    from steersman.platform.postgres.database import Database
    from steersman.rollouts.error_sources import Source
    from steersman.rollouts.trusted_clock import Moment


Task = tuple["UUID", "UUID"]
"""Tenant and rollout."""


class Claims:
    """Rollouts claimed by one controller.

    Args:
        connection: connection of role worker, used for nothing else: locks live as long as it.
        holder: display name.
        lease_s: time in seconds after which a silent controller loses its claims.
    """

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        self.held: dict[Task, RolloutRow] = {}
        self._locked: set[Task] = set()
        self._connection = connection
        self._holder = holder
        self._lease_s = lease_s
        self._elsewhere: dict[Task, float] = {}

    async def take(self, task: Task) -> RolloutRow | None:
        """Return a rollout that this controller may move, claiming it if possible.

        Returns:
            Rollout with the epoch of the claim; None if another controller has it, which pauses the
            next attempt.
        """
        if task in self.held:
            if task not in self._locked:  # taken over from one that is paused; the lock comes later
                await self._lock(task)
            return self.held[task]
        now = asyncio.get_running_loop().time()
        if self._elsewhere.get(task, 0.0) > now:
            return None
        row = await self._claim(task)
        if row is None:
            self._elsewhere[task] = now + min(1.0, self._lease_s / 4)
            return None
        self._elsewhere.pop(task, None)
        self.held[task] = row
        return row

    async def give_up(self, task: Task, *, pause_s: float = 0.0) -> None:
        """Release a rollout.

        Args:
            pause_s: time in seconds before the next attempt.
        """
        self.held.pop(task, None)
        if pause_s:
            self._elsewhere[task] = asyncio.get_running_loop().time() + pause_s
        if task in self._locked:
            self._locked.discard(task)
            await unlock(self._connection, _name(task))

    async def _lock(self, task: Task) -> bool:
        if await try_lock(self._connection, _name(task)):
            self._locked.add(task)
            return True
        return False

    async def _claim(self, task: Task) -> RolloutRow | None:
        locked = await self._lock(task)
        row = None
        try:
            async with as_tenant(self._connection, task[0]):
                idle_s = None if locked else self._lease_s
                row = await claim_rollout(
                    self._connection, task[0], task[1], self._holder, idle_s=idle_s
                )
        except asyncpg.LockNotAvailableError:
            _log.info("rollout %s is being changed by another process", task[1])
        if row is None:
            await self.give_up(task)
        elif not locked:
            _log.warning("taking over rollout %s from an unresponsive controller", task[1])
        return row


def _name(task: Task) -> str:
    return "rollout/" + "/".join(map(str, task))


_log = logging.getLogger(__name__)
_AWAY = (*AWAY, StoreError)
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_BROKEN_S = 10.0
_EVER = datetime(9999, 1, 1, tzinfo=UTC)  # whichever clock is wrong, what is under way is looked at
_TENANTS_S = 5.0  # a new tenant takes longer to count anything
_MIXED = "its counts cover all tenants together, and this store has several; run without it"
_BAD_DATA = {"22", "23", "42"}  # data exceptions, violated constraints, what may not be done
_TRY_AGAIN = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of a controller.

    Attributes:
        poll_s: maximum wait between two looks at a rollout, in seconds.
        lease_s: time in seconds after which a silent controller loses its rollouts.
        keep_s: time in seconds after which an unchanged verdict is stored again.
        settle_s: delay in seconds after a window's end before its decision counts, for late events.
        evidence_s: interval in seconds of off-policy evaluation while it is not enough.
        reload_s: interval in seconds for verifying the candidate.
        clock_tolerance_s: accepted jump of the wall clock between two looks, in seconds.
        clock_steady_s: time in seconds without jumps before the clock is trusted again.
        holder: display name; default: host and process.
    """

    poll_s: float = 1.0
    lease_s: float = 10.0
    keep_s: float = 60.0
    settle_s: float = 1.0
    evidence_s: float = 30.0
    reload_s: float = 30.0
    clock_tolerance_s: float = 2.0
    clock_steady_s: float = 60.0
    holder: str = ""


async def run_controller(
    database: Database,
    *,
    stop: asyncio.Event,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    sources: Sequence[Source] = (),
    bases: Bases | None = None,
    watch: Callable[[TurnDone], None] = lambda _done: None,
    settings: ControllerSettings | None = None,
) -> None:
    """Control rollouts until `stop` is set.

    While the store does not respond, the controller retries; then it claims all rollouts again.

    Args:
        clock: seconds since 1970.
        monotonic: monotonic clock in seconds.
        bases: verifier of candidates; default: trust the store's rows.
    """
    chosen = settings or ControllerSettings()
    steady = SteadyClock(
        clock,
        monotonic,
        tolerance_s=chosen.clock_tolerance_s,
        steady_s=chosen.clock_steady_s,
    )
    controller = _Controller(
        database, stop, steady, (StoreSource(), *sources), bases or StoredBases(), watch, chosen
    )
    failures = 0
    while not stop.is_set():
        try:
            await controller.serve()
        except* _AWAY as group:
            failures = 0 if controller.did_work else failures + 1
            delay = _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
            _log.warning(
                "the store does not respond, trying again in %g s: %r", delay, group.exceptions
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await stop.wait()


class _Controller:
    def __init__(
        self,
        database: Database,
        stop: asyncio.Event,
        clock: SteadyClock,
        sources: Sequence[Source],
        bases: Bases,
        watch: Callable[[TurnDone], None],
        settings: ControllerSettings,
    ) -> None:
        self.did_work = False
        self._database = database
        self._stop = stop
        self._clock = clock
        self._sources = sources
        self._bases = bases
        self._watch = watch
        self._settings = settings
        self._wake = asyncio.Event()
        self._looking: dict[Task, Looking] = {}
        self._tenants, self._tenants_until = 0, float("-inf")

    async def serve(self) -> None:
        """Work over one set of connections until the stop or the loss of a connection."""
        self.did_work = False
        self._looking.clear()
        async with AsyncExitStack() as stack:
            work, locks, wakes = [await self._connect(stack) for _ in range(3)]
            await wakes.add_listener("steersman_rollout", lambda *_: self._wake.set())
            for connection in (work, locks, wakes):
                connection.add_termination_listener(lambda _: self._wake.set())
            holder = self._settings.holder or f"{socket.gethostname()}/{os.getpid()}"
            claims = Claims(locks, holder, self._settings.lease_s)
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._watcher())
                while not self._stop.is_set():
                    self._wake.clear()
                    if any(each.is_closed() for each in (work, locks, wakes)):
                        raise StoreError("a connection to PostgreSQL was lost")
                    await end_unfinished(wakes, self._settings.lease_s)
                    await self._round(work, claims)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.poll_s):
                            await self._wake.wait()
                watcher.cancel()

    async def _connect(self, stack: AsyncExitStack) -> Any:
        connection = await self._database.connect("worker", command_timeout=60)
        stack.push_async_callback(_close, connection)
        await work_under_lease(connection, "controller", self._settings.lease_s)
        return connection

    async def _watcher(self) -> None:
        await self._stop.wait()
        self._wake.set()

    async def _round(self, connection: Any, claims: Claims) -> None:
        """Look at every active rollout once."""
        moment = self._clock.look()
        tasks = await due_rollouts(connection, _EVER)
        for gone in set(claims.held) - set(tasks):
            await self._let_go(claims, gone)
        for task in tasks:
            if self._stop.is_set():
                return
            row = await claims.take(task)
            if row is None:
                self._looking.pop(task, None)
            else:
                await self._look_at(connection, claims, row, moment)

    async def _look_at(
        self, connection: Any, claims: Claims, row: RolloutRow, moment: Moment
    ) -> None:
        """Take one turn, or find out why it is impossible."""
        task = row.tenant, row.id
        try:
            looking = self._looking.get(task)
            if looking is None:
                looking = self._looking[task] = Looking(row, self._bases, self._settings)
            await looking.prepare(connection, row, moment)
            said = await self._ask(connection, row, looking, moment)
            done = await take_turn(connection, Turn(row, looking, said, moment, self._settings))
        except FencedError as error:
            _log.info("%s", error)
            await self._let_go(claims, task)
        except _TRY_AGAIN as error:
            _log.info("rollout %s is being changed by another process: %r", row.id, error)
            self._looking.pop(task, None)
        except Exception as error:
            self._looking.pop(task, None)  # it may be ahead of what was committed
            if isinstance(error, _AWAY) and not _is_broken(error):
                raise
            _log.exception("rollout %s will not be checked for %g s", row.id, _BROKEN_S)
            await self._let_go(claims, task, pause_s=_BROKEN_S)
        else:
            self.did_work = True
            claims.held[task] = done.row
            if not done.row.is_under_way:
                await self._let_go(claims, task)
            self._watch(done)

    async def _ask(
        self, connection: Any, row: RolloutRow, looking: Looking, moment: Moment
    ) -> list[SourceEvidence]:
        """Query the sources outside the judging transaction, because they may hang."""
        now = datetime.fromtimestamp(moment.now, UTC)
        said = []
        for source in self._sources:
            if source.tells_tenants_apart or await self._is_only_tenant():
                said.append(await source.read(connection, row, looking.stretches, now))
            else:
                said.append(SourceEvidence(source.name, alive=False, reason=_MIXED))
        return said

    async def _is_only_tenant(self) -> bool:
        """Return whether the store has a single tenant, so that common counts are its counts.

        Other tenants' decision points of the same name are not checked: the verdict would disclose
        them.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._tenants_until:
            self._tenants = len(await list_tenants(self._database))
            self._tenants_until = now + _TENANTS_S
        return self._tenants == 1

    async def _let_go(self, claims: Claims, task: Task, *, pause_s: float = 0.0) -> None:
        self._looking.pop(task, None)
        await claims.give_up(task, pause_s=pause_s)


def _is_broken(error: Exception) -> bool:
    """Return whether the error concerns this rollout only, and not the store."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _BAD_DATA


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2)
    except (*_AWAY, asyncio.CancelledError):
        connection.terminate()
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop
