"""No tenant sees, changes, counts or infers another's rows: tried on all there is in the schema.

The lists are read from the catalogue, so that a table, view, function or role that is added later
is tried as well.
"""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from steersman.store import as_tenant, create_tenant
from tests.store.rows import connected

ROLES = ("app", "worker", "owner")
SCHEMA = "'steersman'::regnamespace"
TABLES = """
SELECT c.relname FROM pg_class AS c
WHERE c.relnamespace = 'steersman'::regnamespace AND c.relkind IN ('r', 'p')
  AND NOT c.relispartition AND c.relname <> 'migration' ORDER BY 1
"""
PARTITIONS = """
SELECT oid, relname FROM pg_class
WHERE relnamespace = 'steersman'::regnamespace AND relispartition AND relkind = 'r'
"""
VIEWS = """
SELECT relname FROM pg_class
WHERE relnamespace = 'steersman'::regnamespace AND relkind IN ('v', 'm')
"""
# What a row needs beside values of the right types.
NEEDED = {
    "api_key": {"scopes": "'{read}'"},
    "decision": {"p_kind": "'none'"},
    "event": {"episode": "'e'"},
    "tenant": {"name": "'t-' || gen_random_uuid()"},
}
FILLERS = {
    "uuid": "gen_random_uuid()",
    "text": "'x'",
    "bytea": r"'\x00'::bytea",
    "timestamptz": "now()",
    "date": "now()::date",
    "jsonb": "'{}'::jsonb",
    "_text": "'{}'::text[]",
    "_float4": "'{}'::real[]",
    "char": "'e'",
    "bool": "false",
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8"), "1"),
}


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def pair(server):
    """Return two tenants: the first asks, the second must not be noticed."""

    async def make():
        return [await create_tenant(server, f"t-{uuid4().hex}", actor="test") for _ in range(2)]

    return [tenant.id for tenant in asyncio.run(make())]


async def column(server, query, *arguments):
    async with connected(server, "owner") as connection:
        return [row[0] for row in await connection.fetch(query, *arguments)]


async def insertion(connection, table):
    """Return SQL that inserts a row of the tenant $1, whatever the table needs."""
    columns = await connection.fetch(
        "SELECT a.attname, t.typname FROM pg_attribute AS a "
        "JOIN pg_type AS t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass($1) "
        "AND a.attnum > 0 AND NOT a.attisdropped "
        "AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''",
        table,
    )
    values = {name: FILLERS[kind] for name, kind in columns} | NEEDED.get(table, {})
    values["id" if table == "tenant" else "tenant"] = "$1"
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"  # noqa: S608


async def fill(server, tenant):
    """Write a row of a tenant into every table but its own, past every policy."""
    async with connected(server, None) as connection:
        tables = [row[0] for row in await connection.fetch(TABLES) if row[0] != "tenant"]
        tables.sort(key=lambda name: name != "spec")  # what others refer to comes first
        for table in tables:
            await connection.execute(await insertion(connection, table), tenant)
    return tables


