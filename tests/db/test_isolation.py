"""Tenant isolation: no tenant sees, changes, counts or infers another's rows, in any role.

Tables, views and roles come from the catalogue, so that new ones are tested too.
"""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from steersman.db.tenants import create_tenant
from steersman.platform.postgres.database import as_tenant
from tests.db.rows import connected
from tests.db.schema import (
    ROLES,
    SEEN_BY_ALL,
    TABLES,
    VIEWS,
    column,
    fill,
    insertion,
    outcome,
)
from tests.kept import run


@pytest.fixture(params=["database_alone", "database_15"])  # nobody could learn from these rows
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def pair(server):
    """Return two tenants: the first asks, the second must stay invisible."""

    async def make():
        return [await create_tenant(server, f"t-{uuid4().hex}", actor="test") for _ in range(2)]

    return [tenant.id for tenant in run(make())]


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_reads_changes_or_counts_rows_of_another(server, pair, role):
    mine, theirs = pair
    tables = [*await fill(server, theirs), "tenant", *await column(server, VIEWS)]
    async with connected(server, role) as connection:
        for table in tables:
            owner = "id" if table == "tenant" else "tenant"
            for tenant in (mine, None):
                asked = (
                    f"SELECT count(*) FROM {table} WHERE {owner} = $1",
                    f"UPDATE {table} SET {owner} = {owner} WHERE {owner} = $1 RETURNING 1",
                    f"DELETE FROM {table} WHERE {owner} = $1 RETURNING 1",
                )
                answers = [await outcome(connection, tenant, sql, theirs) for sql in asked]
                if (role, table) in SEEN_BY_ALL:
                    answers = answers[1:2]
                for answer in answers:
                    harmless = isinstance(answer, str) and answer in {
                        "InsufficientPrivilegeError",
                        "ObjectNotInPrerequisiteStateError",  # a view is not written to
                        "WrongObjectTypeError",
                    }
                    assert harmless or answer in ([], [(0,)]), f"{role} {table} {answer}"


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_writes_rows_of_another(server, pair, role):
    mine, theirs = pair
    await fill(server, theirs)
    granted = 0
    tables = await column(server, TABLES)
    async with connected(server, role) as connection:
        for table in tables:
            statement = await insertion(connection, table)
            target = uuid4() if table == "tenant" else theirs
            for tenant in (mine, None):
                for sql in (statement, f"{statement} ON CONFLICT DO NOTHING"):
                    refused = await outcome(connection, tenant, sql, target)
                    assert refused == "InsufficientPrivilegeError", f"{role} {table} {refused}"
            # The same row is taken from whoever is set to its tenant, where the role may insert.
            allowed = await outcome(connection, target, statement, target)
            granted += allowed != "InsufficientPrivilegeError"
    assert granted == {"app": 8, "worker": 13, "owner": len(tables)}[role]


@pytest.mark.parametrize("role", ROLES)
async def test_rows_cannot_be_given_to_another(server, pair, role):
    mine, theirs = pair
    await fill(server, mine)
    async with connected(server, role) as connection:
        for table in await column(server, TABLES):
            owner = "id" if table == "tenant" else "tenant"
            refused = await outcome(
                connection,
                mine,
                f"UPDATE {table} SET {owner} = $1 WHERE {owner} = $2",
                *(theirs, mine),
            )
            assert refused == "InsufficientPrivilegeError", f"{role} {table} {refused}"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("setting", ["", "nobody", "' OR true --", "00000000"])
async def test_what_is_no_tenant_sees_nothing(server, pair, role, setting):
    _, theirs = pair
    await fill(server, theirs)
    async with connected(server, role) as connection:
        for table in await column(server, TABLES):
            if (role, table) in SEEN_BY_ALL:
                continue
            answer = await outcome(connection, setting, f"SELECT * FROM {table} LIMIT 1")
            assert answer in (
                [],
                "InvalidTextRepresentationError",
                "InsufficientPrivilegeError",
            ), f"{role} {table}"


async def test_ids_of_another_can_be_used_without_a_trace(server, pair):
    # A key, an id or a name that another tenant has is as good as any: nothing tells it is taken.
    mine, theirs = pair
    await fill(server, theirs)
    async with connected(server, None) as connection:
        rows = {
            table: await connection.fetchrow(
                f"SELECT * FROM {table} WHERE tenant = $1",
                theirs,
            )
            for table in await column(server, TABLES)
            if table not in {"tenant", "work"}
        }
    async with connected(server, "owner") as connection:
        for table, row in rows.items():
            if table == "decision_point":
                continue  # it needs a declaration of its own
            values = [mine if name == "tenant" else value for name, value in row.items()]
            places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
            answer = await outcome(
                connection,
                mine,
                f"INSERT INTO {table} VALUES ({places}) RETURNING 1",
                *values,
            )
            assert answer == [(1,)], f"{table} {answer}"
        values = [mine, *list(rows["decision_point"])[1:]]
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        statement = f"INSERT INTO decision_point VALUES ({places})"
        missing = await outcome(connection, mine, statement, *values)
        values[3] = b"nowhere"
        nowhere = await outcome(connection, mine, statement, *values)
        # A declaration that another tenant has is as absent as one that nobody has.
        assert missing == nowhere == "ForeignKeyViolationError"


