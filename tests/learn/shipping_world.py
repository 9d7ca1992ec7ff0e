"""What tests of publishing share: signers, states, and the log that they come from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steersman.learn import promote
from steersman.learn.publishing import Reason, publish
from steersman.store import as_tenant, base_state, find_snapshot
from tests.learn.world import document, point_of

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from steersman.registry import Description
    from steersman.store import Database, SnapshotRow

WHY = Reason(actor="test")


class Folder:
    def __init__(self, root: Path) -> None:
        self.root = root

    def publish(self, data: bytes, description: Description) -> Description:
        file = self.root / f"{description.version}.zst"
        file.write_bytes(data)
        return replace(description, size=len(data), sha256=hashlib.sha256(data).hexdigest())


async def publish_point(
    database: Database, tenant: UUID, signer: Any, *, why: Reason = WHY, **candidate: Any
) -> Description:
    """Publish the one point of a tenant, under another declaration if one is named."""
    row = await point_of(database, tenant)
    spec = document(**candidate) if candidate else None
    return await publish(database, row, signer, why, spec=spec)


async def promote_point(database: Database, tenant: UUID, version: str) -> Any:
    """Promote a version of the one point of a tenant."""
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
    """Return a snapshot's row and its state."""
    row = await point_of(database, tenant)
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, tenant):
            point = row.tenant, row.skill, row.point
            found = await find_snapshot(connection, point, version)
            return found, await base_state(connection, point, version)
    finally:
        await connection.close()
