"""Queries planned on empty tables without statistics stay fast.

PostgreSQL caches plans of repeated queries. The learner queries from the first second, but
statistics come a minute later, or never if autovacuum is late.
"""

from uuid import uuid4

import pytest

from steersman.db.rewards import learned_of
from steersman.db.tenants import create_tenant
from steersman.wire import new_id
from tests.db.rows import connected
from tests.learning.world import declared, learn_all, traffic

ROWS, ASKED = 400, 10
_READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = $1"


@pytest.mark.parametrize("table", ["update", "reward"])
async def test_what_is_learned_of_a_decision_is_found_without_reading_all(database_alone, table):
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    row = await declared(database_alone, tenant.id)
    point = (tenant.id, row.skill, row.point)
    async with connected(database_alone, "worker", tenant.id) as connection:
        for _ in range(10):
            await learned_of(connection, point, row.snapshot, [new_id()])
        decisions = await traffic(database_alone, row, ROWS)
        await learn_all(database_alone)
        before = await connection.fetchval(_READ, table)
        ids = [one.id for one in decisions[:: ROWS // ASKED]]
        assert len(await learned_of(connection, point, row.snapshot, ids)) == ASKED
        assert await connection.fetchval(_READ, table) - before <= 3 * ASKED


async def test_a_decision_that_is_named_twice_is_no_other(database_alone):
    """Also if its reward is summed from its updates, because the reward row is gone."""
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    row = await declared(database_alone, tenant.id)
    ids = [one.id for one in await traffic(database_alone, row, 5)]
    await learn_all(database_alone)
    async with connected(database_alone, "owner", tenant.id) as connection:
        await connection.execute("DELETE FROM reward")
        point = (tenant.id, row.skill, row.point)
        once = await learned_of(connection, point, row.snapshot, ids)
        assert await learned_of(connection, point, row.snapshot, [*ids, *ids]) == once
        assert 0.0 < once[ids[0]].value < 1.0
