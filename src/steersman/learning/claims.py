"""Claims on decision points: an advisory lock, a lease and a fencing epoch.

The lock ends with its session, so a dead learner is noticed at once. A paused learner keeps its
session, so each learner also sends heartbeats; after one lease without any, another learner takes
over. Each takeover increases the epoch, and the store rejects writes of an older epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from steersman.db.work_queue import claim, holder_of, keep_claims
from steersman.platform.postgres.advisory_lock import try_lock, unlock
from steersman.platform.postgres.database import as_tenant

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.learning.replica import Replica

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Claim:
    """Decision point that this process learns.

    Attributes:
        point: tenant, skill and decision point.
        epoch: fencing epoch of its writes.
        locked: whether this process also holds the advisory lock.
        replica: state after the last batch; None if not loaded.
        checkpointed: last update in a stored checkpoint.
        used: time of the last batch, on the event loop's clock.
    """

    point: Point
    epoch: int
    locked: bool
    replica: Replica | None = None
    checkpointed: int = 0
    used: float = 0.0


class Claims:
    """Decision points that one learner holds.

    Args:
        connection: of role worker, used only for locks.
        holder: display name of the learner.
        lease_s: seconds without a heartbeat after which a learner loses its points.
    """

    def __init__(self, connection: Any, holder: str, lease_s: float) -> None:
        self.held: dict[Point, Claim] = {}
        self._connection = connection
        self._turn = asyncio.Lock()
        self._holder = holder
        self._lease_s = lease_s
        self._elsewhere: dict[Point, float] = {}

    def elsewhere(self) -> list[Point]:
        """Return the points to skip because another learner holds them."""
        now = asyncio.get_running_loop().time()
        self._elsewhere = {point: until for point, until in self._elsewhere.items() if until > now}
        return list(self._elsewhere)

    def avoid(self, point: Point, seconds: float) -> None:
        """Skip a point for a while."""
        self._elsewhere[point] = asyncio.get_running_loop().time() + seconds

    async def take(self, point: Point) -> Claim | None:
        """Return the claim on a point.

        Returns:
            The claim; None if another learner holds the point, which is then skipped for a while.
        """
        found = self.held.get(point)
        if found is None:
            if point in self.elsewhere():
                return None
            async with self._turn:
                found = await self._claim(point)
            if found is None:
                self.avoid(point, min(1.0, self._lease_s / 4))
                return None
            self.held[point] = found
        found.used = asyncio.get_running_loop().time()
        return found

    async def give_up(self, point: Point, *, fenced: bool = False) -> None:
        """Release a point."""
        gone = self.held.pop(point, None)
        if gone is not None and gone.locked:
            async with self._turn:
                await unlock(self._connection, _name(point))
        if fenced:
            self.avoid(point, self._lease_s / 2)

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
                if held.point in holders and self._has(held):
                    await self._let_go(held, holders[held.point])
        for held in list(self.held.values()):
            if not held.locked:  # taken over from a paused learner; the lock follows later
                async with self._turn:
                    await self._lock(held)

    async def _let_go(self, held: Claim, holder: str | None) -> None:
        """Drop a point whose epoch has ended, through another learner or a new snapshot."""
        if holder:
            _log.warning("another learner holds the lock on %s/%s", *held.point[1:])
        await self.give_up(held.point, fenced=bool(holder))

    async def _lock(self, held: Claim) -> None:
        """Take the lock of a claim if it is free; release it if the claim ended meanwhile."""
        if not self._has(held):
            return
        locked = await try_lock(self._connection, _name(held.point))
        if self._has(held):
            held.locked = locked
        elif locked:
            await unlock(self._connection, _name(held.point))

    def _has(self, claim: Claim) -> bool:
        """Return whether this learner still holds the claim; it can end during a query."""
        return self.held.get(claim.point) is claim

    async def _claim(self, point: Point) -> Claim | None:
        locked = await try_lock(self._connection, _name(point))
        epoch = None
        try:
            async with as_tenant(self._connection, point[0]):
                idle_s = None if locked else self._lease_s
                epoch = await claim(self._connection, point, self._holder, idle_s=idle_s)
        except asyncpg.LockNotAvailableError:
            _log.info("%s/%s is locked by another process", *point[1:])
        if epoch is not None:
            if not locked:
                _log.warning("taking over %s/%s: its learner sends no heartbeat", *point[1:])
            return Claim(point, epoch, locked)
        if locked:
            await unlock(self._connection, _name(point))
        return None


def _name(point: Point) -> str:
    return "learn/" + "/".join(map(str, point))
