"""Connection pools, separated by purpose.

Slow reads of many callers never delay key revocations, rollbacks or a tenant's first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.platform.postgres.idle_pool import LendingDatabase

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from asyncpg import Pool

    from steersman.platform.postgres.database import Database


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
