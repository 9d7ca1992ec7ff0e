"""Helpers of the publishing tests: signers, states and logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from steersman.db.decisions import log_decisions
from steersman.db.packed_events import log_events
from steersman.db.snapshots import find_snapshot
from steersman.db.updates import base_state
from steersman.platform.postgres.database import as_tenant
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from steersman.snapshots.promote import promote
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from tests.learning.world import decided, document, happened, point_of

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.db.decisions import DecisionRow
    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.registry.description import Description

WHY = Reason(actor="test")
PASSPHRASE = "correct horse battery staple"  # noqa: S105 (of keys that live as long as a test)


def registry_of(root: Path, tenant: Tenant) -> Publisher:
    """Return a tenant's repository below a folder; create it if missing."""
    place, keys = DirectoryPlace(root / "registry" / tenant.name), Keys(root / "keys" / tenant.name)
    publisher = Publisher(place, keys)
    if not keys.trusted_root.exists():
        publisher.create(tenant.name, PASSPHRASE)
    return publisher


async def publish_point(
    database: Database, tenant: UUID, signer: Any, *, why: Reason = WHY, **candidate: Any
) -> Description:
    """Publish the tenant's point, optionally under another declaration."""
    row = await point_of(database, tenant)
    spec = document(**candidate) if candidate else None
    return await publish(database, row, signer, why, spec=spec)


async def promote_point(database: Database, tenant: UUID, version: str) -> Any:
    row = await point_of(database, tenant)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant):
            point = row.tenant, row.skill, row.point
            return await promote(
                connection, point, version, actor="test", reason="shown to be better"
            )
    finally:
        await connection.close()


async def snapshot_of(database: Database, tenant: UUID, version: str) -> tuple[SnapshotRow, bytes]:
    row = await point_of(database, tenant)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant):
            point = row.tenant, row.skill, row.point
            found = await find_snapshot(connection, point, version)
            return found, await base_state(connection, point, version)
    finally:
        await connection.close()


async def lessons(
    database: Database,
    row: PointRow,
    n: int,
    *,
    seed: int = 0,
    best: str = "deep",
    units: int | None = None,
) -> list[DecisionRow]:
    """Write uniformly drawn decisions with one best action, in two transactions."""
    rng = np.random.default_rng(seed)
    start = time.time() - 5 * 86_400
    made = [decided(row, rng, at=start + i, p=1 / 3) for i in range(n)]
    if units:
        made = [replace(one, unit=f"u{i % units}") for i, one in enumerate(made)]
    earned = [float(rng.random() < (0.9 if one.action == best else 0.1)) for one in made]
    connection = await database.connect("app")
    try:
        await log_decisions(connection, made)
        events = [happened(one, {"success": r}) for one, r in zip(made, earned, strict=True)]
        await log_events(connection, events)
    finally:
        await connection.close()
    return made
