"""Group commit: rows of many requests share one transaction, and each waits for its own row.

A flush takes whatever is waiting and starts as soon as the one before has returned; a timer would
only add its own delay. While the server is away, rows are kept and written when it is back; their
waiters may stop waiting at any time. What a flush cannot write because of one bad row is written
tenant by tenant and then row by row, so that nobody pays for another's row.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import asyncpg

from steersman.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from uuid import UUID

_log = logging.getLogger(__name__)
_OF_SERVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_OUTAGES = ("08", "25006", "40003", "53", "55P03", "57", "58", "XX")
_AGAIN = ("40001", "40P01")
_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Row(Protocol):
    """What is written: it belongs to a tenant."""

    @property
    def tenant(self) -> UUID:
        """Whose it is."""


R = TypeVar("R", bound=Row)
V = TypeVar("V")


class Expired:
    """The time was up before the row was durable; it is still going to be written."""


class _Entry(Generic[R, V]):
    """A row, who waits for it, and whether it is settled: an expired wait leaves the row here."""

    __slots__ = ("future", "on_settled", "row", "settled", "timer")

    def __init__(
        self,
        row: R,
        future: asyncio.Future[V | Expired | None],
        on_settled: Callable[[], None] | None,
    ) -> None:
        self.row = row
        self.on_settled = on_settled
        self.future = future
        self.settled = False
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, verdict: V | None, error: Exception | None = None) -> None:
        self.settled = True
        if self.timer is not None:
            self.timer.cancel()
        if self.on_settled is not None:
            self.on_settled()
        if self.future.done():
            return
        if error is None:
            self.future.set_result(verdict)
        else:
            self.future.set_exception(error)

    def expire(self) -> None:
        if not self.future.done():
            self.future.set_result(Expired())


class GroupCommit(Generic[R, V]):
    """Writes rows in batches over one connection.

    Args:
        connect: opens the connection; called again after it was lost.
        write: writes a batch in one transaction; returns what it did not write, by `name`.
        name: what tells a row from all others; no batch holds a name twice.
        max_rows: most rows of a flush.
        max_tenants: most tenants of a flush, since each costs a statement more.
        on_flush: called after every flush with (rows, seconds, whether the server answered).
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        write: Callable[[Any, Sequence[R]], Awaitable[Mapping[Any, V]]],
        name: Callable[[R], Hashable],
        *,
        max_rows: int = 512,
        max_tenants: int = 32,
        on_flush: Callable[[int, float, bool], None] = lambda _rows, _seconds, _answered: None,
    ) -> None:
        self._connect = connect
        self._write = write
        self._name = name
        self._max_rows = max_rows
        self._max_tenants = max_tenants
        self._on_flush = on_flush
        self._waiting: deque[_Entry[R, V]] = deque()
        self._wake = asyncio.Event()
        self._connection: Any = None
        self._failures = 0
        self._closing = False
        self._in_flight = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def depth(self) -> int:
        """Rows that wait or are being written."""
        return len(self._waiting) + self._in_flight

    @property
    def available(self) -> bool:
        """Whether the server answered the last time it was asked."""
        return self._failures == 0

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, *, timeout_s: float = 10.0) -> int:
        """Write what is waiting, then stop.

        Args:
            timeout_s: how long to try.

        Returns:
            Rows that could not be written; 0 unless the server is away.
        """
        self._closing = True
        self._wake.set()
        if self._task is not None:
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._task, timeout_s)
        if self._connection is not None:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self._connection.close(timeout=1)
        return self.depth

    def submit(
        self,
        row: R,
        *,
        within_s: float | None = None,
        on_settled: Callable[[], None] | None = None,
    ) -> asyncio.Future[V | Expired | None]:
        """Queue a row.

        Args:
            row: what to write.
            within_s: how long its waiter waits; None: until it is settled.
            on_settled: called when the row is durable or refused, which may be after its waiter
                went.

        Returns:
            Resolves to None once the row is durable, to what `write` said of it, or to `Expired`.
            Raises if this row can never be written.
        """
        loop = asyncio.get_running_loop()
        entry: _Entry[R, V] = _Entry(row, loop.create_future(), on_settled)
        if within_s is not None:
            entry.timer = loop.call_later(within_s, entry.expire)
        self._waiting.append(entry)
        self._wake.set()
        return entry.future

    async def _run(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._next_batch()
            self._in_flight = len(batch)
            if not await self._flush(batch):
                self._waiting.extendleft(reversed(batch))
                self._in_flight = 0
                await asyncio.sleep(_RETRY_S[min(self._failures, len(_RETRY_S)) - 1])
            self._in_flight = 0

    def _next_batch(self) -> list[_Entry[R, V]]:
        """Take rows in order, as many as a flush may hold; what does not fit keeps its place."""
        batch: list[_Entry[R, V]] = []
        names: set[Hashable] = set()
        tenants: set[UUID] = set()
        later: list[_Entry[R, V]] = []
        while self._waiting and len(batch) < self._max_rows and len(later) < self._max_rows:
            entry = self._waiting.popleft()
            name, tenant = self._name(entry.row), entry.row.tenant
            full = tenant not in tenants and len(tenants) == self._max_tenants
            if full or name in names:
                later.append(entry)
                continue
            names.add(name)
            tenants.add(tenant)
            batch.append(entry)
        self._waiting.extendleft(reversed(later))
        return batch

    async def _flush(self, batch: list[_Entry[R, V]]) -> bool:
        """Write a batch; False: the server is away, try again."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            await self._write_or_split(batch)
        except (OSError, TimeoutError, StoreError, *_OF_SERVER) as error:
            return self._failed(batch, begun, error)
        except Exception as error:  # noqa: BLE001 (logged, and tried again)
            # Whatever it was, rows of others wait behind it: a flusher that died would keep them
            # for ever, and nobody would hear of it.
            _log.exception("a flush failed in a way nobody thought of")
            return self._failed(batch, begun, error)
        self._failures = 0
        self._on_flush(len(batch), loop.time() - begun, True)  # noqa: FBT003
        return True

    async def _write_or_split(self, batch: list[_Entry[R, V]]) -> None:
        try:
            refused = await self._write(self._connection, [entry.row for entry in batch])
        except asyncpg.PostgresError as error:
            if _is_outage(error):
                raise
            if error.sqlstate in _AGAIN:
                await self._write_or_split(batch)
                return
            await self._split(batch, error)
            return
        except (TypeError, ValueError, OverflowError, asyncpg.DataError) as error:
            await self._split(batch, error)
            return
        for entry in batch:
            entry.settle(refused.get(self._name(entry.row)) if refused else None)

    async def _split(self, batch: list[_Entry[R, V]], error: Exception) -> None:
        """Write each tenant's rows apart, then each row: only a bad row pays for itself."""
        if len(batch) == 1:
            _log.error("a row cannot be written: %r", error)
            batch[0].settle(None, error)
            return
        groups: dict[Any, list[_Entry[R, V]]] = {}
        for entry in batch:
            groups.setdefault(entry.row.tenant, []).append(entry)
        if len(groups) == 1:
            half = len(batch) // 2
            groups = {0: batch[:half], 1: batch[half:]}
        for group in groups.values():
            await self._write_or_split(group)

    def _failed(self, batch: list[_Entry[R, V]], begun: float, error: Exception) -> bool:
        self._failures += 1
        self._on_flush(len(batch), asyncio.get_running_loop().time() - begun, False)  # noqa: FBT003
        _log.warning("%d rows wait: the store does not take them: %r", self.depth, error)
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        # A part may have been written before the server went; writing it again changes nothing.
        batch[:] = [entry for entry in batch if not entry.settled]
        return False


def _is_outage(error: asyncpg.PostgresError) -> bool:
    return (error.sqlstate or "XX").startswith(_OUTAGES)
