"""Decision points that this process serves, refreshed by NOTIFY and by polling.

A tenant's points are loaded at its first request and refreshed every second and after each notice
of the store. One snapshot of the store defines what to serve (`point_follower.plans_of`). Loads run
in the background. During a store outage the loaded points keep serving.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from steersman.errors import SteersmanError
from steersman.platform.postgres.database import AWAY, set_tenant, store_breaker
from steersman.privacy.declared_scrub import scrubbing_of_events
from steersman.serving.arm_loader import Loader
from steersman.serving.point_follower import PointFollower, plans_of
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asyncpg import Pool

    from steersman.platform.breaker import Breaker
    from steersman.platform.postgres.database import Database
    from steersman.privacy.declared_scrub import Scrubbing
    from steersman.serving.draw import ServedPoint
    from steersman.serving.point_follower import Plan
    from steersman.snapshots.verified_bases import VerifiedBases

_log = logging.getLogger(__name__)
_POLL_S = 1.0
_AWAY = (*AWAY, SteersmanError)
Place = tuple["UUID", str, str]


class Replicas:
    """Decision points of all tenants that sent a request.

    Args:
        database: database; one connection listens for notices.
        pool: connections of role app, for reading.
        verified: loader of verified bases.
        breaker: circuit breaker for a tenant's first load; default: a new one.
    """

    def __init__(
        self,
        database: Database,
        pool: Pool[Any],
        verified: VerifiedBases,
        *,
        breaker: Breaker | None = None,
    ) -> None:
        self._database = database
        self._pool = pool
        self._breaker = breaker or store_breaker()
        self._loader = Loader(pool, verified)
        self._served: dict[Place, ServedPoint] = {}
        self._following: dict[Place, PointFollower] = {}
        self._changed: set[UUID] = set()
        self._tenants: dict[UUID, asyncio.Lock] = {}
        self._loaded: set[UUID] = set()
        self._scrubbing: dict[UUID, Scrubbing | None] = {}
        self._unreadable: dict[Place, str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listening: Any = None
        self.refreshed_at = 0.0

    def start(self) -> None:
        """Start listening and polling."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for following in self._following.values():
            following.close()
        if self._listening is not None:
            with suppress(*AWAY):
                await self._listening.close(timeout=1)

    def __iter__(self) -> Iterator[tuple[UUID, ServedPoint]]:
        """Iterate over (tenant, served decision point)."""
        return iter([(place[0], served) for place, served in self._served.items()])

    def find(self, tenant: UUID, skill: str, point: str) -> ServedPoint | None:
        """Return a decision point if it is loaded; None: `get` may find it."""
        return self._served.get((tenant, skill, point))

    def problem(self, tenant: UUID, skill: str, point: str) -> str:
        """Return why this process does not serve the wanted state; empty: it does or soon will."""
        place = tenant, skill, point
        following = self._following.get(place)
        return self._unreadable.get(place) or ("" if following is None else following.problem)

    def problems(self) -> int:
        """Return the number of points that this process does not serve as wanted."""
        serving = sum(bool(following.problem) for following in self._following.values())
        return serving + len(self._unreadable)

    async def get(self, tenant: UUID, skill: str, point: str) -> ServedPoint:
        """Return a decision point; load its tenant's points if necessary.

        Raises:
            Refused: unknown decision point, the store does not respond, or the point cannot be
                loaded.
        """
        served = self.find(tenant, skill, point)
        if served is None and tenant not in self._loaded:
            await self._load_or_refuse(tenant)
            served = self.find(tenant, skill, point)
        if served is None and (problem := self.problem(tenant, skill, point)):
            detail = f"{skill}/{point} cannot be served now: {problem}"
            raise Refused.of("unavailable", detail, retry_after_s=1.0)
        if served is None:
            known = sorted(f"{s}/{p}" for t, s, p in self._served if t == tenant)
            detail = (
                f"decision point {skill}/{point} not found; declared: {', '.join(known) or 'none'}"
            )
            raise Refused.of("not_found", detail, field="decision")
        return served

    async def scrubbing(self, tenant: UUID) -> Scrubbing | None:
        """Return the personal-data rules for a tenant's events; None if no point declares any.

        Raises:
            Refused: the points are not loaded, and the store does not respond or a point cannot be
                read.
        """
        if tenant not in self._loaded:
            await self._load_or_refuse(tenant)
        if tenant not in self._scrubbing:
            why = next(why for place, why in self._unreadable.items() if place[0] == tenant)
            detail = f"the personal-data rules for events cannot be read: {why}"
            raise Refused.of("unavailable", detail, retry_after_s=1.0)
        return self._scrubbing[tenant]

    async def _load_or_refuse(self, tenant: UUID) -> None:
        try:
            async with self._tenants.setdefault(tenant, asyncio.Lock()):
                if tenant not in self._loaded:
                    await self._breaker.call(lambda: self._refresh(tenant))
                    mine = [it for place, it in self._following.items() if place[0] == tenant]
                    await asyncio.gather(*(following.ready() for following in mine))
                    self._loaded.add(tenant)
        except _AWAY as error:
            _log.warning("decision points of a tenant cannot be loaded: %r", error)
            detail = (
                "the store cannot be read now, and these decision points are not loaded yet; try "
                "again"
            )
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None

    async def _refresh(self, tenant: UUID) -> None:
        """Read the plans of one tenant's points and follow them."""
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await set_tenant(connection, tenant)
            plans, unreadable = await plans_of(connection, tenant)
            for plan in plans:
                await self._want(plan).catch_up(connection)
        broken = {(tenant, one.skill, one.point): one.why for one in unreadable}
        self._tell(tenant, broken)
        # A point that cannot be read keeps serving its loaded state.
        wanted = {(tenant, plan.row.skill, plan.row.point) for plan in plans} | broken.keys()
        for place in [p for p in self._following if p[0] == tenant and p not in wanted]:
            self._following.pop(place).close()
            self._served.pop(place, None)
        rules = [plan.row.spec.privacy for plan in plans]
        rules += [one.privacy for one in unreadable if one.privacy is not None]
        if len(rules) == len(plans) + len(unreadable):  # else keep the known rules
            self._scrubbing[tenant] = scrubbing_of_events(rules)

    def _tell(self, tenant: UUID, broken: Mapping[Place, str]) -> None:
        """Remember unreadable points and log new ones."""
        for place, why in broken.items():
            if self._unreadable.get(place) != why:
                _log.error("%s", why)
        others = {it: why for it, why in self._unreadable.items() if it[0] != tenant}
        self._unreadable = others | dict(broken)

    def _want(self, plan: Plan) -> PointFollower:
        place = plan.row.tenant, plan.row.skill, plan.row.point
        following = self._following.get(place)
        if following is None:
            serve = partial(self._served.__setitem__, place)
            following = PointFollower("/".join(place[1:]), self._loader, serve)
            self._following[place] = following
        following.want(plan)
        return following

    async def _run(self) -> None:
        polled = 0.0
        while True:
            try:
                if self._listening is None or self._listening.is_closed():
                    self._listening = await self._listen()
                self._news.clear()
                changed, self._changed = self._changed, set()
                due = time.monotonic() - polled >= 0.9 * _POLL_S
                for tenant in tuple(self._loaded if due else changed & self._loaded):
                    await self._refresh(tenant)
                self.refreshed_at = time.monotonic()
                polled = self.refreshed_at if due else polled
            except _AWAY as error:
                _log.warning("replicas wait for the store: %r", error)
                await asyncio.sleep(_POLL_S)
            except Exception:  # noqa: BLE001 (logged)
                # The loaded states keep serving, so the loop must continue.
                _log.exception("replicas could not be refreshed")
                await asyncio.sleep(_POLL_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._news.wait()

    async def _listen(self) -> Any:
        connection = await self._database.connect("app")
        for channel in ("steersman_update", "steersman_point"):
            await connection.add_listener(channel, self._told)
        return connection

    def _told(self, _connection: Any, _pid: int, _channel: str, name: object) -> None:
        """Remember the points named by a notice: tenant, skill and point."""
        with suppress(ValueError):
            self._changed.add(UUID(str(name).partition("/")[0]))
        self._news.set()
