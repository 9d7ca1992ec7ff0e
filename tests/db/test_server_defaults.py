"""Server defaults do not change stored or returned data."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest

from steersman.db.audit import record
from steersman.db.decisions import log_decisions
from steersman.db.erasure import export
from steersman.db.migrate import migrate
from steersman.db.packed_events import log_events
from steersman.db.tenants import create_tenant
from tests.clusters import execute, on
from tests.db.rows import connected, decision, event


async def made(database, setting):
    name = f"defaults_{uuid4().hex[:12]}"
    await execute(database, f"CREATE DATABASE {name}", f"ALTER DATABASE {name} SET {setting}")
    other = on(database, name)
    await migrate(other)
    return other, (await create_tenant(other, "acme", actor="test")).id


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_writers_that_meet_take_turns(database, level):
    other, tenant = await made(database, f"default_transaction_isolation = '{level}'")

    async def write(number):
        async with connected(other, "app", tenant) as connection:
            await record(connection, tenant, "test", "test.write", f"{number}", {})
        async with connected(other) as connection:
            for _ in range(5):
                row = decision(tenant)
                assert await log_decisions(connection, [row]) == {}
                assert await log_events(connection, [event(tenant, row.id)]) == {}

    await asyncio.gather(*(write(number) for number in range(8)))
    async with connected(other, "app", tenant) as connection:
        numbers = await connection.fetch("SELECT seq FROM audit ORDER BY seq")
    assert [row["seq"] for row in numbers] == list(range(1, len(numbers) + 1))


async def test_numbers_are_handed_out_whole(database):
    other, tenant = await made(database, "extra_float_digits = -10")
    row = decision(tenant, unit="bot-7", p=0.123456789012345678)
    async with connected(other) as connection:
        await log_decisions(connection, [row])
    (line,) = [json.loads(line) async for line in export(other, tenant, unit="bot-7")]
    assert line["row"]["p"] == row.p
