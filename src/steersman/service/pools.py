"""Connections to the store, apart by who waits for them.

However many ask for what takes long: no key that was revoked, no rollback and no first request of a
tenant waits until theirs is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.store import LendingDatabase

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from asyncpg import Pool

    from steersman.store import Database


class Pools(NamedTuple):
    """Connections; all but the last of role app.

    Attributes:
        serving: what decisions and searches wait for: points, earlier answers, places of corpora.
        reading: what people ask for, and tenants may ask without end.
        keys: verifying keys.
        acting: what people do now and then: erase, end a key, act on a rollout; of any role.
    """

    serving: Pool[Any]
    reading: Pool[Any]
    keys: Pool[Any]
    acting: LendingDatabase


async def open_pools(stack: AsyncExitStack, database: Database) -> Pools:
    """Return open pools.

    Args:
        stack: closes them.
        database: migrated.

    Raises:
        StoreError: it does not answer.
    """
    pools = []
    for most in (4, 4, 2):
        pools.append(await database.pool("app", least=1, most=most))
        stack.push_async_callback(pools[-1].close)
    acting = LendingDatabase(of=database)
    stack.push_async_callback(acting.close)
    serving, reading, keys = pools
    return Pools(serving, reading, keys, acting)
