"""Batch writes of many requests that isolate invalid rows.

If a row breaks a batch, the batch is written per tenant, then in halves, then row by row. A request
with more rows than the limit is written in pieces.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
    from uuid import UUID


def slices(tenants: Sequence[UUID]) -> tuple[list[UUID], list[int], list[int]]:
    """Return the distinct tenants, and the first and last index of each, from 1.

    >>> from uuid import UUID
    >>> slices([UUID(int=1), UUID(int=1), UUID(int=2)])[1:]
    ([1, 3], [2, 3])
    """
    names: list[UUID] = []
    firsts: list[int] = []
    lasts: list[int] = []
    place = 0
    for tenant, group in groupby(tenants):
        names.append(tenant)
        firsts.append(place + 1)
        place += sum(1 for _ in group)
        lasts.append(place)
    return names, firsts, lasts


_log = logging.getLogger(__name__)
_OUTAGES = ("08", "25006", "40003", "53", "55P03", "57", "58", "XX")
_AGAIN = ("40001", "40P01")


class Row(Protocol):
    """Row of a tenant."""

    @property
    def tenant(self) -> UUID:
        """Tenant id."""


R = TypeVar("R", bound=Row)
V = TypeVar("V")


class WriteTimeout:
    """Timeout before the rows were durable; they will still be written."""


class Entry(Generic[R, V]):
    """Rows of one request, with the waiter and the result.

    After a timeout the rows stay here and are still written.

    Args:
        rows: rows of one tenant, at least one.
        names: row names.
        future: future of the waiter.
        on_settled: callback when all rows are durable or rejected.
        deadline: time limit of the wait, on the loop's clock.
    """

    __slots__ = (
        "alone",
        "deadline",
        "done",
        "future",
        "names",
        "on_settled",
        "rows",
        "settled",
        "tenant",
        "verdicts",
    )

    def __init__(
        self,
        rows: Sequence[R],
        names: Sequence[Hashable],
        future: asyncio.Future[dict[Hashable, V | Exception] | WriteTimeout],
        on_settled: Callable[[Mapping[Hashable, V | Exception]], None] | None,
        deadline: float = inf,
    ) -> None:
        self.rows = rows
        self.names = names
        self.tenant = rows[0].tenant
        self.future = future
        self.on_settled = on_settled
        self.verdicts: dict[Hashable, V | Exception] = {}
        self.deadline = deadline
        self.done = 0  # rows already written, if written in pieces
        self.settled = False
        self.alone = False  # whether it is written alone, after a lock timeout

    def settle(self) -> None:
        """Resolve the future with the rows that were not written."""
        self.settled = True
        if self.on_settled is not None:
            self.on_settled(self.verdicts)
        if not self.future.done():
            self.future.set_result(self.verdicts)

    def expire(self) -> None:
        """Stop waiting."""
        if not self.future.done():
            self.future.set_result(WriteTimeout())


class BatchWriter(Generic[R, V]):
    """Writes batches and reports invalid rows to their sender.

    Args:
        write: writes rows in one transaction; returns those not written, by name.
    """

    def __init__(self, write: Callable[[Any, Sequence[R]], Awaitable[Mapping[Any, V]]]) -> None:
        self._write = write

    async def write(self, connection: Any, batch: Sequence[Entry[R, V]], room: int) -> None:
        """Write a batch and settle its entries.

        `room`: maximum rows per write, ≥ 1; a larger entry must come first.

        Raises:
            PostgresError: the database is unreachable; written entries are settled.
        """
        rest = batch
        if rest and (rest[0].done or len(rest[0].rows) > room):
            await self._write_in_pieces(connection, rest[0], room)
            rest = rest[1:]
            if not rest:
                return
        await self._write_or_split(connection, rest)

    async def _write_or_split(self, connection: Any, batch: Sequence[Entry[R, V]]) -> None:
        try:
            refused = await self._write(connection, [row for entry in batch for row in entry.rows])
        except asyncpg.PostgresError as error:
            if _is_outage(error):
                raise
            if error.sqlstate in _AGAIN:
                await self._write_or_split(connection, batch)
            else:
                await self._split(connection, batch, error)
            return
        except (TypeError, ValueError, OverflowError, asyncpg.DataError) as error:
            await self._split(connection, batch, error)
            return
        for entry in batch:
            if refused:
                entry.verdicts.update({n: refused[n] for n in entry.names if n in refused})
            entry.settle()

    async def _split(self, connection: Any, batch: Sequence[Entry[R, V]], error: Exception) -> None:
        """Write per tenant, then in halves, then row by row, to isolate an invalid row."""
        tenants = {entry.tenant for entry in batch}
        if len(tenants) > 1:
            for tenant in tenants:
                await self._write_or_split(
                    connection, [one for one in batch if one.tenant == tenant]
                )
        elif len(batch) > 1:
            half = len(batch) // 2
            await self._write_or_split(connection, batch[:half])
            await self._write_or_split(connection, batch[half:])
        else:
            await self._write_alone(connection, batch[0], error)

    async def _write_alone(self, connection: Any, entry: Entry[R, V], error: Exception) -> None:
        """Write the rows of a request one by one and report the invalid ones."""
        if len(entry.rows) == 1:
            _log.error("cannot write a row: %r", error)
            entry.verdicts[entry.names[0]] = error
            entry.settle()
        else:
            await self._write_in_pieces(connection, entry, 1)

    async def _write_in_pieces(self, connection: Any, entry: Entry[R, V], size: int) -> None:
        """Write the rows of a request in pieces; written pieces are not repeated."""
        loop = asyncio.get_running_loop()
        while entry.done < len(entry.rows):
            piece = slice(entry.done, entry.done + size)
            some: Entry[R, V] = Entry(
                entry.rows[piece], entry.names[piece], loop.create_future(), None
            )
            await self._write_or_split(connection, [some])
            entry.verdicts.update(some.verdicts)
            entry.done += len(some.rows)
        entry.settle()


def _is_outage(error: asyncpg.PostgresError) -> bool:
    return (error.sqlstate or "XX").startswith(_OUTAGES)
