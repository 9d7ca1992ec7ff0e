"""Signing keys, registries and trusted roots of a home directory."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.cli.options import actor, administers, find_point, for_tenant, tenant_option
from steersman.cli.output import show
from steersman.errors import SigningError, SteersmanError
from steersman.platform.postgres.database import AWAY
from steersman.registry.bucket import open_place
from steersman.registry.consumer import Consumer
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.snapshots.release_marks import mark_point, release_version

if TYPE_CHECKING:
    from steersman.db.tenants import Tenant
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database


def registry_location(home: Path) -> str:
    """Return the location of all tenants' repositories.

    >>> os.environ["STEERSMAN_REGISTRY"] = "s3://bucket/registry"
    >>> registry_location(Path("home"))
    's3://bucket/registry'
    >>> del os.environ["STEERSMAN_REGISTRY"]
    """
    return os.environ.get("STEERSMAN_REGISTRY") or str(home / "registry")


def keys_of(home: Path, tenant: str) -> Keys:
    """Return a tenant's folder of signing keys, which may not exist; see ``STEERSMAN_KEYS``."""
    return Keys(Path(os.environ.get("STEERSMAN_KEYS") or home / "keys") / tenant)


def publisher_of(home: Path, tenant: str) -> Publisher | None:
    """Return the publisher of a tenant's snapshots; None: its keys are not on this machine."""
    keys = keys_of(home, tenant)
    if not keys.trusted_root.exists():
        return None
    return Publisher(open_place(f"{registry_location(home).rstrip('/')}/{tenant}"), keys)


_ROOT = "STEERSMAN_ROOT_PASSPHRASE"
_NEW_ROOT = "STEERSMAN_NEW_ROOT_PASSPHRASE"
_MADE_UP = "root-passphrase"
_SAMPLE = "sample"


def repository_of(home: Path, tenant_name: str) -> str:
    """Return the directory or URL of a tenant's registry.

    It is in the home directory unless ``STEERSMAN_REGISTRY`` names another place.

    >>> repository_of(Path("home"), "sample")
    'home/registry/sample'
    """
    return f"{registry_location(home).rstrip('/')}/{tenant_name}"


def need_publisher(home: Path, tenant_name: str, *, root_folder: Path | None = None) -> Publisher:
    """Return the publisher that signs for a tenant.

    `root_folder` is the folder of the root key; None: the folder of the other keys.

    Raises:
        SigningError: the tenant has no keys on this machine.
    """
    publisher = publisher_of(home, tenant_name)
    keys = keys_of(home, tenant_name)
    if publisher is None:
        message = f"tenant {tenant_name} has no signing keys in {keys.folder}; "
        raise SigningError(message + "create them with `steersman snapshot keys init`")
    if root_folder is not None:
        return Publisher(publisher.place, Keys(keys.folder, root_folder=root_folder))
    return publisher


def consumer_of(home: Path, tenant_name: str, *, source: str | None = None) -> Consumer:
    """Return a consumer of a tenant's registry, which loads only what verifies.

    `source` is the directory or URL of the registry; None: the registry of the home directory.

    Raises:
        SigningError: this machine has no trusted root for the tenant.
    """
    file = trusted_root_of(home, tenant_name)
    if not file.is_file():
        message = f"no trusted root for tenant {tenant_name}: {file} not found; copy root.json "
        raise SigningError(message + "to this path from the machine that holds the keys")
    cache = home / "cache" / "registry" / tenant_name
    return Consumer(source or repository_of(home, tenant_name), file.read_bytes(), cache)


def trusted_root_of(home: Path, tenant_name: str) -> Path:
    """Return the path of the root that consumers on this machine trust.

    >>> trusted_root_of(Path("home"), "sample").as_posix()
    'home/trust/sample/root.json'
    """
    return home / "trust" / tenant_name / "root.json"