async def outcome(connection, tenant, statement, *arguments):
    """Return what a statement as a tenant gives: rows, or the name of the error. Undo it."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        if tenant is not None:
            await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant))
        return await connection.fetch(statement, *arguments)
    except asyncpg.PostgresError as error:
        return type(error).__name__
    finally:
        await transaction.rollback()


# -- what there is --------------------------------------------------------------------------------


async def test_every_table_of_tenants_has_forced_security_and_its_policy(server):
    loose = await column(
        server,
        f"""SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p') AND c.relname <> 'migration'
          AND NOT (c.relrowsecurity AND c.relforcerowsecurity)""",  # noqa: S608
    )
    assert loose == []
    without = await column(
        server,
        f"""SELECT c.relname FROM pg_class AS c
        WHERE c.relnamespace = {SCHEMA} AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname <> 'migration' AND NOT EXISTS (
            SELECT FROM pg_policy AS p WHERE p.polrelid = c.oid AND p.polcmd = '*'
              AND p.polpermissive AND p.polroles = '{{0}}'
              AND pg_get_expr(p.polqual, c.oid) = pg_get_expr(p.polwithcheck, c.oid)
              AND pg_get_expr(p.polqual, c.oid) LIKE '%current_setting(''app.tenant''%')""",  # noqa: S608
    )
    assert without == []


async def test_other_policies_are_those_that_were_meant(server):
    others = await column(
        server,
        """SELECT format('%s %s %s %s', polrelid::regclass, polname, polcmd, polroles::regrole[])
        FROM pg_policy WHERE polroles <> '{0}' ORDER BY 1""",
    )
    assert others == [
        "api_key presented r {steersman_app}",
        "tenant administer r {steersman_owner}",
        "work done_all d {steersman_worker}",
        "work see_all r {steersman_worker}",
    ]


async def test_rows_of_tenants_carry_their_tenant_in_the_primary_key(server):
    # Else a unique index would tell that somebody else has an id already.
    loose = await column(
        server,
        f"""SELECT i.indexrelid::regclass::text FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indrelid
        WHERE c.relnamespace = {SCHEMA} AND i.indisunique AND c.relname <> 'migration'
          AND NOT EXISTS (SELECT FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND a.attnum = ANY (i.indkey))
        ORDER BY 1""",  # noqa: S608
    )
    # Nobody but the owner inserts tenants, and the queue numbers its own rows.
    assert loose == ["tenant_name_key", "tenant_pkey", "work_pkey"]


async def test_foreign_keys_stay_within_a_tenant(server):
    loose = await column(
        server,
        f"""SELECT k.conname FROM pg_constraint AS k WHERE k.connamespace = {SCHEMA}
          AND k.contype = 'f' AND NOT EXISTS (SELECT FROM pg_attribute AS a
            WHERE a.attrelid = k.conrelid AND a.attname = 'tenant'
              AND a.attnum = ANY (k.conkey))""",  # noqa: S608
    )
    assert loose == []


async def test_partitions_are_reached_through_their_table_alone(server):
    async with connected(server, "owner") as connection:
        partitions = await connection.fetch(PARTITIONS)
        assert len(partitions) > 20
        for oid, name in partitions:
            granted = await connection.fetch(
                "SELECT grantee::regrole::text, privilege_type FROM pg_class, aclexplode(relacl) "
                "WHERE oid = $1 AND grantee <> relowner",
                oid,
            )
            assert granted == [], name
            policies = await connection.fetch("SELECT FROM pg_policy WHERE polrelid = $1", oid)
            assert policies == [], name


async def test_views_read_with_the_rights_of_who_asks(server):
    views = await column(server, VIEWS)
    assert views == ["outcome"]
    plain = await column(
        server,
        f"""SELECT relname FROM pg_class WHERE relnamespace = {SCHEMA} AND (relkind = 'm' OR
        relkind = 'v' AND NOT 'security_invoker=true' = ANY (coalesce(reloptions, '{{}}')))""",  # noqa: S608
    )
    assert plain == []


async def test_functions_run_with_the_rights_of_who_asks_and_find_what_they_mean(server):
    functions = await column(
        server,
        f"SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = {SCHEMA}",  # noqa: S608
    )
    assert len(functions) >= 4
    loose = await column(
        server,
        f"""SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = {SCHEMA}
        AND (prosecdef OR proleakproof OR proconfig IS NULL
             OR NOT proconfig::text ~ 'search_path=(steersman|pg_catalog)')""",  # noqa: S608
    )
    assert loose == []


async def test_roles_can_do_no_more_than_they_have_to(server):
    strong = await column(
        server,
        """SELECT rolname FROM pg_roles WHERE rolname LIKE 'steersman\\_%'
        AND rolname ~ '_(app|worker|owner)$' AND (rolsuper OR rolbypassrls OR rolcanlogin
        OR rolcreaterole OR rolcreatedb OR rolreplication)""",
    )
    assert strong == []
    memberships = await column(
        server,
        """SELECT roleid::regrole::text FROM pg_auth_members
        WHERE member::regrole::text LIKE 'steersman\\_%'""",
    )
    assert memberships == []


async def test_nothing_is_granted_to_everybody(server):
    granted = await column(
        server,
        f"""SELECT relname || ' ' || a.privilege_type FROM pg_class, aclexplode(relacl) AS a
        WHERE relnamespace = {SCHEMA} AND a.grantee = 0
        UNION ALL
        SELECT p.oid::regprocedure || ' ' || a.privilege_type FROM pg_proc AS p,
          aclexplode(coalesce(proacl, acldefault('f', proowner))) AS a
        WHERE pronamespace = {SCHEMA} AND a.grantee = 0
        UNION ALL
        SELECT nspname || ' ' || a.privilege_type FROM pg_namespace, aclexplode(nspacl) AS a
        WHERE oid = {SCHEMA} AND a.grantee = 0""",  # noqa: S608
    )
    assert granted == []


async def test_grants_are_those_that_were_meant(server):
    granted = await column(
        server,
        f"""SELECT format('%s %s %s', a.grantee::regrole, lower(a.privilege_type),
            string_agg(c.relname, ' ' ORDER BY c.relname))
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.relnamespace = {SCHEMA} AND a.grantee <> c.relowner
          AND a.privilege_type <> 'SELECT'
        GROUP BY a.grantee, a.privilege_type ORDER BY 1""",  # noqa: S608
    )
    assert granted == [
        "steersman_app insert api_key audit decision event idempotency work",
        "steersman_worker delete checkpoint work",
        "steersman_worker insert audit checkpoint excluded learner reward snapshot update work",
        "steersman_worker update learner",
    ]
    columns = await column(
        server,
        """SELECT format('%s %s %s.%s', x.grantee::regrole, lower(x.privilege_type),
            a.attrelid::regclass, a.attname)
        FROM pg_attribute AS a, aclexplode(a.attacl) AS x WHERE a.attacl IS NOT NULL
          AND (SELECT relnamespace FROM pg_class WHERE oid = a.attrelid) = 'steersman'::regnamespace
        ORDER BY 1""",
    )
    assert columns == [
        "steersman_app update api_key.revoked_at",
        "steersman_worker update decision_point.snapshot",
        "steersman_worker update decision_point.updated_at",
    ]


@pytest.mark.parametrize("role", ["app", "worker"])
async def test_who_serves_cannot_truncate_or_make_things(server, role):
    async with connected(server, role) as connection:
        for statement in (
            "TRUNCATE decision",  # row-level security does not hold it
            "CREATE TABLE mine (a int)",
            "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT * FROM migration",
            "SELECT make_partitions('2020-01-01', 1)",
            "ALTER TABLE decision NO FORCE ROW LEVEL SECURITY",
            "SELECT nextval('work_id_seq')",
            "COPY decision FROM STDIN",
        ):
            refused = await outcome(connection, None, statement)
            assert refused in {"InsufficientPrivilegeError", "FeatureNotSupportedError"}, statement
        for _, name in await connection.fetch(PARTITIONS):
            refused = await outcome(connection, None, f"SELECT FROM {name}")
            assert refused == "InsufficientPrivilegeError"


# -- what two tenants try -------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_reads_changes_or_counts_rows_of_another(server, pair, role):
    mine, theirs = pair
    tables = [*await fill(server, theirs), "tenant", *await column(server, VIEWS)]
    visible = {("worker", "work"), ("owner", "tenant")}  # the queue of all, the names of all
    async with connected(server, role) as connection:
        for table in tables:
            owner = "id" if table == "tenant" else "tenant"
            for tenant in (mine, None):
                asked = (
                    f"SELECT count(*) FROM {table} WHERE {owner} = $1",  # noqa: S608
                    f"UPDATE {table} SET {owner} = {owner} WHERE {owner} = $1 RETURNING 1",  # noqa: S608
                    f"DELETE FROM {table} WHERE {owner} = $1 RETURNING 1",  # noqa: S608
                )
                answers = [await outcome(connection, tenant, sql, theirs) for sql in asked]
                if (role, table) in visible:
                    continue
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
    assert granted == {"app": 6, "worker": 8, "owner": len(tables)}[role]


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
                f"UPDATE {table} SET {owner} = $1 WHERE {owner} = $2",  # noqa: S608
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
            if (role, table) in {("worker", "work"), ("owner", "tenant")}:
                continue
            answer = await outcome(connection, setting, f"SELECT * FROM {table} LIMIT 1")  # noqa: S608
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
                f"SELECT * FROM {table} WHERE tenant = $1",  # noqa: S608
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
                f"INSERT INTO {table} VALUES ({places}) RETURNING 1",  # noqa: S608
                *values,
            )
            assert answer == [(1,)], f"{table} {answer}"
        values = [mine, *list(rows["decision_point"])[1:]]
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        statement = f"INSERT INTO decision_point VALUES ({places})"  # noqa: S608
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
                await connection.execute(f"SELECT * FROM {table} WHERE pg_temp.peek(tenant)")  # noqa: S608
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
