"""Cold store on the oldest supported PostgreSQL."""

from __future__ import annotations

from uuid import uuid4

from steersman.db.archive.compaction import compact
from steersman.db.archive.query import query
from steersman.db.tenants import create_tenant


async def test_compaction_and_queries_work_on_postgresql_15(database_15, past_of, cold, days):
    tenant = await create_tenant(database_15, f"t-{uuid4().hex}", actor="test")
    past = past_of(tenant.id)
    past.database = database_15
    rows = [row for day in days for row in await past.add(day, 10)]
    await compact(database_15, cold, tenants=[tenant.id], until=days[1])
    await past.add(days[0], 1)
    await past.erase(rows[:2])
    sql = "SELECT count(*) AS n, count(DISTINCT id) AS k FROM decision"
    for _ in range(2):
        found = (await query(database_15, cold, tenant.id, sql)).to_pylist()
        assert found == [{"n": 29, "k": 29}]
        done = await compact(database_15, cold, tenants=[tenant.id], until=days[1])
    assert done.written == ()
