"""Keys, repositories and trusted roots of a home: how they are made, found and opened."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path  # noqa: TC003 -- examples make one

import click

from steersman.cli.registries import keys_of, publisher_of, registry_location
from steersman.errors import SigningError
from steersman.registry import Consumer, Keys, Publisher, open_place

_ROOT = "STEERSMAN_ROOT_PASSPHRASE"
_NEW_ROOT = "STEERSMAN_NEW_ROOT_PASSPHRASE"
_MADE_UP = "root-passphrase"
_SAMPLE = "sample"


def repository_of(home: Path, tenant_name: str) -> str:
    """Return where a tenant's repository is: a directory or a URL.

    Args:
        home: holds it unless ``STEERSMAN_REGISTRY`` names another place.
        tenant_name: of the tenant.

    >>> repository_of(Path("home"), "sample")
    'home/registry/sample'
    """
    return f"{registry_location(home).rstrip('/')}/{tenant_name}"


def need_publisher(home: Path, tenant_name: str, *, root_folder: Path | None = None) -> Publisher:
    """Return what signs for a tenant.

    Args:
        home: directory of all state.
        tenant_name: of the tenant.
        root_folder: where the root key is kept; None: with the others.

    Raises:
        SigningError: the tenant has no keys here.
    """
    publisher = publisher_of(home, tenant_name)
    keys = keys_of(home, tenant_name)
    if publisher is None:
        message = f"{tenant_name} has no signing keys in {keys.folder}; "
        raise SigningError(message + "`steersman snapshot keys init` makes them")
    if root_folder is not None:
        return Publisher(publisher.place, Keys(keys.folder, root_folder=root_folder))
    return publisher


def consumer_of(home: Path, tenant_name: str, *, source: str | None = None) -> Consumer:
    """Return what believes of a tenant's repository only what verifies.

    Args:
        home: holds the trusted root and a cache.
        tenant_name: of the tenant.
        source: the tenant's repository; None: that of the home.

    Raises:
        SigningError: no root is trusted here.
    """
    file = trusted_root_of(home, tenant_name)
    if not file.is_file():
        message = f"no root of {tenant_name} is trusted here: there is no {file}; copy root.json "
        raise SigningError(message + "there from whoever holds the keys")
    cache = home / "cache" / "registry" / tenant_name
    return Consumer(source or repository_of(home, tenant_name), file.read_bytes(), cache)


def trusted_root_of(home: Path, tenant_name: str) -> Path:
    """Return the file of the root that consumers on this machine trust.

    Args:
        home: holds it.
        tenant_name: of the tenant.

    >>> trusted_root_of(Path("home"), "sample").as_posix()
    'home/trust/sample/root.json'
    """
    return home / "trust" / tenant_name / "root.json"


def make_registry(home: Path, tenant_name: str, passphrase: str) -> Path:
    """Make a tenant's keys and an empty repository, and trust its root; again changes nothing.

    Args:
        home: directory of all state.
        tenant_name: of the tenant.
        passphrase: of the root key, 8 characters or more.

    Returns:
        The file of the root that is trusted here; consumers elsewhere need a copy.

    Raises:
        SigningError: there are keys with another passphrase, or this machine trusts the root of
            another registry.
        RegistryError: the registry cannot be written.
    """
    keys = keys_of(home, tenant_name)
    publisher = Publisher(open_place(repository_of(home, tenant_name)), keys)
    root = publisher.create(tenant_name, passphrase)
    file = trusted_root_of(home, tenant_name)
    if file.exists() and not publisher.leads_from(file.read_bytes()):
        message = f"the registry is there, and this machine does not trust it: {file} is the root "
        message += (
            f"of another one. If it is to be replaced, copy {keys.trusted_root} over it, and "
        )
        raise SigningError(message + "give that to consumers elsewhere")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_suffix(".part")
        part.write_bytes(root)
        part.replace(file)
    return file


def make_sample_registry(home: Path, tenant_name: str) -> Path | None:
    """Make a registry without asking anybody, for ``up`` and ``demo``; again changes nothing.

    The passphrase is made up and kept in the home, readable by its owner alone: whoever goes into
    production moves it offline, with the root key.

    Args:
        home: directory of all state.
        tenant_name: of the tenant.

    Returns:
        The file of the passphrase if the registry was made just now, to be told to a person.
    """
    known = keys_of(home, tenant_name).trusted_root, trusted_root_of(home, tenant_name)
    if all(file.exists() for file in known):
        return None
    file = home / _MADE_UP
    if known[0].exists() and not file.exists():
        make_registry(home, tenant_name, "")  # whoever brought the keys knows their passphrase
        return None
    if not (file.exists() and file.read_text()):  # whoever was killed may have left an empty one
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
    """Return the commit of what publishes: ``STEERSMAN_GIT_COMMIT``, or that of this directory."""
    given = os.environ.get("STEERSMAN_GIT_COMMIT")
    git = shutil.which("git")
    if given or git is None:
        return given
    try:
        ran = subprocess.run(  # noqa: S603 (no text of anybody's is in it)
            [git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None


def new_passphrase() -> str | None:
    """Return the passphrase that new root keys get; None: that of the old ones."""
    return os.environ.get(_NEW_ROOT)


def ask_passphrase(home: Path, *, new_for: str | None = None) -> str:
    """Return the passphrase of the root key: from the environment, the home, or a person.

    Args:
        home: may hold one that `make_sample_registry` made up.
        new_for: the tenant for which a key is about to be made; then it is asked for twice. One
            that was made up, and lies beside the keys, is for the sample alone.
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