async def test_the_tenant_does_not_outlive_its_transaction_in_a_pool(server, pair):
    mine, theirs = pair
    await fill(server, mine)
    await fill(server, theirs)
    pool = await server.pool("app", least=1, most=1)
    try:
        for end in ("commit", "rollback"):
            async with pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute("SELECT set_config('app.tenant', $1, true)", str(mine))
                assert len(await connection.fetch("SELECT * FROM decision")) == 1
                await getattr(transaction, end)()
            async with pool.acquire() as connection:
                assert await connection.fetch("SELECT * FROM decision") == []
                async with as_tenant(connection, theirs):
                    found = await connection.fetch("SELECT tenant FROM decision")
                assert [row["tenant"] for row in found] == [theirs]
    finally:
        await pool.close()


async def test_a_session_setting_ends_with_the_connections_turn(server, pair):
    mine, _ = pair
    await fill(server, mine)
    pool = await server.pool("app", least=1, most=1)
    try:
        async with pool.acquire() as connection:
            await connection.execute("SELECT set_config('app.tenant', $1, false)", str(mine))
        async with pool.acquire() as connection:
            assert await connection.fetch("SELECT * FROM decision") == []
    finally:
        await pool.close()


async def test_a_function_of_ones_own_never_sees_a_row_of_another(server, pair):
    # The planner may not run it before the policy, however cheap it says it is.
    mine, theirs = pair
    await fill(server, mine)
    await fill(server, theirs)
    seen = []
    async with connected(server, "app") as connection:
        connection.add_log_listener(lambda _, message: seen.append(message.message))
        await connection.execute(
            "CREATE FUNCTION pg_temp.peek(uuid) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS "
            "$$BEGIN RAISE NOTICE '%', $1; RETURN true; END$$"
        )
        async with as_tenant(connection, mine):
            for table in ("decision", "event", "api_key", "outcome", "work"):
                await connection.execute(f"SELECT * FROM {table} WHERE pg_temp.peek(tenant)")
        leak = await outcome(connection, mine, "ALTER FUNCTION pg_temp.peek LEAKPROOF")
        assert leak == "InsufficientPrivilegeError"
    assert str(mine) in seen
    assert str(theirs) not in seen


async def test_statistics_show_no_values_of_another(server, pair):
    _, theirs = pair
    await fill(server, theirs)
    async with connected(server, None) as connection:
        await connection.execute("ANALYZE decision, api_key, idempotency")
    for role in ("app", "worker"):
        async with connected(server, role) as connection:
            shown = await connection.fetch(
                "SELECT tablename FROM pg_stats WHERE schemaname = 'steersman'"
            )
            assert {row[0] for row in shown} <= {"migration"}, role
            refused = await outcome(connection, None, "SELECT starelid FROM pg_statistic")
            assert refused == "InsufficientPrivilegeError"


async def test_a_key_is_seen_by_who_presents_its_hash_and_nobody_else(server, pair):
    _, theirs = pair
    async with connected(server, "owner", theirs) as connection:
        await connection.execute(
            "INSERT INTO api_key (tenant, id, name, prefix, hash, role, scopes) "
            r"VALUES ($1, gen_random_uuid(), 'n', 'sk_', '\xabcd', 'observer', '{read}')",
            theirs,
        )
    async with connected(server, "app") as connection:
        for hashes, count in (("abcd", 1), ("0123,abcd", 1), ("ab", 0), ("", 0), (",", 0)):
            async with connection.transaction():
                await connection.execute("SELECT set_config('app.key_hashes', $1, true)", hashes)
                rows = await connection.fetch("SELECT * FROM api_key")
                assert len(rows) == count, hashes
        assert await connection.fetch("SELECT * FROM api_key") == []
    async with connected(server, "worker") as connection:
        assert await outcome(connection, theirs, "SELECT FROM api_key") == (
            "InsufficientPrivilegeError"
        )


async def test_a_batch_for_several_tenants_checks_each_row(server, pair):
    # A slice that names one tenant and holds another's row is refused as a whole.
    mine, theirs = pair
    async with connected(server, "app") as connection:
        refused = await outcome(
            connection,
            None,
            "SELECT * FROM log_decisions(ARRAY(SELECT jsonb_populate_record(NULL::decision, "
            "jsonb_build_object('tenant', $1::uuid, 'id', $2::uuid, 'skill', 's', 'point', 'p', "
            "'stage', 'live', 'arm', 'control', 'snapshot', '0', 'update_seq', 0, 'spec_hash', '', "
            "'feature_hash', '', 'context', '{}'::jsonb, 'distribution', '[]'::jsonb, 'action', "
            "'a', 'p_kind', 'none', 'degraded', false, 'weight', 1, 'at', now(), 'window_ends', "
            "now()))), ARRAY[$3::uuid], '{1}', '{1}', '{}')",
            *(theirs, UUID(int=7 << 76), mine),
        )
        assert refused == "InsufficientPrivilegeError"