def make_registry(home: Path, tenant_name: str, passphrase: str) -> Path:
    """Create a tenant's keys and an empty registry, and trust its root; idempotent.

    `passphrase` protects the root key and has at least 8 characters. The result is the path of the
    trusted root; consumers on other machines need a copy.

    Raises:
        SigningError: the keys have another passphrase, or this machine trusts the root of another
            registry.
        RegistryError: the registry cannot be written.
    """
    keys = keys_of(home, tenant_name)
    publisher = Publisher(open_place(repository_of(home, tenant_name)), keys)
    root = publisher.create(tenant_name, passphrase)
    file = trusted_root_of(home, tenant_name)
    if file.exists() and not publisher.leads_from(file.read_bytes()):
        message = f"this machine does not trust the existing registry: {file} is the root of "
        message += f"another registry; to trust this one, copy {keys.trusted_root} to {file} "
        raise SigningError(message + "and to all other consumers")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(".part")
        part.write_bytes(root)
        part.replace(file)
    return file


def make_sample_registry(home: Path, tenant_name: str) -> Path | None:
    """Create a registry without a prompt, for ``up`` and ``demo``; idempotent.

    The passphrase is random and stays in the home directory, readable by its owner only. Before
    production, move it and the root key offline.

    Returns:
        The path of the passphrase if the registry is new; None otherwise.
    """
    known = keys_of(home, tenant_name).trusted_root, trusted_root_of(home, tenant_name)
    if all(file.exists() for file in known):
        return None
    file = home / _MADE_UP
    if known[0].exists() and not file.exists():
        make_registry(home, tenant_name, "")  # imported keys: their owner knows the passphrase
        return None
    if not (file.exists() and file.read_text()):  # a killed process may have left it empty
        part = file.with_suffix(".part")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as opened:
            opened.write(secrets.token_urlsafe(24))
            opened.flush()
            os.fsync(handle)
        part.replace(file)
    make_registry(home, tenant_name, file.read_text())
    return file


def git_commit() -> str | None:
    """Return ``STEERSMAN_GIT_COMMIT``, or the commit of the working directory; None: unknown."""
    given = os.environ.get("STEERSMAN_GIT_COMMIT")
    git = shutil.which("git")
    if given or git is None:
        return given
    try:
        ran = subprocess.run(  # noqa: S603 (constant arguments)
            [git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None


def new_passphrase() -> str | None:
    """Return the passphrase of new root keys; None: they keep the old one."""
    return os.environ.get(_NEW_ROOT)


def ask_passphrase(home: Path, *, new_for: str | None = None) -> str:
    """Return the passphrase of the root key: from the environment, the home directory or a prompt.

    `new_for` is the tenant of a new key; then the prompt asks twice. The generated passphrase of
    `make_sample_registry` lies beside the keys, so new keys use it only for the sample tenant.
    """
    given = os.environ.get(_ROOT)
    if given:
        return given
    new = new_for not in {None, _SAMPLE} and not keys_of(home, str(new_for)).trusted_root.exists()
    if (home / _MADE_UP).exists() and not new:
        return (home / _MADE_UP).read_text()
    prompt = "New passphrase of the root key" if new_for else "Passphrase of the root key"
    twice = new_for is not None
    typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
    return typed


@click.command("release")
@click.argument("skill")
@click.argument("point")
@click.argument("version")
@tenant_option
@administers
def release_command(
    skill: str, point: str, version: str, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Sign the mark `released` for VERSION of POINT now; consumers then load it.

    `steersman rollout run` signs it within 30 seconds after a promotion. A version that never
    served is refused: promote it with a rollout.
    """
    publisher = need_publisher(home, tenant_name)

    async def work(database: Database, tenant: Tenant) -> bool:
        await find_point(database, tenant, skill, point)
        key = tenant.id, skill, point
        return await release_version(database, key, version, publisher, actor=actor())

    changed = for_tenant(home, tenant_name, work)
    shown = {"version": version, "standing": "released", "changed": changed}
    show(shown, as_json=as_json)


async def mark_here(home: Path, tenant_name: str, database: Database, point: Point) -> None:
    """Sign the marks of a point's versions, if this machine has the keys.

    Without the keys, the controller signs them later. A failure is printed, not raised.
    """
    try:
        publisher = publisher_of(home, tenant_name)
        if publisher is not None:
            await mark_point(database, point, publisher, actor=actor())
    except (*AWAY, SteersmanError) as error:
        # The command itself succeeded, so this must not look like its failure.
        click.echo(
            f"mark not signed yet: {error}; `steersman rollout run` signs it later", err=True
        )
