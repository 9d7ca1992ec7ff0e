"""``steersman snapshot keys``: signing keys of a tenant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.output import show
from steersman.cli.signing_keys import (
    ask_passphrase,
    keys_of,
    make_registry,
    need_publisher,
    new_passphrase,
    repository_of,
)
from steersman.db.audit import record
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.state_machine import checked_reason

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database

_ROLES = ("root", "targets", "snapshot", "timestamp")
_role = click.argument("role", type=click.Choice(_ROLES))
_root_folder = click.option(
    "--root-keys",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the root key.  [default: folder of the other keys]",
)


@click.group("keys")
def keys() -> None:
    """Create, rotate and revoke a tenant's signing keys."""


@keys.command("init")
@tenant_option
@administers
def init_command(tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Create keys and an empty registry, and trust its root on this machine; idempotent.

    The command reads the passphrase of the root key from STEERSMAN_ROOT_PASSPHRASE, or asks for it.
    The root key signs only key changes: move root.pem offline.
    """
    passphrase = ask_passphrase(home, new_for=tenant_name)

    async def work(database: Database, tenant: Tenant) -> Path:
        root = await asyncio.to_thread(make_registry, home, tenant.name, passphrase)
        await _record(database, tenant, "keys.init", {})
        return root

    root = for_tenant(
        home, tenant_name, work
    )  # fails before anything is created if the tenant does not exist
    shown = {
        "registry": repository_of(home, tenant_name),
        "keys": str(keys_of(home, tenant_name).folder),
        "root": str(root),
        "next": "move root.pem offline; copy root.json to consumers on other machines",
    }
    show(shown, as_json=as_json)


@keys.command("rotate")
@_role
@_root_folder
@tenant_option
@administers
def rotate_command(
    role: str, root_keys: Path | None, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Replace the key of ROLE with a new one; consumers accept it automatically.

    It needs the root key. If a rotation was interrupted, the next call completes it. New root keys
    get the passphrase in STEERSMAN_NEW_ROOT_PASSPHRASE, if it is set.
    """
    _replace(home, tenant_name, role, root_keys, "keys.rotate", {}, as_json=as_json)


@keys.command("revoke")
@_role
@click.option("--reason", required=True, help="Reason; stored in the audit log.")
@_root_folder
@tenant_option
@administers
def revoke_command(
    role: str,
    reason: str,
    root_keys: Path | None,
    tenant_name: str,
    home: Path,
    *,
    as_json: bool,
) -> None:
    """Revoke a stolen key of ROLE: a new key replaces it and signs everything again.

    Consumers that reach the registry refuse what the old key signs from now on.
    """
    detail = {"reason": checked_reason(reason)}
    _replace(home, tenant_name, role, root_keys, "keys.revoke", detail, as_json=as_json)


def _replace(
    home: Path,
    tenant_name: str,
    role: Any,
    root_keys: Path | None,
    action: str,
    detail: dict[str, str],
    *,
    as_json: bool,
) -> None:
    publisher = need_publisher(home, tenant_name, root_folder=root_keys)
    new = new_passphrase() if role == "root" else None
    publisher.rotate(role, ask_passphrase(home), new_passphrase=new)
    fresh = publisher.refresh_timestamp()
    write_down(home, tenant_name, action, {"role": role, **detail})
    shown = {"role": role, "expires": fresh.expires, "root_expires": fresh.root_expires}
    show(shown, as_json=as_json)


def write_down(home: Path, tenant_name: str, action: str, detail: dict[str, str]) -> None:
    """Record a change of a tenant's registry in the audit log.

    `action` is a name such as ``keys.rotate``; `detail` must not contain secrets.

    Raises:
        StoreError: the tenant does not exist, or the database does not answer.
    """
    for_tenant(
        home, tenant_name, lambda database, tenant: _record(database, tenant, action, detail)
    )


async def _record(database: Database, tenant: Tenant, action: str, detail: dict[str, str]) -> None:
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant.id):
            await record(connection, tenant.id, actor(), action, tenant.name, detail)
    finally:
        await connection.close()
