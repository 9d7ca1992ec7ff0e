"""``steersman snapshot keys``: who may sign, and how that changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.options import actor, administers, for_tenant, tenant_option
from steersman.cli.registries import keys_of
from steersman.cli.showing import show
from steersman.cli.signing import (
    ask_passphrase,
    make_registry,
    need_publisher,
    new_passphrase,
    repository_of,
)
from steersman.rollout import checked_reason
from steersman.store import as_tenant, record

if TYPE_CHECKING:
    from steersman.store import Database, Tenant

_ROLES = ("root", "targets", "snapshot", "timestamp")
_role = click.argument("role", type=click.Choice(_ROLES))
_root_folder = click.option(
    "--root-keys",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the root key while it is here.  [default: with the others]",
)


@click.group("keys")
def keys() -> None:
    """Make, rotate and revoke a tenant's signing keys."""


@keys.command("init")
@tenant_option
@administers
def init_command(tenant_name: str, home: Path, *, as_json: bool) -> None:
    """Make keys and an empty repository, and trust its root on this machine; again changes nothing.

    The passphrase of the root key is taken from STEERSMAN_ROOT_PASSPHRASE, or asked for. The root
    key signs changes of keys and nothing else: move root.pem offline.
    """
    passphrase = ask_passphrase(home, new_for=tenant_name)

    async def work(database: Database, tenant: Tenant) -> Path:
        root = await asyncio.to_thread(make_registry, home, tenant.name, passphrase)
        await _record(database, tenant, "keys.init", {})
        return root

    root = for_tenant(home, tenant_name, work)  # nothing is made for a tenant that is not there
    shown = {
        "registry": repository_of(home, tenant_name),
        "keys": str(keys_of(home, tenant_name).folder),
        "root": str(root),
        "next": "move root.pem offline; give consumers elsewhere a copy of root.json",
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
    """Replace the key of ROLE by a new one; consumers follow by themselves.

    It needs the root key. A rotation that was interrupted is completed by the next call. New root
    keys get the passphrase STEERSMAN_NEW_ROOT_PASSPHRASE, if it is set.
    """
    _replace(home, tenant_name, role, root_keys, "keys.rotate", {}, as_json=as_json)


@keys.command("revoke")
@_role
@click.option("--reason", required=True, help="Why; kept in the audit.")
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
    """Let a key of ROLE that others may have count no more: a new one is made and signs all.

    What the old key signs from now on is refused by every consumer that asks the registry.
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
    """Write into a tenant's audit what is done to its registry.

    Args:
        home: directory of all state.
        tenant_name: whose.
        action: what, such as ``keys.rotate``.
        detail: with what; no secret.

    Raises:
        StoreError: there is no such tenant, or the database does not answer.
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
