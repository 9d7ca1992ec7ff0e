"""Locations of the registry and its keys, from the environment or the home."""

from __future__ import annotations

import os
from pathlib import Path

from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher


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
