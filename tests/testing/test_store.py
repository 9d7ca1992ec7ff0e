"""The store's contract holds on the embedded server and on the oldest one, and breaks are told."""

from __future__ import annotations

import asyncio

import pytest

from steersman.db.decisions import log_decisions
from steersman.db.packed_events import log_events
from steersman.testing import check_store
from tests.db.rows import connected, decision, event


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


def test_the_contract_holds(server):
    check_store(server)


async def execute(database, statement):
    async with connected(database, "owner") as connection:
        await connection.execute(statement)


@pytest.mark.parametrize(
    ("broken", "mended", "message"),
    [
        (
            "ALTER TABLE decision NO FORCE ROW LEVEL SECURITY",
            "ALTER TABLE decision FORCE ROW LEVEL SECURITY",
            "without forced row-level security: decision",
        ),
        (
            "CREATE POLICY leak ON decision FOR SELECT TO steersman_app USING (true)",
            "DROP POLICY leak ON decision",
            "app saw decision rows",
        ),
        *(
            (
                f"CREATE POLICY leak ON {table} FOR SELECT TO steersman_{role} USING (true)",
                f"DROP POLICY leak ON {table}",
                f"{role} saw {table} rows",
            )
            for table, role in (("idempotency", "app"), ("event", "worker"), ("work", "owner"))
        ),
        (
            "CREATE POLICY leak ON audit FOR ALL TO steersman_worker USING (true)",
            "DROP POLICY leak ON audit",
            "worker changed rows",
        ),
    ],
)
def test_what_is_broken_is_told(database, broken, mended, message):
    asyncio.run(execute(database, broken))
    try:
        with pytest.raises(AssertionError, match=message):
            check_store(database)
    finally:
        asyncio.run(execute(database, mended))


async def test_a_leak_is_told_whatever_else_is_stored(database, tenant):
    """A view of outcomes cannot read rows like this, and a leak shows it those of everybody."""
    made = decision(tenant.id)
    async with connected(database) as app:
        await log_decisions(app, [made])
        await log_events(app, [event(tenant.id, made.id, outcomes=[1])])
    await execute(database, "CREATE POLICY leak ON event FOR SELECT TO steersman_app USING (true)")
    try:
        with pytest.raises(AssertionError, match="app saw event rows"):
            await asyncio.to_thread(check_store, database)
    finally:
        await execute(database, "DROP POLICY leak ON event")
