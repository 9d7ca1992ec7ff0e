"""Where the registry and its keys are, as the environment or the home says."""

from __future__ import annotations

import os
from pathlib import Path

from steersman.registry import Keys, Publisher, open_place


def registry_location(home: Path) -> str:
    """Return where the repositories of all tenants are.

    Args:
        home: directory of all state.

    Returns:
        ``STEERSMAN_REGISTRY``, a directory or URL; or the home's own folder.

    >>> os.environ["STEERSMAN_REGISTRY"] = "s3://bucket/registry"
    >>> registry_location(Path("home"))
    's3://bucket/registry'
    >>> del os.environ["STEERSMAN_REGISTRY"]
    """
    return os.environ.get("STEERSMAN_REGISTRY") or str(home / "registry")


def keys_of(home: Path, tenant: str) -> Keys:
    """Return the folder of a tenant's signing keys; it need not be there.

    Args:
        home: directory of all state; ``STEERSMAN_KEYS`` names another place than its folder.
        tenant: its name.
    """
    return Keys(Path(os.environ.get("STEERSMAN_KEYS") or home / "keys") / tenant)


def publisher_of(home: Path, tenant: str) -> Publisher | None:
    """Return what signs a tenant's snapshots; None: its keys are not on this machine.

    Args:
        home: directory of all state.
        tenant: its name.
    """
    keys = keys_of(home, tenant)
    if not keys.trusted_root.exists():
        return None
    return Publisher(open_place(f"{registry_location(home).rstrip('/')}/{tenant}"), keys)
