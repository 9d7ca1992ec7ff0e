"""Group commit: rows of many requests share one transaction.

A flush takes all waiting rows and starts when the previous one returns; a timer would only add
delay. While the database is unavailable, rows are kept and written later; waiters can time out.
After a flush without an answer the next one has half as many rows; after an answer, twice as many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Generic

import asyncpg

from steersman.db.write_batches import BatchWriter, Entry, R, V
from steersman.errors import StoreError
from steersman.platform.postgres.database import OF_SERVER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from uuid import UUID

    from steersman.db.write_batches import WriteTimeout

_log = logging.getLogger(__name__)
_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_LOCKED_S = 1.0  # until locked rows are tried again


class _Lane(Generic[R, V]):
    """Batch and the connection that writes it."""

    __slots__ = ("batch", "connection", "failures", "first", "least", "room")

    def __init__(self, number: int, max_rows: int) -> None:
        self.first = number == 0
        self.least = 1 if self.first else max_rows // 2  # rows must wait before it takes any
        self.room = max_rows  # of its next flush
        self.failures = 0  # without a success since
        self.batch: Sequence[Entry[R, V]] = ()
        self.connection: Any = None


class GroupCommit(Generic[R, V]):
    """Writes rows in batches over one or several connections.

    Args:
        connect: opens a connection, also after a loss.
        write: writes a batch in one transaction; returns what was not written, by `name`.
        name: unique key of a row; a batch has no duplicates.
        max_rows: maximum rows per flush; a larger request is written in pieces.
        max_tenants: maximum tenants per flush; each costs one more statement.
        lanes: number of parallel flushes, each over a result of `connect` (a connection or
            a shared pipeline). Lanes after the first start only when half a flush is
            waiting. `write` must lock all rows in one order.
        limit_s: timeout of a flush in seconds, times ``lanes``; then the connection is
            replaced, because a vanished peer would never answer.
        on_flush: callback after every flush with (rows, seconds, whether the server
            answered).
        watch: called with submitted rows; its result is called with what was not written,
            by `name`, once all are durable or rejected. None: no callback.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        write: Callable[[Any, Sequence[R]], Awaitable[Mapping[Any, V]]],
        name: Callable[[R], Hashable],
        *,
        max_rows: int = 512,
        max_tenants: int = 32,
        lanes: int = 1,
        limit_s: float = 15.0,
        on_flush: Callable[[int, float, bool], None] = lambda _rows, _seconds, _answered: None,
        watch: Callable[[Sequence[R]], Callable[[Mapping[Hashable, Any]], None]] | None = None,
    ) -> None:
        self._connect = connect
        self._writer = BatchWriter(write)
        self._name = name
        self._max_rows = max_rows
        self._max_tenants = max_tenants
        self._limit_s = limit_s
        self._on_flush = on_flush
        self._watch = watch
        self._waiting: deque[Entry[R, V]] = deque()
        self._apart: list[Entry[R, V]] = []  # entries that wait for a lock
        self._wake = asyncio.Event()
        self._lanes: list[_Lane[R, V]] = [_Lane(n, max_rows) for n in range(lanes)]
        self._answered = True
        self._closing = False
        self._rows_waiting = 0
        self._rows_writing = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_deadline = inf
        self._timer: asyncio.TimerHandle | None = None

    @property
    def depth(self) -> int:
        """Number of rows that wait or are being written."""
        return self._rows_waiting + self._rows_writing

    @property
    def available(self) -> bool:
        """Whether the server answered the last request."""
        return self._answered

    def start(self) -> None:
        """Start writing."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [self._loop.create_task(self._run(lane)) for lane in self._lanes]

    async def close(self, *, timeout_s: float = 10.0) -> int:
        """Write waiting rows, then stop.

        Args:
            timeout_s: time limit in seconds.

        Returns:
            Number of unwritten rows; 0 unless the database is unavailable.
        """
        self._closing = True
        self._wake.set()
        if self._tasks:
            # The first lane ends last; another one may still be connecting without a batch.
            with suppress(asyncio.CancelledError):
                await asyncio.wait(self._tasks[:1], timeout=timeout_s)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        for lane in self._lanes:
            await _close_connection(lane)
        return self.depth

    def submit(
        self,
        rows: Sequence[R],
        *,
        within_s: float | None = None,
        on_settled: Callable[[Mapping[Hashable, V | Exception]], None] | None = None,
    ) -> asyncio.Future[dict[Hashable, V | Exception] | WriteTimeout]:
        """Queue rows of one tenant with a shared wait.

        Args:
            within_s: timeout of the wait in seconds; None: no timeout.

        Returns:
            A future. It resolves to what was not written, by name (the result of `write` or an
            error); empty if all is durable; or to `WriteTimeout`.
        """
        loop = self._loop or asyncio.get_running_loop()
        names = list(map(self._name, rows))
        deadline = inf if within_s is None else loop.time() + within_s
        if self._watch is not None:
            on_settled = _both(self._watch(rows), on_settled)
        entry: Entry[R, V] = Entry(rows, names, loop.create_future(), on_settled, deadline)
        if deadline < self._next_deadline:
            self._expire_at(loop, deadline)
        self._waiting.append(entry)
        self._rows_waiting += len(rows)
        self._wake.set()
        return entry.future

    def _expire_at(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Set one timer for all deadlines, because timeouts are rare."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_deadline = deadline
        self._timer = loop.call_at(deadline, self._expire_late, loop)

    def _expire_late(self, loop: asyncio.AbstractEventLoop) -> None:
        now, following = loop.time(), inf
        writing = chain.from_iterable(lane.batch for lane in self._lanes)
        for entry in (*writing, *self._apart, *self._waiting):
            if entry.settled or entry.future.done():
                continue
            if entry.deadline <= now:
                entry.expire()
            else:
                following = min(following, entry.deadline)
        self._timer, self._next_deadline = None, inf
        if following < inf:
            self._expire_at(loop, following)

    async def _run(self, lane: _Lane[R, V]) -> None:
        if lane.first:
            await self._flush(lane)  # connects early, so that the first row does not wait
        while True:
            if self._rows_waiting < (1 if self._closing else lane.least):
                if self._closing and self._rows_writing == 0:
                    return  # else another lane's rows may have to be written again
                self._wake.clear()
                await self._wake.wait()
                continue
            if not lane.first and not _is_open(lane):
                # Without a batch: until it connects, the first lane writes waiting rows.
                if not await self._open(lane):
                    await asyncio.sleep(_pause_s(lane))
                continue
            await self._flush_next(lane)

    async def _flush_next(self, lane: _Lane[R, V]) -> None:
        lane.batch = self._next_batch(lane.room)
        count = sum(len(entry.rows) for entry in lane.batch)
        self._rows_writing += count
        try:
            answered = await self._flush(lane)
        except asyncpg.LockNotAvailableError:
            batch, lane.batch = lane.batch, ()
            self._set_apart(batch, count)
            return
        self._rows_writing -= count
        batch, lane.batch = lane.batch, ()
        if self._closing:
            self._wake.set()
        if not answered:
            # A part may already be written; writing it again changes nothing.
            self._put_back([one for one in batch if not one.settled])
            await asyncio.sleep(_pause_s(lane))

    def _set_apart(self, batch: Sequence[Entry[R, V]], count: int) -> None:
        """Write each entry alone and last, because one of its rows is locked.

        An entry that was alone already is retried after a delay.
        """
        left = [one for one in batch if not one.settled]
        pause = _LOCKED_S if all(one.alone for one in left) else 0.0
        for one in left:
            one.alone = True
        self._apart += left

        def again() -> None:
            self._apart = [one for one in self._apart if one not in left]
            self._rows_writing -= count
            self._rows_waiting += sum(len(one.rows) for one in left)
            self._waiting.extend(left)
            self._wake.set()

        asyncio.get_running_loop().call_later(pause, again)

    def _put_back(self, entries: Sequence[Entry[R, V]]) -> None:
        self._rows_waiting += sum(len(entry.rows) for entry in entries)
        if sum(len(entry.rows) - entry.done for entry in entries) == 1:
            self._waiting.extend(entries)  # other rows need not wait for an invalid row
        else:
            self._waiting.extendleft(reversed(entries))
        self._wake.set()

    def _next_batch(self, room: int) -> list[Entry[R, V]]:
        """Take entries in order up to the limits; the rest keeps its place.

        A larger entry is taken alone.
        """
        batch: list[Entry[R, V]] = []
        names: set[Hashable] = set()
        tenants: set[UUID] = set()
        later: list[Entry[R, V]] = []
        while self._waiting and room > 0 and len(later) < self._max_rows:
            if batch and (self._waiting[0].alone or len(self._waiting[0].rows) > room):
                break
            entry = self._waiting.popleft()
            full = entry.tenant not in tenants and len(tenants) == self._max_tenants
            if full or not names.isdisjoint(entry.names):
                later.append(entry)
                continue
            names.update(entry.names)
            tenants.add(entry.tenant)
            batch.append(entry)
            room = 0 if entry.alone else room - len(entry.rows)
            self._rows_waiting -= len(entry.rows)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _flush(self, lane: _Lane[R, V]) -> bool:
        """Write a lane's batch; return False if the database is unavailable."""
        loop = asyncio.get_running_loop()
        begun, opened = loop.time(), False
        try:
            async with asyncio.timeout(self._limit_s * len(self._lanes)):
                if not _is_open(lane):
                    lane.connection = await self._connect()
                opened = True
                await self._writer.write(lane.connection, lane.batch, lane.room)
        except asyncpg.LockNotAvailableError:
            raise  # server and connection work
        except (OSError, TimeoutError, StoreError, *OF_SERVER) as error:
            await self._fail(lane, loop.time() - begun, error, wrote=opened)
            return False
        except Exception as error:  # noqa: BLE001 (logged, and tried again)
            # Other rows wait behind it: a dead flusher would block them
            # for ever without a trace.
            _log.exception("a flush failed unexpectedly")
            await self._fail(lane, loop.time() - begun, error, wrote=opened)
            return False
        self._answered, lane.failures = True, 0
        lane.room = min(2 * lane.room, self._max_rows)
        self._on_flush(sum(len(entry.rows) for entry in lane.batch), loop.time() - begun, True)  # noqa: FBT003
        return True

    async def _open(self, lane: _Lane[R, V]) -> bool:
        """Connect an empty lane; a failure does not affect the other lanes."""
        try:
            async with asyncio.timeout(self._limit_s):
                lane.connection = await self._connect()
        except Exception as error:  # noqa: BLE001 (logged, and tried again)
            lane.failures += 1
            _log.warning("cannot open another write connection: %r", error)
            return False
        return True

    async def _fail(
        self, lane: _Lane[R, V], seconds: float, error: Exception, *, wrote: bool
    ) -> None:
        self._answered = False
        lane.failures += 1
        if wrote:  # the batch may have been too large
            lane.room = max(1, lane.room // 2)
        self._on_flush(sum(len(entry.rows) for entry in lane.batch), seconds, False)  # noqa: FBT003
        _log.warning("the store rejects writes; %d rows are waiting: %r", self.depth, error)
        await _close_connection(lane)


def _both(
    first: Callable[[Mapping[Hashable, Any]], None],
    second: Callable[[Mapping[Hashable, Any]], None] | None,
) -> Callable[[Mapping[Hashable, Any]], None]:
    def call(verdicts: Mapping[Hashable, Any]) -> None:
        first(verdicts)
        if second is not None:
            second(verdicts)

    return call


async def _close_connection(lane: _Lane[Any, Any]) -> None:
    """Close gracefully if possible, so that the server ends its work."""
    if lane.connection is None:
        return
    try:
        await lane.connection.close(timeout=1)
    except (OSError, TimeoutError, *OF_SERVER):
        lane.connection.terminate()
    lane.connection = None


def _is_open(lane: _Lane[Any, Any]) -> bool:
    return lane.connection is not None and not lane.connection.is_closed()


def _pause_s(lane: _Lane[Any, Any]) -> float:
    return _RETRY_S[min(lane.failures, len(_RETRY_S)) - 1]
