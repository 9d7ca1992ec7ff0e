"""Metrics of the background workers: rollouts, controllers, learners, signing.

The controller's process writes them to its home directory; every service process of that home
includes them in its metrics. All values come from the store, so they are complete with any number
of controllers. Labels contain no tenant: for decision points with equal names the worst value
counts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.learners import learner_lags
from steersman.db.rollout_transitions import due_rollouts
from steersman.db.rollouts import find_rollout
from steersman.db.tenants import list_tenants
from steersman.db.verdicts import held_since, latest_verdict
from steersman.errors import SteersmanError, StoreError
from steersman.platform.postgres.database import AWAY, as_tenant
from steersman.platform.telemetry.exposition import BESIDE, Exchange, Family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.platform.postgres.database import Database
    from steersman.registry.storage import Place

_log = logging.getLogger(__name__)
_EVER = datetime(9999, 1, 1, tzinfo=UTC)
_LEAVE_S = 1.0
_FORGOTTEN_S = 3600.0
_SIGNED_S = 60.0
_MOST_WORK = 10_000
_ENDS = ("promoted", "rolled_back", "aborted")
_PLACE = ("skill", "point")
_TIMESTAMP_BYTES = 65_536


class ControllerMetrics:
    """Writer of controller metrics.

    Args:
        database: migrated database.
        home: home directory in which services look for the metrics.
        place: location of the registry; None: no metrics about its signatures.
        clock: seconds since 1970.
        process: name of this process in the metrics files.
    """

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        place: Place | None = None,
        clock: Callable[[], float] = time.time,
        process: str | None = None,
    ) -> None:
        folder = home / BESIDE
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _tidy(folder, clock() - _FORGOTTEN_S)
        self._database = database
        self._place = place
        self._clock = clock
        self._exchange = Exchange(folder, process or f"controller-{os.getpid()}", clock)
        self._under_way: dict[tuple[UUID, UUID], tuple[str, str]] = {}
        self._paused: dict[UUID, datetime] = {}
        self._ended: Counter[tuple[str, str, str]] = Counter()
        self._lagged: set[tuple[str, str]] = set()
        self._expires: float | None = None
        self._signed_at = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """Write the metrics every second until `stop` is set; retry after a read error."""
        connection: Any = None
        try:
            while not stop.is_set():
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._database.connect("worker", command_timeout=10)
                    self._exchange.leave(await self.families(connection))
                except (*AWAY, SteersmanError) as error:
                    _log.warning("rollout metrics cannot be read now: %r", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LEAVE_S):
                        await stop.wait()
        finally:
            self._exchange.remove()
            if connection is not None:
                with suppress(*AWAY):
                    await connection.close(timeout=1)

    async def families(self, connection: Any) -> list[Family]:
        """Return the current metrics."""
        rollouts = [row async for row in self._rollouts(connection)]
        families = [*_of_rollouts(rollouts, self._clock()), self._ends()]
        families.append(await self._lag(connection))
        if self._place is not None:
            families += await self._signatures(self._place)
        return families

    async def _rollouts(self, connection: Any) -> Any:
        """Yield the active rollouts with hold duration and source health."""
        tasks = await due_rollouts(connection, _EVER)
        for gone in set(self._under_way) - set(tasks):
            async with as_tenant(connection, gone[0]):
                row = await find_rollout(connection, *gone)
            place = self._under_way.pop(gone)
            self._paused.pop(gone[1], None)
            if row is not None:
                self._ended[(*place, row.status)] += 1
        for tenant, identifier in tasks:
            async with as_tenant(connection, tenant):
                row = await find_rollout(connection, tenant, identifier)
                verdict = await latest_verdict(connection, tenant, identifier)
                since = await held_since(connection, tenant, identifier)
            if row is not None and row.is_under_way:
                self._under_way[tenant, identifier] = row.skill, row.point
                since = self._since(row, since)
                inputs = {} if verdict is None else verdict.inputs
                sources = inputs.get("evidence", {}).get("sources", ())
                yield row, since, {one["name"]: one["alive"] for one in sources}

    def _since(self, row: RolloutRow, since: datetime | None) -> datetime | None:
        """Return the start of the current hold, or of the pause as observed here."""
        if row.status != "paused":
            self._paused.pop(row.id, None)
            return since
        paused = self._paused.setdefault(row.id, datetime.fromtimestamp(self._clock(), UTC))
        return paused if since is None else since

    def _ends(self) -> Family:
        # Starts at 0: increase() needs a first value.
        known = set(self._under_way.values())
        counts = {(*place, end): 0 for place in known for end in _ENDS} | self._ended
        rows: Any = [(labels, float(count)) for labels, count in sorted(counts.items())]
        about = "Rollouts that ended while this process ran"
        return Family("rollout_ended", "counter", about, (*_PLACE, "status"), rows)

    async def _lag(self, connection: Any) -> Family:
        found = await learner_lags(connection, limit=_MOST_WORK)
        self._lagged |= set(found)
        rows: Any = [(place, found.get(place, 0.0)) for place in sorted(self._lagged)]
        about = "Age of the oldest pending work of the learner"
        return Family("learner_lag_seconds", "gauge", about, _PLACE, rows)

    async def _signatures(self, place: Place) -> list[Family]:
        if self._clock() - self._signed_at > _SIGNED_S:
            names = [tenant.name for tenant in await list_tenants(self._database)]
            found = await asyncio.to_thread(_earliest_expiry, place, names)
            self._expires, self._signed_at = found, self._clock()
        if self._expires is None:
            return []
        about = "Earliest expiry time of a registry timestamp"
        name = "registry_expires_timestamp_seconds"
        return [Family(name, "gauge", about, (), [((), self._expires)])]


def _tidy(folder: Path, before: float) -> None:
    """Delete the files of killed processes."""
    for path in folder.glob("controller-*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _of_rollouts(
    found: Iterable[tuple[RolloutRow, datetime | None, dict[str, bool]]], now: float
) -> Iterator[Family]:
    seen, held = now, defaultdict[tuple[str, ...], float](float)
    healthy: dict[tuple[str, ...], float] = {}
    for row, since, sources in found:
        place = row.skill, row.point
        seen = min(seen, row.seen_at.timestamp())
        age = 0.0 if since is None else max(0.0, now - since.timestamp())
        held[place] = max(held[place], age)
        for name, alive in sources.items():
            healthy[(name,)] = min(float(alive), healthy.get((name,), 1.0))
    name = "rollout_controller_seen_timestamp_seconds"
    about = "Time of the last check of the rollout that was checked least recently"
    yield Family(name, "gauge", about, (), [((), seen)])
    about = "Duration for which the rollout has been on hold"
    yield Family("rollout_held_seconds", "gauge", about, _PLACE, list(held.items()))
    about = "Whether the controller trusts this metrics source"
    yield Family("rollout_source_healthy", "gauge", about, ("source",), list(healthy.items()))


def _earliest_expiry(place: Place, tenants: Iterable[str]) -> float | None:
    """Return the earliest expiry of the tenants' timestamps; None if no tenant has a registry."""
    found = []
    for tenant in tenants:
        held = place.read(f"{tenant}/metadata/timestamp.json", max_bytes=_TIMESTAMP_BYTES)
        if held is not None:
            try:
                expires = json.loads(held.data)["signed"]["expires"]
                found.append(datetime.fromisoformat(expires).timestamp())
            except (ValueError, KeyError, TypeError) as error:
                message = f"invalid registry timestamp of tenant {tenant}: {error!r}; refresh it"
                raise StoreError(message) from error
    return min(found, default=None)
