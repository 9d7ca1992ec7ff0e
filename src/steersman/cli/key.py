"""API keys: ``steersman key``. A key's text is shown once and not stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.arguments import Number
from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import show, show_rows
from steersman.db.keys import ROLES, SCOPES, create_key, list_keys, revoke_key, rotate_key
from steersman.db.secret import load_secret
from steersman.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.db.keys import KeyRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_which = click.argument("which", metavar="KEY")
_COLUMNS = ("prefix", "name", "role", "scopes", "created_at", "expires_at", "revoked_at")


@click.group()
def command() -> None:
    """Create, list, rotate and revoke API keys.

    KEY is the id of a key or its first characters, as `steersman key list` shows them.
    """


@command.command("create")
@click.argument("name")
@tenant_option
@click.option(
    "--role",
    type=click.Choice(list(ROLES)),
    default="application",
    show_default=True,
    help="Role. application: decide, events; observer: read; operator: all scopes.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="Scope instead of the role's. Repeatable.",
)
@click.option(
    "--days",
    type=Number(min=0, min_open=True, max=36_500),
    help="Days until the key expires.  [default: never]",
)
@administers
def create(
    name: str,
    tenant_name: str,
    role: str,
    scopes: tuple[str, ...],
    days: float | None,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Create an API key named NAME. Its text is printed now and never again."""
    ends = None if days is None else datetime.now(UTC) + timedelta(days=days)

    async def work(database: Database, tenant: Tenant) -> tuple[KeyRow, str]:
        return await create_key(
            database,
            tenant.id,
            secret=load_secret(home),
            name=name,
            actor=actor(),
            role=role,
            scopes=scopes or None,
            expires_at=ends,
        )

    row, text = for_tenant(home, tenant_name, work)
    show({"key": text, **_key(row)}, as_json=as_json)


@command.command("list")
@tenant_option
@administers
def list_command(tenant_name: str, home: Path, *, as_json: bool) -> None:
    """List a tenant's API keys, including revoked and expired ones."""

    async def work(database: Database, tenant: Tenant) -> list[KeyRow]:
        return await list_keys(database, tenant.id)

    rows = [_key(row) for row in for_tenant(home, tenant_name, work)]
    none = f"{tenant_name} has no keys; `steersman key create NAME` creates one"
    show_rows(rows, _COLUMNS, as_json=as_json, none=none)


@command.command("rotate")
@_which
@tenant_option
@click.option(
    "--grace-s",
    type=Number(min=0, max=30 * 86_400),
    default=3600.0,
    show_default=True,
    help="Seconds that the old key stays valid.",
)
@administers
def rotate(which: str, tenant_name: str, grace_s: float, home: Path, *, as_json: bool) -> None:
    """Create a key that replaces KEY; services refuse KEY after a grace period."""

    async def work(database: Database, tenant: Tenant) -> tuple[KeyRow, str]:
        old = await _find(database, tenant, which)
        secret = load_secret(home)
        return await rotate_key(
            database, tenant.id, old.id, secret=secret, actor=actor(), grace_s=grace_s
        )

    row, text = for_tenant(home, tenant_name, work)
    show({"key": text, **_key(row)}, as_json=as_json)


@command.command("revoke")
@_which
@tenant_option
@administers
def revoke(which: str, tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Revoke KEY; services refuse it within a second."""

    async def work(database: Database, tenant: Tenant) -> KeyRow:
        old = await _find(database, tenant, which)
        return await revoke_key(database, tenant.id, old.id, actor=actor())

    show(_key(for_tenant(home, tenant_name, work)), as_json=as_json)


async def _find(database: Database, tenant: Tenant, which: str) -> KeyRow:
    rows = await list_keys(database, tenant.id)
    found = [row for row in rows if str(row.id) == which or which.startswith(row.prefix)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(row.prefix for row in rows) or "none"
    wrong = "several keys" if found else "no key"
    message = f"{wrong} of {tenant.name} match {which[:11]!r}; existing keys: {known}; give an id"
    raise StoreError(message)


def _key(row: KeyRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "prefix": row.prefix,
        "name": row.name,
        "role": row.role,
        "scopes": list(row.scopes),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }
