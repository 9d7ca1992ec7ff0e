"""Tenants: creation and lookup."""

from __future__ import annotations

from uuid import uuid4

import pytest

from steersman.db.tenants import create_tenant, find_tenant, list_tenants
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant


async def test_a_tenant_is_found_by_its_name(database, tenant):
    assert await find_tenant(database, tenant.name) == tenant
    assert tenant in await list_tenants(database)


async def test_a_name_is_given_once(database, tenant):
    with pytest.raises(StoreError, match="already"):
        await create_tenant(database, tenant.name, actor="me")


async def test_an_unknown_name_is_told_with_those_there_are(database, tenant):
    with pytest.raises(StoreError, match=r"tenant not found: 'nobody'; [0-9]+ exist"):
        await find_tenant(database, "nobody")


@pytest.mark.parametrize("name", ["", "-a", "A", "a b", "a" * 64, "a\n", "ä"])
async def test_other_names_are_refused(database, name):
    with pytest.raises(InputError, match="1 to 63 lower-case letters"):
        await create_tenant(database, name, actor="me")


async def test_the_application_sees_its_own_name_alone(database, tenant):
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="me")
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        assert [row["id"] for row in await connection.fetch("SELECT * FROM tenant")] == [tenant.id]
    async with as_tenant(connection, other.id):
        assert [row["id"] for row in await connection.fetch("SELECT * FROM tenant")] == [other.id]
    assert await connection.fetch("SELECT * FROM tenant") == []
    await connection.close()
