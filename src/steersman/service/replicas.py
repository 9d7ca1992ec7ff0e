"""The decision points this process serves, kept up to date: told by NOTIFY, sure by a poll.

A tenant's points are loaded when it first asks, and refreshed once a second and whenever the store
says that something is new. Updates are applied in order; a replica that finds a gap is loaded anew.
While the store is away, what was loaded keeps serving.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman.errors import SteersmanError
from steersman.learn import catch_up, load
from steersman.service.drawing import Served
from steersman.store import AWAY, as_tenant, points_of
from steersman.store.scrubbing import scrubbing_of_events
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from asyncpg import Pool

    from steersman.store import Database, PointRow
    from steersman.store.scrubbing import Scrubbing

_log = logging.getLogger(__name__)
_POLL_S = 1.0
_AWAY = (*AWAY, SteersmanError)
Place = tuple["UUID", str, str]


class Replicas:
    """Loads, refreshes and hands out the decision points of the tenants that ask.

    Args:
        database: where they are; a connection of its own listens there.
        pool: connections of role app for reading.
    """

    def __init__(self, database: Database, pool: Pool[Any]) -> None:
        self._database = database
        self._pool = pool
        self._served: dict[Place, Served] = {}
        self._tenants: dict[UUID, asyncio.Lock] = {}
        self._loaded: set[UUID] = set()
        self._scrubbing: dict[UUID, Scrubbing | None] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listening: Any = None
        self.refreshed_at = 0.0

    def start(self) -> None:
        """Begin to listen and to poll."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._listening is not None:
            with suppress(*AWAY):
                await self._listening.close(timeout=1)

    def __iter__(self) -> Iterator[tuple[UUID, Served]]:
        """Iterate over what is served, with its tenant."""
        return iter([(place[0], served) for place, served in self._served.items()])

    def find(self, tenant: UUID, skill: str, point: str) -> Served | None:
        """Return a point if it is loaded.

        Args:
            tenant: whose it is.
            skill: the application capability.
            point: the decision point.

        Returns:
            The point, or None: `get` may still find it.
        """
        return self._served.get((tenant, skill, point))

    async def get(self, tenant: UUID, skill: str, point: str) -> Served:
        """Return a point, loading its tenant's if need be.

        Args:
            tenant: whose it is.
            skill: the application capability.
            point: the decision point.

        Returns:
            The point.

        Raises:
            Refused: the tenant declared no such point, or the store that would know is away.
        """
        served = self.find(tenant, skill, point)
        if served is None and tenant not in self._loaded:
            await self._load_or_refuse(tenant)
            served = self.find(tenant, skill, point)
        if served is None:
            known = sorted(f"{s}/{p}" for t, s, p in self._served if t == tenant)
            detail = f"no decision point {skill}/{point}; declared are {', '.join(known) or 'none'}"
            raise Refused.of("not_found", detail, field="decision")
        return served

    async def scrubbing(self, tenant: UUID) -> Scrubbing | None:
        """Return what is taken out of the bodies of a tenant's events, loading it if need be.

        Args:
            tenant: whose events.

        Returns:
            None where no point declares anything.

        Raises:
            Refused: its points were never loaded, and the store is away.
        """
        if tenant not in self._loaded:
            await self._load_or_refuse(tenant)
        return self._scrubbing.get(tenant)

    async def _load_or_refuse(self, tenant: UUID) -> None:
        try:
            async with self._tenants.setdefault(tenant, asyncio.Lock()):
                if tenant not in self._loaded:
                    await self._refresh(tenant)
        except _AWAY as error:
            _log.warning("points of a tenant cannot be loaded: %r", error)
            detail = "the store cannot be read now, and these points were never loaded; try again"
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None

    async def _refresh(self, tenant: UUID) -> None:
        """Bring one tenant's points up to date."""
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            rows = await points_of(connection, tenant)
            for row in rows:
                await self._refresh_point(connection, row)
        gone = {(tenant, row.skill, row.point) for row in rows}
        for place in [p for p in self._served if p[0] == tenant and p not in gone]:
            del self._served[place]
        self._scrubbing[tenant] = scrubbing_of_events(row.spec for row in rows)
        self._loaded.add(tenant)

    async def _refresh_point(self, connection: Any, row: PointRow) -> None:
        place = (row.tenant, row.skill, row.point)
        served = self._served.get(place)
        now = served.replica.row if served is not None else None
        if now is not None and (now.snapshot, now.spec_hash) == (row.snapshot, row.spec_hash):
            try:
                await catch_up(connection, served.replica)  # type: ignore[union-attr]
            except SteersmanError as error:
                _log.warning("%s/%s is loaded anew: %s", row.skill, row.point, error)
            else:
                return
        try:
            self._served[place] = Served(await load(connection, row))
        except SteersmanError:
            # One point that cannot be loaded must not keep the others from being served.
            _log.exception("%s/%s cannot be loaded", row.skill, row.point)

    async def _run(self) -> None:
        while True:
            try:
                if self._listening is None or self._listening.is_closed():
                    self._listening = await self._listen()
                self._news.clear()
                for tenant in tuple(self._loaded):
                    await self._refresh(tenant)
                self.refreshed_at = time.monotonic()
            except _AWAY as error:
                _log.warning("replicas wait for the store: %r", error)
                await asyncio.sleep(_POLL_S)
            except Exception:  # noqa: BLE001 (logged)
                # Serving goes on with what is loaded, and so must looking for news.
                _log.exception("replicas could not be refreshed")
                await asyncio.sleep(_POLL_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _POLL_S)

    async def _listen(self) -> Any:
        connection = await self._database.connect("app")
        for channel in ("steersman_update", "steersman_point"):
            await connection.add_listener(channel, lambda *_: self._news.set())
        return connection
