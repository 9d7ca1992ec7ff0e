"""Lost connections give clear errors and lose no data."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from steersman.cli.options import run
from steersman.db.erasure import erase, export
from steersman.errors import StoreError
from steersman.platform.postgres.database import Database
from tests.db.days import Days
from tests.db.rows import connected

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def cut(connection, delay):
    await asyncio.sleep(delay)
    await connection.execute(CUT)


def test_what_a_connection_says_while_it_is_lost_is_told_by_commands():
    async def work():
        raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2)")

    with pytest.raises(StoreError, match="database error: cannot switch"):
        run(work())


async def erased(days):
    await erase(days.database, days.tenant.id, unit="u", reason="asked to", actor="test")


async def exported(days):
    return [line async for line in export(days.database, days.tenant.id, unit="u")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "within_s"),
    [(Days.compact, 0.08), (Days.keep, 0.1), (erased, 0.06), (exported, 0.05)],
)
async def test_a_connection_lost_at_any_moment_is_told(days, work, within_s):
    rng = random.Random(1)
    days.database = Database(days.database.url)  # without those that are kept
    row = await days.write(day=0, unit="u")
    lost = 0
    async with days.database.connected(None, "cutting", "run the test again") as cutter:
        for _ in range(120):
            cutting = asyncio.create_task(cut(cutter, within_s * rng.random()))
            try:
                await work(days)
            except StoreError:
                lost += 1
            await cutting
    assert lost > 10
    await days.compact()
    assert set((await days.keep()).waiting) == set()
    async with connected(days.database, "owner", days.tenant.id) as connection:
        gone = await connection.fetch("SELECT decision FROM erasure")
    assert [one["decision"] for one in gone] == ([row.id] if work is erased else [])
