"""Connection reuse for occasional service requests.

A new connection costs the server ten milliseconds for catalogue reads; the request itself often
takes one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.platform.postgres.database import AWAY, Database, reset

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from asyncpg import Pool

    from steersman.platform.postgres.database import Role

_MOST = 2
"""Maximum idle connections per role."""
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LendingDatabase(Database):
    """Database that reuses closed connections.

    Args:
        of: source of connections.
        idle_s: seconds until an idle connection is closed.
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
        """Return a new or reused connection, as `Database.connect` does.

        Raises:
            StoreError: as `Database.connect`.
        """
        if options:
            return await self.of.connect(role, **options)
        idle = self._idle[role]
        while idle:
            if not (one := idle.pop()).is_closed():
                return _Lent(one, role, self)
        return _Lent(await self.of.connect(role), role, self)

    async def close(self) -> None:
        """Close idle connections; others are closed when returned."""
        self._ended.set()
        for idle in self._idle.values():
            while idle:
                await _close(idle.pop())

    async def take_back(self, role: Role | None, connection: Any) -> None:
        """Reset a connection for reuse, or close it."""
        idle = self._idle[role]
        if connection.is_closed() or connection.is_in_transaction():
            await _close(connection)
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await reset(connection)
        except AWAY:  # its use has ended
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
        if connection in self._idle[role]:  # maybe again: only the first close counts
            self._idle[role].remove(connection)
            connection.terminate()


class _Lent:
    """Connection that returns to the pool on close."""

    __slots__ = ("_by", "_connection", "_role")

    def __init__(self, connection: Any, role: Role | None, by: LendingDatabase) -> None:
        self._connection, self._role, self._by = connection, role, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncpg's)
        """Return it to the pool; it cannot be used afterwards."""
        del timeout
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._by.take_back(self._role, connection)


async def _close(connection: Any) -> None:
    with suppress(*AWAY):
        await connection.close(timeout=_PATIENCE_S)


class Pools(NamedTuple):
    """Connection pools; all except the last have role app.

    Attributes:
        serving: for decisions and searches: points, earlier answers, places of corpora.
        reading: for reads by people, which tenants may request in any number.
        keys: for verifying keys.
        acting: for rare actions of any role: erase, revoke a key, act on a rollout.
    """

    serving: Pool[Any]
    reading: Pool[Any]
    keys: Pool[Any]
    acting: LendingDatabase


async def open_pools(stack: AsyncExitStack, database: Database) -> Pools:
    """Return open pools that the stack closes.

    Raises:
        StoreError: the store does not respond.
    """
    pools = []
    for most in (4, 4, 2):
        pools.append(await database.pool("app", least=1, most=most))
        stack.push_async_callback(pools[-1].close)
    acting = LendingDatabase(of=database)
    stack.push_async_callback(acting.close)
    serving, reading, keys = pools
    return Pools(serving, reading, keys, acting)
