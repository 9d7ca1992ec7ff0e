"""What an arm is served from is made aside: verified, followed to its place, then handed over.

Nothing here runs in the thread that decides for longer than it takes to ask the store: bases are
fetched and verified, states decompressed and updates applied in threads. No connection is held
while a registry is asked.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError
from steersman.learn import load
from steersman.service.drawing import Served
from steersman.service.verified import of_snapshot
from steersman.store import AWAY, as_tenant, find_snapshot, snapshots_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
    from uuid import UUID

    from asyncpg import Pool

    from steersman.service.verified import Verified
    from steersman.store import PointRow

_log = logging.getLogger(__name__)
_AT_ONCE = 2
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Loader:
    """Loads points as they are to be served.

    Args:
        pool: connections of role app for reading.
        verified: gives the bases.
    """

    def __init__(self, pool: Pool[Any], verified: Verified) -> None:
        self._pool = pool
        self._verified = verified
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def load(self, row: PointRow, until: int | None) -> Served:
        """Return a point, ready to be served.

        Args:
            row: the point, with the snapshot and the declaration that are wanted.
            until: the number of updates to stay at; None: as many as there are.

        Raises:
            SteersmanError: it cannot be loaded, or must not be.
        """
        async with self._connection(row.tenant) as connection:
            sought = await self._verified.find(connection, row)
        bases = await self._verified.fetch(sought)
        async with self._slots, self._connection(row.tenant) as connection:
            replica = await load(connection, row, until=until, bases=bases)
        return Served(replica)

    async def stand_in(self, row: PointRow) -> Served:
        """Return what serves while the snapshot that is wanted cannot be loaded.

        That is the newest published one that verifies, as it was published; else the newest prior:
        a state that is known for sure, though it is not the one that was asked for.

        Args:
            row: the point.

        Raises:
            SteersmanError: there is none.
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
        """Return whether a snapshot was taken back.

        Args:
            row: the point.
            version: of the snapshot.

        Raises:
            StateError: the store knows nothing of it.
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
    """What one arm is served from: there, on its way, or refused and tried again later.

    Args:
        name: for the log.
        clock: seconds that never step back.
        changed: called when something came, or was refused.
    """

    def __init__(self, name: str, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self.key: Hashable = None
        self.served: Served | None = None
        self.error = ""
        self._name = name
        self._clock = clock
        self._changed = changed
        self._tries = 0
        self._again_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def want(self, key: Hashable, make: Callable[[], Awaitable[Served | None]]) -> None:
        """See to it that what is wanted is there, or on its way.

        Args:
            key: says what is wanted.
            make: makes it; None: nothing is needed now, which is not told, and asked again when it
                is wanted again.
        """
        if key != self.key:
            self.forget()
            self.key = key
        if self.served is None and self._task is None and self._clock() >= self._again_at:
            self._task = asyncio.get_running_loop().create_task(self._make(key, make))

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return self._task is not None

    def refuse(self, key: Hashable, error: str) -> None:
        """Have nothing, since what is wanted must not be had.

        Args:
            key: says what is wanted.
            error: why not.
        """
        if (key, error) != (self.key, self.error):
            _log.warning("%s: %s", self._name, error)
            self.forget()
            self.key, self.error = key, error

    def forget(self) -> None:
        """Want nothing any more."""
        if self._task is not None:
            self._task.cancel()
        self.key = self.served = self._task = None
        self.error, self._tries, self._again_at = "", 0, 0.0

    async def tried(self, within_s: float) -> None:
        """Wait until what is on its way came, or was refused.

        Args:
            within_s: the longest wait.
        """
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[Served | None]]) -> None:
        try:
            served = await make()
        except (*AWAY, SteersmanError) as error:
            self._refused(key, str(error) or repr(error))
            _log.warning("%s cannot be loaded; another state serves instead: %s", self._name, error)
        except Exception as error:  # noqa: BLE001 (one must not stop the others)
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
            self._again_at = self._clock() + _BACKOFF_S[min(self._tries, len(_BACKOFF_S) - 1)]
            self._tries += 1
