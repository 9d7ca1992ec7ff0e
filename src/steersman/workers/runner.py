"""Worker loop: opens connections, waits for notifications, reconnects after an outage."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.errors import StoreError
from steersman.platform.postgres.database import AWAY, end_unfinished, work_under_lease
from steersman.platform.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from steersman.platform.postgres.database import Database, Worker

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first_s=0.05, longest_s=2.0)
UNAVAILABLE = (*AWAY, StoreError)
"""Errors after which a worker connects again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Polling and lease settings of a worker.

    Attributes:
        worker: name of its sessions.
        poll_s: maximum wait for work in seconds, in case a notification is lost.
        channel: notification channel; empty: none.
        lease_s: duration of its leases in seconds; None: no leases.
    """

    worker: Worker
    poll_s: float
    channel: str = ""
    lease_s: float | None = None


class Session:
    """Connections of a worker, until it is stopped or one of them is lost.

    Attributes:
        connections: connections of role worker: for work; with leases also for locks and notices.
        heartbeat: called four times per lease duration; the worker may replace it.
        rounds: number of polls so far.
    """

    def __init__(self, pace: Pace, stop: asyncio.Event) -> None:
        self.connections: list[Any] = []
        self.heartbeat: Callable[[], Awaitable[None]] = _nothing
        self.rounds = 0
        self._pace = pace
        self._stop = stop
        self._wake = asyncio.Event()

    def goes_on(self) -> bool:
        """Return whether to poll once more; clear earlier wake-ups.

        Raises:
            StoreError: a connection was lost.
        """
        self._wake.clear()
        self.rounds += 1
        if not self._stop.is_set() and any(each.is_closed() for each in self.connections):
            raise StoreError("lost a connection to PostgreSQL")
        return not self._stop.is_set()

    async def wait(self) -> None:
        """Wait for a wake-up, the stop, a lost connection or the poll interval."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.poll_s):
                await self._wake.wait()

    async def run(self, database: Database, serve: Callable[[Session], Awaitable[None]]) -> None:
        """Connect and work until the session ends."""
        async with AsyncExitStack() as stack:
            for _ in range(1 if self._pace.lease_s is None else 3):
                self.connections.append(await self._connect(database, stack))
            if self._pace.channel:
                await self.connections[-1].add_listener(self._pace.channel, self._on_event)
            for connection in self.connections:
                connection.add_termination_listener(self._on_event)
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(self._watch_stop()), group.create_task(self._keep())]
                await serve(self)
                for task in others:
                    task.cancel()

    async def _connect(self, database: Database, stack: AsyncExitStack) -> Any:
        connection = await database.connect("worker", command_timeout=60)
        stack.push_async_callback(_close, connection)
        if self._pace.lease_s is not None:
            await work_under_lease(connection, self._pace.worker, self._pace.lease_s)
        return connection

    async def _watch_stop(self) -> None:
        await self._stop.wait()
        self._wake.set()

    async def _keep(self) -> None:
        lease_s = self._pace.lease_s
        while lease_s is not None:
            await asyncio.sleep(lease_s / 4)
            await end_unfinished(self.connections[-1], lease_s)
            with suppress(asyncpg.LockNotAvailableError):  # retried next time
                await self.heartbeat()

    def _on_event(self, *_: object) -> None:
        self._wake.set()


async def run_worker(
    database: Database,
    pace: Pace,
    serve: Callable[[Session], Awaitable[None]],
    *,
    stop: asyncio.Event,
) -> None:
    """Serve with new connections after each outage, until stopped.

    Args:
        serve: does the work of one session.
    """
    failures = 0
    while not stop.is_set():
        session = Session(pace, stop)
        try:
            await session.run(database, serve)
        except* UNAVAILABLE as group:
            failures = 1 if session.rounds > 1 else failures + 1
            pause_s = _BACKOFF.pause_s(failures)
            _log.warning(
                "the database is unavailable; the %s retries in %g s: %r",
                *(pace.worker, pause_s, group.exceptions),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stop.wait()


async def _nothing() -> None:
    """Send no heartbeat."""


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2)
    except (*UNAVAILABLE, asyncio.CancelledError):
        connection.terminate()
        await asyncio.sleep(0)  # the transport closes in the next turn of the loop
