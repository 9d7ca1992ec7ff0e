"""Claims of one learner on decision points."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.db.work_queue import Point, claim, holder_of, keep_claims
from steersman.platform.postgres.database import as_tenant
from steersman.platform.postgres.lease import Lease, Leases

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.learning.replica import Replica

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Claim(Lease):
    """Decision point that this process learns.

    Attributes:
        point: tenant, skill and decision point.
        epoch: fencing epoch of its writes.
        replica: state after the last batch; None if not loaded.
        checkpointed: last update in a stored checkpoint.
        used: time of the last batch, on the event loop's clock.
    """

    point: Point
    epoch: int
    replica: Replica | None = None
    checkpointed: int = 0
    used: float = 0.0


class Claims(Leases[Point, Claim]):
    """Decision points that one learner holds; see `Leases`."""

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        super().__init__("learn", connection, holder, lease_s)

    async def take(self, key: Point) -> Claim | None:
        """Return the claim on a point, as `Leases.take`."""
        found = await super().take(key)
        if found is not None:
            found.used = asyncio.get_running_loop().time()
        return found

    async def fenced(self, point: Point, holder: str | None) -> None:
        """Drop a point whose epoch has ended, through another learner or a new snapshot.

        Args:
            holder: its last learner; None or empty: none since the new snapshot.
        """
        if holder:
            _log.warning("another learner holds the lock on %s/%s", *point[1:])
        await self.give_up(point, pause_s=self._lease_s / 2 if holder else 0.0)

    async def keep(self) -> None:
        """Send a heartbeat and drop points that another learner has taken."""
        tenants: dict[UUID, list[Claim]] = defaultdict(list)
        for held in self.held.values():
            tenants[held.point[0]].append(held)
        for tenant, claims in tenants.items():
            rows = [(*held.point[1:], held.epoch) for held in claims]
            async with self._turn, as_tenant(self._connection, tenant):
                lost = await keep_claims(self._connection, tenant, rows)
                holders = {
                    (tenant, *name): await holder_of(self._connection, (tenant, *name))
                    for name in lost
                }
            for held in claims:
                if held.point in holders and self.has(held.point, held):
                    await self.fenced(held.point, holders[held.point])
        await super().keep()

    async def _claim(self, key: Point, idle_s: float | None) -> Claim | None:
        epoch = await claim(self._connection, key, self._holder, idle_s=idle_s)
        return None if epoch is None else Claim(key, epoch)
