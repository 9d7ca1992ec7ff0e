"""Incidents: open, close and isolation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.incidents import close_incident, incidents_of, open_incident
from steersman.db.tenants import create_tenant
from steersman.errors import StateError
from tests.db.rows import connected

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def opened(database, tenant, at=NOW, **changes):
    arguments = {"kind": "rolled_back", "summary": "it broke", "detail": {"units": 40}, **changes}
    async with connected(database, "worker", tenant) as connection:
        return await open_incident(connection, tenant, at=at, **arguments)


async def listed(database, tenant, **options):
    async with connected(database, "app", tenant) as connection:
        return await incidents_of(connection, tenant, **options)


async def test_an_incident_is_opened_listed_and_closed_once(database, tenant):
    rollout = uuid4()
    first = await opened(database, tenant.id, rollout=rollout)
    second = await opened(database, tenant.id, NOW + timedelta(hours=1), kind="drift")
    assert (first.rollout, first.at, first.kind, first.closed_at) == (
        rollout,
        NOW,
        "rolled_back",
        None,
    )
    assert (first.summary, first.detail) == ("it broke", {"units": 40})
    assert await listed(database, tenant.id) == [second, first]
    assert await listed(database, tenant.id, limit=1) == [second]
    assert await listed(database, tenant.id, rollout=rollout) == [first]
    later = NOW + timedelta(hours=2)
    async with connected(database, "worker", tenant.id) as connection:
        closed = await close_incident(connection, tenant.id, first.id, at=later)
        assert closed.closed_at == later
        again = await close_incident(connection, tenant.id, first.id, at=later + later.resolution)
        assert again == closed
    assert await listed(database, tenant.id, open_only=True) == [second]
    assert await listed(database, tenant.id) == [second, closed]


@pytest.mark.parametrize("role", ["app", "worker"])
@pytest.mark.parametrize("statement", ["UPDATE incident SET kind = 'x'", "DELETE FROM incident"])
async def test_nobody_rewrites_or_removes_one(database, tenant, role, statement):
    await opened(database, tenant.id)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, role, tenant.id) as connection:
            await connection.execute(statement)


async def test_one_tenant_neither_sees_nor_closes_anothers(database, tenant):
    mine = (await create_tenant(database, f"t-{uuid4().hex}", actor="test")).id
    theirs = await opened(database, tenant.id)
    assert await listed(database, mine) == []
    async with connected(database, "worker", mine) as connection:
        assert await incidents_of(connection, tenant.id) == []
        for owner in (mine, tenant.id):
            with pytest.raises(StateError, match="incident not found"):
                await close_incident(connection, owner, theirs.id, at=NOW)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(database, "worker", mine) as connection:
            await open_incident(connection, tenant.id, kind="x", summary="x", detail={}, at=NOW)
    assert await listed(database, tenant.id) == [theirs]
