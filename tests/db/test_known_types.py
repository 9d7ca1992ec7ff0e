"""Predefined types match the server, and no type query is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest

from steersman.platform.postgres.codecs import ARRAYS
from steersman.platform.postgres.database import Database
from tests.db.rows import connected

VALUES = {
    "bool": [True, None, False],
    "bytea": [b"", b"\x00\xff"],
    "int8": [-(1 << 63), (1 << 63) - 1],
    "int4": [[1, 2], [3, 4]],
    "float8": [0.1, float("inf"), None],
    "timestamptz": [datetime(2026, 11, 23, 4, 5, 6, 7, tzinfo=UTC)],
    "uuid": [UUID(int=7), UUID(int=1 << 127)],
    "jsonb": [{"a": [1, None, "é"]}, 0.5, "x"],
}


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


async def test_the_server_numbers_them_alike(server):
    async with connected(server, "app") as connection:
        rows = await connection.fetch(
            "SELECT e.typname, e.typdelim, e.oid::int8 AS own, a.oid::int8 AS array,"
            " a.typname AS many"
            " FROM pg_type AS e JOIN pg_type AS a ON a.oid = e.typarray"
            " WHERE e.typname = ANY ($1::text[])",
            list(ARRAYS),
        )
    assert {row["typname"]: (row["own"], row["array"]) for row in rows} == ARRAYS
    assert all(row["many"] == f"_{row['typname']}" and row["typdelim"] == b"," for row in rows)


@pytest.mark.parametrize("pooled", [False, True])
async def test_they_are_written_and_read_without_asking(database, monkeypatch, pooled):
    assert VALUES.keys() == ARRAYS.keys()

    async def ask(*_, **__):
        raise AssertionError("the server was asked for a type")

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    monkeypatch.setattr(asyncpg.Connection, "_introspect_type", ask)
    database = Database(database.url)  # without those that are kept
    pool = await database.pool("app") if pooled else None
    connection = await (pool.acquire() if pool else database.connect("app"))
    try:
        for name, values in VALUES.items():
            row = await connection.fetchrow(
                f"SELECT $1::{name}[] AS v, $1::{name}[]::text AS t", values
            )
            assert row["v"] == values
            again = await connection.fetchval(f"SELECT ($1::text)::{name}[]", row["t"])
            assert again == values
        assert await connection.fetchval("SELECT $1::jsonb", {"a": 1}) == {"a": 1}
    finally:
        await (pool.release(connection) if pool else connection.close())
        if pool:
            await pool.close()
