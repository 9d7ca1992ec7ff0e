"""Tenants: creation, listing and lookup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg

from steersman.db.audit import record
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from steersman.platform.postgres.database import Database

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Tenant.

    Attributes:
        id: tenant id.
        name: unique display name.
        created_at: creation time.
    """

    id: UUID
    name: str
    created_at: datetime


def check_tenant_name(name: str) -> None:
    """Raise an error if a tenant name is invalid; names become folder names.

    Args:
        name: 1 to 63 lower-case letters, digits and ``-``, not starting with ``-``.

    Raises:
        InputError: the name is invalid.

    >>> check_tenant_name("../other")
    Traceback (most recent call last):
    steersman.errors.InputError: the tenant name is '../other'; allowed are ...
    """
    if not _NAME.fullmatch(name):
        message = (
            f"the tenant name is {name!r:.80}; allowed are 1 to 63 lower-case letters, digits and "
            "'-', not starting with '-'; choose another name"
        )
        raise InputError(message)


async def create_tenant(database: Database, name: str, *, actor: str) -> Tenant:
    """Create a tenant.

    Args:
        name: 1 to 63 lower-case letters, digits and ``-``, not starting with ``-``.

    Raises:
        InputError: the name is invalid.
        StoreError: the name is taken, or the database is unreachable.
    """
    check_tenant_name(name)
    identifier = uuid4()
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, identifier):
            row = await connection.fetchrow(
                "INSERT INTO tenant (id, name) VALUES ($1, $2) RETURNING *",
                identifier,
                name,
            )
            await record(connection, identifier, actor, "tenant.create", name)
    except asyncpg.UniqueViolationError:
        message = f"the tenant {name!r} already exists; use it, or choose another name"
        raise StoreError(message) from None
    finally:
        await connection.close()
    return _tenant(row)


async def list_tenants(database: Database) -> list[Tenant]:
    """Return all tenants by name.

    Raises:
        StoreError: the database is unreachable.
    """
    connection = await database.connect("owner")
    try:
        rows = await connection.fetch("SELECT * FROM tenant ORDER BY name")
    finally:
        await connection.close()
    return [_tenant(row) for row in rows]


async def find_tenant(database: Database, name: str) -> Tenant:
    """Return the tenant of a name.

    Raises:
        StoreError: the tenant does not exist (the message lists others), or the database is
            unreachable.
    """
    tenants = await list_tenants(database)
    for tenant in tenants:
        if tenant.name == name:
            return tenant
    names = ", ".join(tenant.name for tenant in tenants[:20])
    known = f"{len(tenants)} exist: {names}" if tenants else "none exist yet"
    message = f"tenant not found: {name!r:.80}; {known}; create it with `steersman tenant create`"
    raise StoreError(message)


async def tenant_name(connection: Any, tenant: UUID) -> str:
    """Return the name of the transaction's tenant.

    Raises:
        StoreError: the tenant does not exist.
    """
    name: str | None = await connection.fetchval("SELECT name FROM tenant WHERE id = $1", tenant)
    if name is None:
        raise StoreError(f"tenant not found: {tenant}; it was removed meanwhile")
    return name


def _tenant(row: Any) -> Tenant:
    return Tenant(row["id"], row["name"], row["created_at"])
