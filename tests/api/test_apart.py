"""Connections of their own are few, and no tenant waits for all that another one asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from steersman.db.tenants import create_tenant
from steersman.platform.http.tenant_limiter import Apart
from steersman.platform.postgres.database import Database
from steersman.wire import Refused

OURS, THEIRS = UUID(int=1), UUID(int=2)


async def test_of_a_tenant_one_at_a_time_of_all_a_few_and_nobody_waits_for_a_flood() -> None:
    apart, order = Apart(at_a_time=2, of_tenant=4), []
    inside: Counter[UUID] = Counter()

    async def ask(tenant: UUID) -> None:
        async with apart.turn(tenant):
            inside[tenant] += 1
            assert inside[tenant] == 1
            assert inside.total() <= 2
            await asyncio.sleep(0.01)
            inside[tenant] -= 1
            order.append(tenant)

    flood = [asyncio.create_task(ask(OURS)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="4 requests of this kind"):
        await ask(OURS)
    await asyncio.gather(ask(THEIRS), ask(uuid4()), *flood)
    assert THEIRS in order[:3]
    await ask(OURS)
    assert not apart._inside
    assert not apart._own


async def test_who_goes_away_leaves_his_turn() -> None:
    apart = Apart(at_a_time=1)
    async with apart.turn(OURS):
        waiting = asyncio.create_task(apart.turn(THEIRS).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(5), apart.turn(THEIRS):
        pass


async def test_a_flood_of_one_tenant_leaves_connections_to_others(
    starter, database, tenant
) -> None:
    begun, database = datetime.now(UTC), Database(database.url)  # without those that are kept
    async with starter(database, tenant)() as s:
        other = await create_tenant(database, f"o-{uuid4().hex}", actor="test")
        _, key = await s.new_key(database, other)
        row, _ = await s.new_key(database, other)
        flood = [asyncio.create_task(s.ask("GET", "/v1/keys")) for _ in range(60)]
        unit = {"unit": "u"}
        flood += [asyncio.create_task(s.ask("POST", "/v1/units/export", unit)) for _ in range(60)]
        await asyncio.sleep(0.1)
        connection = await database.connect("worker")
        open_now = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_start >= $1",
            begun,
        )
        await connection.close()
        assert (await s.ask("DELETE", f"/v1/keys/{row.id}", key=key)).status == 200
        statuses = Counter(one.status for one in await asyncio.gather(*flood))
        assert set(statuses) == {200, 503}
        assert statuses[200] >= 32
        assert open_now < 40
