"""A registry beside a home, and rollouts moved by hand: what tests of the service need of both."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import hold_point, last_update
from steersman.db.points import points_of
from steersman.db.promotion import promote_snapshot
from steersman.db.rollout_transitions import claim_rollout, move_rollout, start_rollout
from steersman.platform.postgres.database import as_tenant
from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.rollouts.plan import plan_of
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.platform.postgres.database import Database
    from steersman.registry.description import Description

_LOCK = "correct horse battery staple"


@dataclass
class Shipping:
    """What publishes and rolls out for a tenant.

    Attributes:
        database: Where its points are.
        tenant: Its id.
        name: Its name.
        home: Of the service that is to serve it.
    """

    database: Database
    tenant: UUID
    name: str
    home: Path
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        """Make keys, an empty repository and the root that consumers trust."""
        place = open_place(str(self.home / "registry" / self.name))
        self.publisher = Publisher(place, Keys(self.home / "keys" / self.name))
        trust = self.home / "trust" / self.name
        trust.mkdir(parents=True, exist_ok=True)
        (trust / "root.json").write_bytes(self.publisher.create(self.name, _LOCK))

    @property
    def folder(self) -> Path:
        """Where the repository lies."""
        return self.home / "registry" / self.name

    async def point(self) -> PointRow:
        """Return the tenant's one point."""
        async with self.acting("app") as connection:
            (row,) = await points_of(connection, self.tenant)
            return row

    async def publish(self, *, spec: str | None = None) -> Description:
        """Publish what the point has learned."""
        row = await self.point()
        why = Reason(actor="test", force="a test")
        return await publish(self.database, row, self.publisher, why, spec=spec)

    async def start(self, candidate: str, stage: str, share: float) -> RolloutRow:
        """Start a rollout at a stage."""
        row = await self.point()
        point = row.tenant, row.skill, row.point
        plan = plan_of(row.spec, salt="salt")
        async with self.acting("worker") as connection:
            await hold_point(connection, point)
            return await start_rollout(
                connection,
                point,
                candidate=candidate,
                control=row.snapshot,
                control_seq=await last_update(connection, point),
                stage=stage,
                share=share,
                salt="salt",
                plan=plan.to_json(),
                now=datetime.now(UTC),
            )

    async def move(self, row: RolloutRow, **changes: Any) -> RolloutRow:
        """Change where a rollout stands."""
        async with self.acting("worker") as connection:
            return await self._move(connection, row, changes)

    async def promote(self, row: RolloutRow) -> float:
        """Let the candidate take over; return when that was committed."""
        async with self.acting("worker") as connection:
            point = row.tenant, row.skill, row.point
            await promote_snapshot(connection, point, row.candidate)
            await self._move(connection, row, {"status": "promoted"})
        return time.monotonic()

    async def serve(self, version: str) -> float:
        """Let a published version serve without what was learned since; return when it did."""
        row = await self.point()
        async with self.acting("worker") as connection:
            await promote_snapshot(connection, (row.tenant, row.skill, row.point), version, rows=[])
        return time.monotonic()

    async def _move(self, connection: Any, row: RolloutRow, changes: dict[str, Any]) -> RolloutRow:
        held = await claim_rollout(connection, row.tenant, row.id, "test", idle_s=None)
        assert held is not None
        now = datetime.now(UTC)
        return await move_rollout(connection, held, held.epoch, now=now, **changes)

    @asynccontextmanager
    async def acting(self, role: Any) -> AsyncIterator[Any]:
        """Return a connection within a transaction of the tenant."""
        connection = await self.database.connect(role)
        try:
            async with as_tenant(connection, self.tenant):
                yield connection
        finally:
            await connection.close()
