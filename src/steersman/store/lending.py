"""Connections that are lent again for a while, for what people ask of a service now and then.

A connection costs its server ten milliseconds before it has read what it needs of the catalogue;
erasing a unit or rotating a key takes one. Who asks thrice in a minute need not pay for it thrice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steersman.store.database import AWAY, Database, reset

if TYPE_CHECKING:
    from steersman.store.database import Role

_MOST = 2
"""Of each role, so that what is idle takes few of the server's places."""
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LendingDatabase(Database):
    """A database whose connections, once closed, are lent to whoever asks next.

    Args:
        of: where connections come from.
        idle_s: how long one is kept that nobody asks for.
    """

    of: Database
    idle_s: float = 30.0
    url: str = field(init=False, repr=False)
    server: Any = field(init=False, default=None)
    _idle: dict[Role | None, list[Any]] = field(
        default_factory=lambda: defaultdict(list), init=False, repr=False, compare=False
    )
    _ended: asyncio.Event = field(
        default_factory=asyncio.Event, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.of.url)
        object.__setattr__(self, "server", self.of.server)

    async def connect(self, role: Role | None = "app", **options: Any) -> Any:
        """Return a connection as `Database.connect` does, perhaps one that served before.

        Args:
            role: whose rights it has.
            **options: for ``asyncpg.connect``; with any, it is a new one that is not lent again.

        Raises:
            StoreError: as of `Database.connect`.
        """
        if options:
            return await self.of.connect(role, **options)
        idle = self._idle[role]
        while idle:
            if not (one := idle.pop()).is_closed():
                return _Lent(one, role, self)
        return _Lent(await self.of.connect(role), role, self)

    async def close(self) -> None:
        """Close what nobody has at the moment; what comes back later is closed then."""
        self._ended.set()
        for idle in self._idle.values():
            while idle:
                await _close(idle.pop())

    async def take_back(self, role: Role | None, connection: Any) -> None:
        """Keep a connection for the next one, as it was; or close it.

        Args:
            role: whose rights it has.
            connection: of `connect`; one that is lost, or within a transaction, is closed.
        """
        idle = self._idle[role]
        if connection.is_closed() or connection.is_in_transaction():
            await _close(connection)
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await reset(connection)
        except AWAY:  # what was done with it is done
            connection.terminate()
            return
        except BaseException:
            connection.terminate()
            raise
        if len(idle) >= _MOST or self._ended.is_set():
            await _close(connection)
            return
        idle.append(connection)
        asyncio.get_running_loop().call_later(self.idle_s, self._expire, role, connection)

    def _expire(self, role: Role | None, connection: Any) -> None:
        if connection in self._idle[role]:  # perhaps again: the first end counts
            self._idle[role].remove(connection)
            connection.terminate()


class _Lent:
    """A connection that is given back where others are closed."""

    __slots__ = ("_by", "_connection", "_role")

    def __init__(self, connection: Any, role: Role | None, by: LendingDatabase) -> None:
        self._connection, self._role, self._by = connection, role, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncpg's)
        """Give it back; from then on this one is of no use."""
        del timeout
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._by.take_back(self._role, connection)


async def _close(connection: Any) -> None:
    with suppress(*AWAY):
        await connection.close(timeout=_PATIENCE_S)
