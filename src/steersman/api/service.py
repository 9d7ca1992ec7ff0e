"""Assembly of one service process: keys, load guard, deciding, event intake and routes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.api.app import Application
from steersman.api.authentication import Authenticator
from steersman.api.openapi import document
from steersman.api.parts import Parts
from steersman.api.routes.search import load_corpus
from steersman.api.schemas import as_text
from steersman.api.table import open_routes
from steersman.db.decisions import DecisionRow, connect_writer, log_decisions
from steersman.db.group_commit import GroupCommit
from steersman.db.keys import find_keys
from steersman.db.packed_events import event_pipeline, log_packed_events
from steersman.db.secret import load_secret
from steersman.errors import InputError
from steersman.platform.postgres.database import AWAY, ping, store_breaker, store_is_away
from steersman.platform.postgres.idle_pool import open_pools
from steersman.platform.telemetry.exposition import BESIDE, Exchange
from steersman.platform.telemetry.tracing import Tracing
from steersman.points.systems import load_part, systems_with
from steersman.retrieval.embedders import Embedders
from steersman.serving.corpus_cache import CorpusCache
from steersman.serving.decide import Decider
from steersman.serving.event_intake import Intake
from steersman.serving.load_guard import Guard
from steersman.serving.metrics import Metrics
from steersman.serving.replicas import Replicas
from steersman.snapshots.verified_bases import VerifiedBases
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from steersman.api.parts import SystemPart
    from steersman.db.decisions import IdempotencyConflict
    from steersman.db.keys import KeyRow
    from steersman.db.packed_events import PackedEvent
    from steersman.platform.postgres.database import Database
    from steersman.platform.postgres.idle_pool import Pools
    from steersman.serving.arms import Arms
    from steersman.serving.draw import ServedPoint

_PLACE = ("skill", "point")
_OPEN = {"open": 1.0, "half_open": 0.5, "closed": 0.0}
_STAGES = ("shadow", "canary", "ab", "live")


def add_gauges(service: Service) -> None:
    """Add the gauges of a service that is assembled but not started."""
    gauge, guard, replicas = service.metrics.gauge, service.guard, service.replicas
    gauge(
        "guardian_state",
        "State of the load guard: 0 normal, 1 brownout, 2 lockdown",
        lambda: int(guard.state),
    )
    gauge(
        "guardian_latency_ms",
        "Mean decision latency seen by the load guard",
        lambda: guard.latency_ms,
    )
    queues: dict[tuple[str, ...], GroupCommit[Any, Any]]
    queues = {("decisions",): service.decisions, ("events",): service.event_rows}
    gauge(
        "queue_rows",
        "Rows queued or being written",
        lambda: {kind: queue.depth for kind, queue in queues.items()},
        ("kind",),
    )
    gauge(
        "breaker_open",
        "State of a circuit breaker: 1 open, 0.5 half-open, 0 closed",
        lambda: {(name,): _OPEN[breaker.state] for name, breaker in service.breakers.items()},
        ("breaker",),
    )
    gauge(
        "replica_age_seconds",
        "Time since the last refresh of the replicas",
        lambda: time.monotonic() - replicas.refreshed_at,
    )
    wrong = "Decision points whose wanted snapshot cannot be loaded"
    gauge("replica_problems", wrong, replicas.problems)
    stages = "Stage of a rollout: 1 shadow, 2 canary, 3 ab, 4 live"
    gauge("rollout_stage", stages, partial(_rollouts, replicas, _stage_number), _PLACE)
    share = "Share of units that the candidate serves"
    gauge("rollout_share", share, partial(_rollouts, replicas, _share), _PLACE)
    loaded = "Whether this process serves the candidate"
    gauge("rollout_candidate_loaded", loaded, partial(_rollouts, replicas, _is_loaded), _PLACE)
    corpora = service.corpora
    gauge("corpora_held", "Corpus revisions in memory", lambda: len(corpora))
    gauge("corpora_bytes", "Approximate memory of the corpus revisions", lambda: corpora.bytes)
    failed = "Corpus revisions that failed to load"
    gauge("corpora_load_failures", failed, lambda: corpora.counts.failures)
    service.metrics.arms_of(partial(_under_way, replicas))


def _under_way(replicas: Replicas) -> list[tuple[str, str]]:
    """Return skill and name of the points with an active rollout."""
    return [(it.arms.row.skill, it.arms.row.point) for _, it in replicas if it.arms is not None]


def _rollouts(
    replicas: Replicas, read: Callable[[Arms[ServedPoint]], float]
) -> dict[tuple[str, ...], float]:
    """Return a number per active rollout; for tenants with equal names the largest."""
    found: dict[tuple[str, ...], float] = {}
    for _, served in replicas:
        if served.arms is not None:
            row = served.arms.row
            place = row.skill, row.point
            found[place] = max(read(served.arms), found.get(place, 0.0))
    return found


def _stage_number(arms: Arms[ServedPoint]) -> float:
    return 1.0 + _STAGES.index(arms.row.stage)


def _share(arms: Arms[ServedPoint]) -> float:
    return arms.row.share


def _is_loaded(arms: Arms[ServedPoint]) -> float:
    return float(arms.candidate is not None)


_log = logging.getLogger(__name__)
_TICK_S = 0.1
_LEAVE_S = 1.0
_LISTEN_S = 1.0
_SWEEP_S = 60.0
_STALE_S = 10.0
_BREAKERS = (
    *("keys", "loading", "replaying", "readiness", "reading", "rebuilding", "administering"),
    "searching",
)
_CORPORA_BYTES = 1 << 30


class Settings(msgspec.Struct, frozen=True):
    """Settings of a service process; `from_environment` reads them.

    Attributes:
        process: name of this process among the processes that share a port.
        exchange: folder for the metrics of these processes; None: single process.
        metrics_token: token for remote metrics requests; None: local requests only.
        key_refresh_s: interval for verifying API keys in use, in seconds.
        corpora_bytes: approximate memory limit of loaded corpora in bytes.
        ui: folder of the web interface, served under ``/ui``; None: not served.
        systems: settings of installed systems by name; others read the environment.
    """

    process: str = "0"
    exchange: Path | None = None
    metrics_token: str | None = None
    key_refresh_s: float = 0.5
    corpora_bytes: int = _CORPORA_BYTES
    ui: Path | None = None
    systems: Mapping[str, Any] = {}

    @classmethod
    def from_environment(cls, process: str = "0", exchange: Path | None = None) -> Settings:
        """Return the settings from environment variables.

        Raises:
            InputError: a value is not a number or out of range, or not a folder.
        """
        token = os.environ.get("STEERSMAN_METRICS_TOKEN") or None
        size = _bytes("STEERSMAN_CORPORA_BYTES")
        return cls(process, exchange, token, corpora_bytes=size, ui=_folder("STEERSMAN_UI"))


def _embedders(home: Path) -> Embedders:
    """Return query embedders with one attempt and a short timeout; keyword search works without."""
    return Embedders(home, served={"timeout_s": 2.0, "tries": 1})


def _bytes(name: str) -> int:
    said = os.environ.get(name) or str(_CORPORA_BYTES)
    if not said.isdigit() or not 1 << 20 <= int(said) <= 1 << 50:
        raise InputError(
            f"invalid {name} {said!r:.40}: expected a number of bytes, 1048576 or more"
        )
    return int(said)


def _folder(name: str) -> Path | None:
    said = os.environ.get(name)
    if said and not Path(said).is_dir():
        raise InputError(f"invalid {name} {said!r:.200}: expected an existing folder")
    return Path(said) if said else None


class Service:
    """Running service process without its listening socket; `assemble` creates it.

    Args:
        database: migrated database.
        pools: connections of role app.
        secret: secret of the service, from `load_secret`.
        settings: settings of the process.
        verified: loader of verified snapshots.
        beside: folder with the metrics of background workers.
        embedders: embedders of corpora by name; default: local embedders.
        home: directory of state and caches, for installed systems.
    """

    def __init__(
        self,
        database: Database,
        pools: Pools,
        secret: bytes,
        settings: Settings,
        verified: VerifiedBases,
        beside: Exchange | None = None,
        embedders: Embedders | None = None,
        home: Path | None = None,
    ) -> None:
        self.database = database
        self.pools = pools
        self.metrics = Metrics()
        self.tracing = Tracing()
        watch = self.tracing.storing if self.tracing.enabled else None
        self.draining = False
        self.verified = verified
        self.breakers = {name: store_breaker() for name in _BREAKERS}
        for slow in ("rebuilding", "rollouts", "units"):  # these load states or read many rows
            self.breakers[slow] = store_breaker(timeout_s=60.0)
        self.breakers["registry"] = verified.breaker
        self.replicas = Replicas(
            database, pools.serving, verified, breaker=self.breakers["loading"]
        )
        self.decisions: GroupCommit[DecisionRow, IdempotencyConflict] = GroupCommit(
            partial(connect_writer, database),
            self._write_decisions,
            lambda row: row.id,
            on_flush=self.metrics.on_flush("decisions"),
            watch=watch,
        )
        self.event_rows: GroupCommit[PackedEvent, Any] = GroupCommit(
            event_pipeline(database).connect,
            log_packed_events,
            attrgetter("name"),
            lanes=2,
            on_flush=self.metrics.on_flush("events"),
            watch=watch,
        )
        self.guard = Guard(lambda: self.decisions.depth + self.event_rows.depth, time.monotonic)
        self.keys = Authenticator(self._look_up, secret, refresh_s=settings.key_refresh_s)
        self.embedders = embedders or Embedders()
        self.corpora = CorpusCache(
            partial(load_corpus, pools.acting, self.embedders), settings.corpora_bytes
        )
        self.secret = secret
        self.settings = settings
        self.beside = beside
        self.exchange = (
            None if settings.exchange is None else Exchange(settings.exchange, settings.process)
        )
        self._tasks: list[asyncio.Task[None]] = []
        add_gauges(self)
        self.systems = self._open_systems(home)
        self.deciding = self._decider()
        self.intake = self._intake()
        self.description = as_text(document())
        self.app = self._application()

    def _open_systems(self, home: Path | None) -> dict[str, SystemPart]:
        parts = Parts(
            home,
            self.pools.reading,
            self.corpora,
            self.embedders,
            self.breakers["searching"],
            self.metrics,
        )
        return {
            name: load_part(system, "service").open(parts, self.settings.systems.get(name))
            for name, system in systems_with("service").items()
        }

    def _application(self) -> Application:
        return Application(
            open_routes(self),
            keys=self.keys,
            guard=self.guard,
            metrics=self.metrics,
            tracing=self.tracing,
            lifespan=self._lifespan,
        )

    def _intake(self) -> Intake:
        return Intake(
            self.replicas,
            self.decisions,
            self.event_rows,
            self.secret,
            on_scrubbed=self.metrics.scrubbed,
        )

    def _decider(self) -> Decider:
        return Decider(
            self.replicas,
            self.decisions,
            self.pools.serving,
            self.secret,
            guardian=lambda: self.guard.state.name,
            on_fallback=self.metrics.fallback,
            on_arm=self.metrics.arm,
            on_scrubbed=self.metrics.scrubbed,
            on_answered=self.guard.observe,
            replaying=self.breakers["replaying"],
        )

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        """Hold the lifespans of the systems while the server answers requests."""
        async with AsyncExitStack() as stack:
            for part in self.systems.values():
                await stack.enter_async_context(part.lifespan())
            yield

    def start(self) -> None:
        """Start the writers, replicas, key checks and the load guard."""
        for part in (self.decisions, self.event_rows, self.replicas, self.keys):
            part.start()
        jobs = [
            (self._tick, _TICK_S),
            (self._listen, _LISTEN_S),
            (self._sweep, _SWEEP_S),
        ]
        if self.exchange is not None:
            jobs.append((self._leave, _LEAVE_S))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(_repeat(job, pause_s)) for job, pause_s in jobs]

    async def close(self, *, timeout_s: float = 10.0) -> int:
        """Write the waiting rows, then stop.

        Args:
            timeout_s: time limit for writing, in seconds.

        Returns:
            Number of rows that were not written; 0 unless the store does not respond.
        """
        left = await asyncio.gather(
            self.decisions.close(timeout_s=timeout_s), self.event_rows.close(timeout_s=timeout_s)
        )
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.corpora.close()
        await self.keys.close()
        await self.replicas.close()
        return sum(left)

    def storing(self) -> bool:
        """Return whether new rows will probably be stored.

        With an empty queue one more row passes, as a probe of the store.
        """
        parts = (self.decisions, self.event_rows)
        return all(it.available for it in parts) or not any(it.depth for it in parts)

    async def reasons(self) -> list[str]:
        """Return the reasons why the service is not ready; empty if it is ready."""
        reasons = ["this process is stopping"] if self.draining else []
        try:
            await self.breakers["readiness"].call(lambda: ping(self.pools.serving, 2.0))
        except Refused as refused:
            reasons.append(refused.problem.detail)
        age = time.monotonic() - self.replicas.refreshed_at
        if self.replicas.refreshed_at == 0.0 or age > _STALE_S:
            reasons.append("the replicas are not up to date")
        return reasons

    async def _write_decisions(
        self, connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        settling = [row.id for row in rows if row.weight and self._settles(row)]
        return await log_decisions(connection, rows, settling=settling)

    def _settles(self, row: DecisionRow) -> bool:
        served = self.replicas.find(row.tenant, row.skill, row.point)
        # A missing point counts as True, because work without a point costs little.
        if served is None or served.settles:
            return True
        arms = served.arms
        return arms is not None and arms.candidate is not None and arms.candidate.settles

    async def _look_up(self, hashes: Sequence[bytes]) -> Mapping[bytes, KeyRow]:
        return await self.breakers["keys"].call(lambda: self._find_keys(hashes))

    async def _find_keys(self, hashes: Sequence[bytes]) -> Mapping[bytes, KeyRow]:
        async with self.pools.keys.acquire() as connection:
            return await find_keys(connection, hashes)

    async def _tick(self) -> None:
        self.guard.tick()

    async def _sweep(self) -> None:
        for name, part in self.systems.items():
            try:
                await part.sweep()
            except Exception as error:  # noqa: BLE001 (the other systems are swept too)
                shown = not store_is_away(error)
                _log.warning("the sweep of the system %s failed: %r", name, error, exc_info=shown)

    async def _leave(self) -> None:
        if self.exchange is not None:
            self.exchange.leave(self.metrics.families())

    async def _listen(self) -> None:
        """Listen for key changes until the connection is lost."""
        connection = await self.database.connect("app")
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda *_: lost.set())
            await connection.add_listener("steersman_key", self.keys.key_changed)
            self.keys.key_changed()  # a change may have happened while the connection was down
            await lost.wait()
        finally:
            await close_quickly(connection)


async def _repeat(job: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Repeat a job forever; log a failure and try again."""
    while True:
        try:
            await job()
        except Exception as error:  # noqa: BLE001 (without these jobs keys would never be revoked)
            _log.warning("%s failed: %r", job.__name__, error, exc_info=not store_is_away(error))
        await asyncio.sleep(pause_s)


async def close_quickly(connection: Any) -> None:
    """Close an asyncpg connection even if the server does not respond."""
    try:
        await connection.close(timeout=1)
    except AWAY:
        connection.terminate()


async def assemble(
    stack: AsyncExitStack, database: Database, home: Path, settings: Settings
) -> Service:
    """Start a service. Leaving the stack writes waiting rows and stops it.

    Raises:
        StoreError: the store does not respond, or the secret is missing.
    """
    secret = load_secret(home)
    pools = await open_pools(stack, database)
    verified = VerifiedBases(home)
    stack.callback(verified.close)
    beside = Exchange(home / BESIDE, "")
    service = Service(database, pools, secret, settings, verified, beside, _embedders(home), home)
    service.start()

    async def close() -> None:
        left = await service.close()
        if left:
            _log.error("%d rows were not written before the process stopped", left)

    stack.push_async_callback(close)
    return service
