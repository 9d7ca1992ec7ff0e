"""Concurrent use of claims: take, release and heartbeat."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from steersman.learning.learner import Claims
from tests.learning.world import declared

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


@asynccontextmanager
async def workers(database, count):
    connections = [await database.connect("worker") for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def test_a_point_of_another_snapshot_is_learned_on_at_once(database, tenant, caplog):
    row = await declared(database, tenant.id)
    point = (tenant.id, row.skill, row.point)
    async with workers(database, 1) as (connection,):
        claims = Claims(connection, "we", 10.0)
        await claims.take(point)
        await declared(database, tenant.id, policy="lin_ucb_forgets")
        await claims.keep()  # its epoch is over, and nobody else has it
        assert claims.held == {}
        assert claims.elsewhere() == []
        assert "another learner" not in caplog.text
        assert await connection.fetchval(LOCKS) == 0
        assert (await claims.take(point)).epoch == 3


async def test_a_claim_given_up_while_its_lock_is_sought_leaves_no_lock(database, tenant):
    row = await declared(database, tenant.id)
    point = (tenant.id, row.skill, row.point)
    async with workers(database, 2) as (first, second):
        ours, theirs = Claims(first, "we", 0.05), Claims(second, "they", 0.05)
        await ours.take(point)
        await asyncio.sleep(0.1)
        assert not (await theirs.take(point)).locked
        await ours.give_up(point)
        async with theirs._turn:
            keeping = asyncio.create_task(theirs.keep())
            await asyncio.sleep(0)  # it waits for its turn, and we for the one after it
            next_turn = asyncio.create_task(theirs._turn.acquire())
            await asyncio.sleep(0)
        await next_turn
        await asyncio.sleep(0)  # now it waits to ask for the lock
        await theirs.give_up(point)
        theirs._turn.release()
        await keeping
        assert await second.fetchval(LOCKS) == 0
        await theirs.take(point)
        await theirs.give_up(point)
        assert await second.fetchval(LOCKS) == 0
