"""A connection that is lost at any moment of a compaction is told in words, and loses nothing."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from steersman.cli.options import run
from steersman.errors import StoreError

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def cut(database, delay):
    connection = await database.connect(None)
    try:
        await asyncio.sleep(delay)
        await connection.execute(CUT)
    finally:
        await connection.close()


def test_what_a_connection_says_while_it_is_lost_is_told_by_commands():
    async def work():
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2)")

    with pytest.raises(StoreError, match="the database refused: cannot switch"):
        run(work())


@pytest.mark.slow
async def test_a_connection_lost_at_any_moment_is_told(days):
    rng = random.Random(1)
    await days.write(day=0)
    lost = 0
    for _ in range(120):
        cutting = asyncio.create_task(cut(days.database, 0.08 * rng.random()))
        await asyncio.sleep(0.03)
        try:
            await days.compact()
        except StoreError:
            lost += 1
        await cutting
    assert lost > 10
    await days.compact()
    assert set((await days.keep()).waiting) == set()
