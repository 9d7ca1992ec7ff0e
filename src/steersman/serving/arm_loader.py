"""Background loading of served states: verify, apply updates, hand over.

The deciding thread only queries the store. Other threads fetch and verify bases, decompress states
and apply updates. No database connection is held during a request to a registry.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from steersman.db.snapshots import find_snapshot, snapshots_of
from steersman.errors import SteersmanError
from steersman.learning.replica import load
from steersman.platform.postgres.database import AWAY, as_tenant
from steersman.platform.retry import Backoff
from steersman.serving.draw import ServedPoint
from steersman.snapshots.verified_bases import of_snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
    from uuid import UUID

    from asyncpg import Pool

    from steersman.db.points import PointRow
    from steersman.snapshots.verified_bases import VerifiedBases

_log = logging.getLogger(__name__)
_AT_ONCE = 2
_BACKOFF = Backoff(first_s=0.2, longest_s=30.0)


class Loader:
    """Loader of decision points for serving.

    Args:
        pool: connections of role app, for reading.
        verified: loader of verified bases.
    """

    def __init__(self, pool: Pool[Any], verified: VerifiedBases) -> None:
        self._pool = pool
        self._verified = verified
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def load(self, row: PointRow, until: int | None) -> ServedPoint:
        """Return a decision point that is ready to serve.

        Args:
            until: update number to stay at; None: apply all updates.

        Raises:
            SteersmanError: the state cannot be loaded or must not be served.
        """
        async with self._connection(row.tenant) as connection:
            request = await self._verified.find(connection, row)
        bases = await self._verified.fetch(request)
        async with self._slots, self._connection(row.tenant) as connection:
            replica = await load(connection, row, until=until, bases=bases)
        return ServedPoint(replica)

    async def stand_in(self, row: PointRow) -> ServedPoint:
        """Return a substitute for a snapshot that cannot be loaded.

        It is the newest published snapshot that verifies, without later updates; else the newest
        prior.

        Raises:
            SteersmanError: no substitute exists.
        """
        try:
            async with self._connection(row.tenant) as connection:
                good = await self._verified.last_good(connection, row)
            return await self.load(good, 0)
        except SteersmanError as error:
            _log.warning("%s/%s has no valid snapshot: %s", row.skill, row.point, error)
        async with self._connection(row.tenant) as connection:
            point = row.tenant, row.skill, row.point
            rows = await snapshots_of(connection, point)
            prior = max((it for it in rows if it.reason != "published"), key=_made)
            of_prior = await of_snapshot(connection, row, prior)
        return await self.load(of_prior, 0)

    async def retracted(self, row: PointRow, version: str) -> bool:
        """Return whether a snapshot was retracted.

        Raises:
            StateError: the store does not know the snapshot.
        """
        async with self._connection(row.tenant) as connection:
            point = row.tenant, row.skill, row.point
            return (await find_snapshot(connection, point, version)).retracted_at is not None

    @asynccontextmanager
    async def _connection(self, tenant: UUID) -> AsyncIterator[Any]:
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            yield connection


def _made(row: Any) -> Any:
    return row.created_at, row.version


class Slot:
    """Served state of one arm: loaded, loading, or failed with a later retry.

    Args:
        name: name for log messages.
        clock: monotonic clock in seconds.
        changed: callback after a load or a failure.
    """

    def __init__(self, name: str, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self.key: Hashable = None
        self.served: ServedPoint | None = None
        self.error = ""
        self._name = name
        self._clock = clock
        self._changed = changed
        self._tries = 0
        self._again_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def want(self, key: Hashable, make: Callable[[], Awaitable[ServedPoint | None]]) -> None:
        """Start loading the wanted state unless it is loaded or loading.

        Args:
            make: loads the state; returns None if no state is needed now.
        """
        if key != self.key:
            self.forget()
            self.key = key
        if self.served is None and self._task is None and self._clock() >= self._again_at:
            self._task = asyncio.get_running_loop().create_task(self._make(key, make))

    @property
    def busy(self) -> bool:
        """Whether a load is running."""
        return self._task is not None

    def refuse(self, key: Hashable, error: str) -> None:
        """Drop the state, because the wanted one must not be served."""
        if (key, error) != (self.key, self.error):
            _log.warning("%s: %s", self._name, error)
            self.forget()
            self.key, self.error = key, error

    def forget(self) -> None:
        """Drop the state and stop loading."""
        if self._task is not None:
            self._task.cancel()
        self.key = self.served = self._task = None
        self.error, self._tries, self._again_at = "", 0, 0.0

    async def tried(self, within_s: float) -> None:
        """Wait until the running load has succeeded or failed.

        Args:
            within_s: maximum wait in seconds.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[ServedPoint | None]]) -> None:
        try:
            served = await make()
        except (*AWAY, SteersmanError) as error:
            self._refused(key, str(error) or repr(error))
            _log.warning("%s cannot be loaded; another state serves instead: %s", self._name, error)
        except Exception as error:  # noqa: BLE001 (logged; retried later)
            self._refused(key, repr(error))
            _log.exception("%s cannot be loaded", self._name)
        else:
            if key == self.key:
                self.served, self.error, self._task, self._tries = served, "", None, 0
            if served is None:
                return
        if key == self.key:
            self._changed()

    def _refused(self, key: Hashable, error: str) -> None:
        if key == self.key:
            self.error, self._task = error, None
            self._tries += 1
            self._again_at = self._clock() + _BACKOFF.pause_s(self._tries)
