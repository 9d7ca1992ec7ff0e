"""Audit log: transactional rows and paging."""

from __future__ import annotations

import asyncpg
import pytest

from steersman.db.audit import history, record
from steersman.platform.postgres.database import as_tenant


async def test_pages_follow_each_other(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        for n in range(5):
            await record(connection, tenant.id, "me", "test", str(n), {"n": n})
    async with as_tenant(connection, tenant.id):
        first = await history(connection, limit=2)
        second = await history(connection, limit=2, before=first[-1].seq)
    assert [row.detail["n"] for row in first + second] == [4, 3, 2, 1]
    await connection.close()


async def test_what_is_rolled_back_was_not_done(database, tenant):
    connection = await database.connect("app")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await attempt(connection, tenant)
    async with as_tenant(connection, tenant.id):
        assert "never" not in [row.subject for row in await history(connection)]
    await connection.close()


async def attempt(connection, tenant):
    async with as_tenant(connection, tenant.id):
        await record(connection, tenant.id, "me", "test", "never")
        await connection.execute("SELECT 1 / 0")


@pytest.mark.parametrize("role", ["app", "worker"])
@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
async def test_nobody_rewrites_history(database, tenant, role, statement):
    connection = await database.connect(role)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with as_tenant(connection, tenant.id):
            await connection.execute(statement)
    await connection.close()
