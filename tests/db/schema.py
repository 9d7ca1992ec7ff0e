"""Schema catalogue, and a valid row for every table."""

from __future__ import annotations

import asyncpg

from tests.db.rows import connected

ROLES = ("app", "worker", "owner")
# What a role sees of all tenants: the two queues, and the names.
SEEN_BY_ALL = {("worker", "work"), ("worker", "rollout_task"), ("owner", "tenant")}
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
    "rollout": {"status": "'running'", "stage": "'live'"},
    "snapshot": {"reason": "'declared'"},
    "tenant": {"name": "'t-' || gen_random_uuid()"},
    "verdict": {"verdict": "'hold'", "acted": "'held'"},
}
FILLERS = {
    # Today's, as the ids of decisions are.
    "uuid": "(left(first_id(current_date)::text, 14) || '7' || "
    "right(gen_random_uuid()::text, 21))::uuid",
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


async def column(server, query, *arguments):
    async with connected(server, "owner") as connection:
        return [row[0] for row in await connection.fetch(query, *arguments)]


async def insertion(connection, table):
    """Return SQL that inserts a valid row of tenant $1."""
    columns = await connection.fetch(
        "SELECT a.attname, t.typname FROM pg_attribute AS a "
        "JOIN pg_type AS t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass($1) "
        "AND a.attnum > 0 AND NOT a.attisdropped "
        "AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''",
        table,
    )
    values = {name: FILLERS[kind] for name, kind in columns} | NEEDED.get(table, {})
    values["id" if table == "tenant" else "tenant"] = "$1"
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


async def fill(server, tenant):
    """Write a row of a tenant into every other table, bypassing policies."""
    async with connected(server, None) as connection:
        tables = [row[0] for row in await connection.fetch(TABLES) if row[0] != "tenant"]
        tables.sort(key=lambda name: name != "spec")  # what others refer to comes first
        for table in tables:
            await connection.execute(await insertion(connection, table), tenant)
    return tables


async def outcome(connection, tenant, statement, *arguments):
    """Return the rows or the error name of a statement as a tenant, and roll back."""
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
