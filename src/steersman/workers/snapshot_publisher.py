"""Shipping job: keeps the registry of each tenant with signing keys up to date.

The job publishes new versions, refreshes timestamps, anchors the audit log, checks drift, removes
retracted versions and signs release marks. It publishes nothing of a pinned point, because
consumers must not load a state that is not live. One process at a time runs it. A failure of one
tenant or point is logged and retried without blocking others. Due times use the database clock, so
a local clock jump has no effect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from steersman.db.audit import history
from steersman.db.audit_chain import audit_head
from steersman.db.derived_snapshots import last_update
from steersman.db.incidents import incidents_of, open_incident
from steersman.db.points import points_as_they_are
from steersman.db.rollouts import active_rollouts
from steersman.db.snapshots import retracted_of, snapshots_of
from steersman.db.tenants import list_tenants
from steersman.errors import (
    GuardError,
    RaceError,
    RegistryError,
    SteersmanError,
    VerificationError,
)
from steersman.learning.drift import check_drift
from steersman.platform.postgres.database import as_tenant, server_time
from steersman.platform.postgres.lease import try_lock
from steersman.snapshots.publish import Signer, publish
from steersman.snapshots.publish_guard import Reason, available
from steersman.snapshots.release_marks import Marks, mark_point, read_known
from steersman.snapshots.retract import take_out
from steersman.workers.runner import UNAVAILABLE, Pace, Session, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from steersman.db.points import PointRow, UnreadablePoint
    from steersman.db.tenants import Tenant
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.registry.chain import Standing

_log = logging.getLogger(__name__)
_LOCK = "ship"
ACTOR = "schedule"


class Freshness(Protocol):
    """Expiry of a registry's timestamp."""

    @property
    def expires(self) -> datetime:
        """Expiry time; later, consumers reject the registry."""


class Registry(Signer, Marks, Protocol):
    """Tenant repository that the job maintains: `steersman.registry.repository.Publisher`."""

    def refresh_timestamp(self) -> Freshness:
        """Sign a new timestamp."""

    def retract(self, skill: str, point: str, version: str, *, reason: str = "") -> None:
        """Remove a version from the listing for consumers."""

    def listed(self) -> Collection[tuple[str, str, str]]:
        """Return skill, point and version of every listed snapshot."""

    def anchored(self) -> tuple[int, bytes] | None:
        """Return number and hash of the last signed audit entry."""

    def anchor(self, seq: int, digest: bytes) -> None:
        """Sign the head of the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingSettings:
    """Intervals of the shipping job.

    Attributes:
        publish_s: minimum age of a point's newest version before the next one, in seconds.
        refresh_s: seconds between two timestamps, which are valid for a day.
        look_s: seconds between two checks for due work.
        git_commit: commit signed with every version.
    """

    publish_s: float = 3600.0
    refresh_s: float = 3600.0
    look_s: float = 30.0
    git_commit: str | None = None


@dataclass(slots=True)
class PublisherResult:
    """Result of one check of one tenant.

    Attributes:
        tenant: tenant name.
        expires: expiry of its registry; None if unknown.
        published: versions by skill/point.
        refused: guard rejections with reasons.
        drifted: points that the drift guard pinned, with reasons.
        retracted: removed versions, as skill/point version.
        marked: new marks by skill/point version.
        failed: other failures, and points with unreadable declarations.
    """

    tenant: str
    expires: datetime | None = None
    published: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    drifted: dict[str, str] = field(default_factory=dict)
    retracted: list[str] = field(default_factory=list)
    marked: dict[str, Standing] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


async def run_shipping(
    database: Database,
    *,
    stop: asyncio.Event,
    registries: Callable[[str], Registry | None],
    clock: Callable[[], float] = time.time,
    watch: Callable[[PublisherResult], None] = lambda _shipped: None,
    settings: ShippingSettings | None = None,
) -> None:
    """Keep every tenant's registry up to date until stopped.

    Args:
        registries: returns a tenant's repository by name; None if it has none.
        clock: Unix time in seconds, for incidents.
    """
    chosen = settings or ShippingSettings()
    shipping = _Shipping(database, registries, clock, watch, chosen, stop)
    await run_worker(
        database, Pace(worker="publisher", poll_s=chosen.look_s), shipping.serve, stop=stop
    )


async def _lost(connection: Any, signed: tuple[int, bytes]) -> str | None:
    """Return an error if the audit log lacks the signed entry; else None."""
    seq, digest = signed
    rows = await history(connection, limit=1, before=seq + 1)
    if rows and (rows[0].seq, rows[0].hash) == (seq, digest):
        return None
    return (
        f"signed entry {seq} ({digest.hex()[:12]}) of the audit log "
        f"{'differs now' if rows and rows[0].seq == seq else 'is missing'}: the log was "
        "truncated or rewritten, and signing has stopped; run `steersman audit verify`. If you "
        "restored a database backup, run `steersman audit accept --reason REASON`"
    )


class _Shipping:
    def __init__(
        self,
        database: Database,
        registries: Callable[[str], Registry | None],
        clock: Callable[[], float],
        watch: Callable[[PublisherResult], None],
        settings: ShippingSettings,
        stop: asyncio.Event,
    ) -> None:
        self._database = database
        self._registries = registries
        self._clock = clock
        self._watch = watch
        self._settings = settings
        self._stop = stop
        self._refreshed: dict[str, tuple[float, Freshness]] = {}
        self._anchored: dict[str, float] = {}
        self._checked: dict[tuple[str, str, str], float] = {}
        self._tried: dict[tuple[str, str, str], float] = {}
        self._marked: dict[Point, tuple[float, dict[str, Standing]]] = {}
        self._unreadable: dict[tuple[str, str, str], str] = {}

    async def serve(self, session: Session) -> None:
        """Check for due work over one connection while this process holds the lock."""
        (connection,) = session.connections
        while session.goes_on():
            if await try_lock(connection, _LOCK):
                await self._look(connection)
            await session.wait()

    async def _look(self, connection: Any) -> None:
        for tenant in await list_tenants(self._database):
            if self._stop.is_set():
                return
            done = PublisherResult(tenant.name)
            try:
                registry = self._registries(tenant.name)
                if registry is None:
                    continue
                await self._take_out(connection, tenant, registry, done)
                await self._points(connection, tenant, registry, done)
                await self._keep_fresh(connection, tenant, registry, done)
            except UNAVAILABLE:
                raise
            except Exception as error:  # noqa: BLE001 (logged)
                # An error of one tenant must not stop the others.
                _log.exception("cannot update the registry of %s", tenant.name)
                done.failed.append(str(error) or repr(error))
            self._watch(done)

    async def _take_out(
        self, connection: Any, tenant: Tenant, registry: Registry, done: PublisherResult
    ) -> None:
        async with as_tenant(connection, tenant.id):
            found = await retracted_of(connection, tenant.id)
        try:
            # Every time, because an older registry may have been restored.
            listed = await asyncio.to_thread(registry.listed) if found else ()
            for row in found:
                if (row.skill, row.point, row.version) not in listed:
                    continue
                if await asyncio.to_thread(take_out, registry, row, "retracted"):
                    done.retracted.append(f"{row.skill}/{row.point} {row.version}")
        except RegistryError as error:  # the drift check must still run
            _log.exception("cannot remove retracted versions of %s from the registry", tenant.name)
            done.failed.append(str(error))

    async def _keep_fresh(
        self, connection: Any, tenant: Tenant, registry: Registry, done: PublisherResult
    ) -> None:
        try:
            await self._anchor(connection, tenant, registry)
        except UNAVAILABLE:
            raise
        except SteersmanError as error:  # the timestamp must still be refreshed
            _log.exception("cannot anchor the audit log of %s", tenant.name)
            done.failed.append(str(error))
        at, known = self._refreshed.get(tenant.name, (0.0, None))
        if known is None or time.monotonic() >= at + self._settings.refresh_s:
            known = await asyncio.to_thread(registry.refresh_timestamp)
            self._refreshed[tenant.name] = time.monotonic(), known
        done.expires = known.expires

    async def _anchor(self, connection: Any, tenant: Tenant, registry: Registry) -> None:
        """Sign the head of the audit log if it still contains the last signed entry."""
        due = time.monotonic() >= self._anchored.get(tenant.name, 0.0)
        if not due:
            return
        signed = await asyncio.to_thread(registry.anchored)
        async with as_tenant(connection, tenant.id):
            why = None if signed is None else await _lost(connection, signed)
            head = await audit_head(connection, tenant.id)
        if why is not None:
            await self._tell_rewritten(connection, tenant, why)
            raise VerificationError(why)
        if head is not None:
            await asyncio.to_thread(registry.anchor, head.seq, head.hash)
        self._anchored[tenant.name] = time.monotonic() + self._settings.refresh_s

    async def _tell_rewritten(self, connection: Any, tenant: Tenant, summary: str) -> None:
        async with as_tenant(connection, tenant.id):
            if any(
                one.kind == "audit"
                for one in await incidents_of(connection, tenant.id, open_only=True)
            ):
                return
            at = datetime.fromtimestamp(self._clock(), UTC)
            await open_incident(
                connection, tenant.id, kind="audit", summary=summary, detail={}, at=at
            )

    async def _points(
        self, connection: Any, tenant: Tenant, registry: Registry, done: PublisherResult
    ) -> None:
        async with as_tenant(connection, tenant.id):
            busy = {(one.skill, one.point) for one in await active_rollouts(connection, tenant.id)}
            rows, unreadable = await points_as_they_are(connection, tenant.id)
        self._tell_unreadable(tenant, unreadable, done)
        for row in rows:
            await self._mark(connection, row, registry, done)
        for row in rows:
            if (row.skill, row.point) in busy:
                continue  # a new version would displace the arms of the rollout
            try:
                await self._check(row, tenant, done)
                if row.pinned_seq is None:
                    await self._ship(connection, row, registry, done)
            except GuardError as refused:
                _log.warning("%s", refused)
                done.refused[f"{row.skill}/{row.point}"] = str(refused)
            except UNAVAILABLE:
                raise
            except Exception as error:  # noqa: BLE001 (logged)
                # An error of one point must not stop the others.
                _log.exception("cannot ship %s/%s", row.skill, row.point)
                done.failed.append(str(error) or repr(error))

    async def _mark(
        self, connection: Any, row: PointRow, registry: Registry, done: PublisherResult
    ) -> None:
        point, name = (row.tenant, row.skill, row.point), f"{row.skill}/{row.point}"
        async with as_tenant(connection, row.tenant):
            known = await read_known(connection, point)
        marks = {
            one.version: known.standing(one.version) for one in available(known.snapshots.values())
        }
        until, before = self._marked.get(point, (0.0, {}))
        if marks == before and time.monotonic() < until:
            return
        try:
            changed = await mark_point(self._database, point, registry, actor=ACTOR, wait=False)
        except UNAVAILABLE:
            raise
        except RaceError as busy:  # other tenants must not wait; the next check retries
            _log.info("the versions of %s will be marked at the next check: %s", name, busy)
            return
        except SteersmanError as error:
            _log.exception("cannot mark the versions of %s", name)
            done.failed.append(str(error))
            return
        done.marked |= {f"{name} {version}": standing for version, standing in changed.items()}
        self._marked[point] = time.monotonic() + self._settings.refresh_s, marks

    def _tell_unreadable(
        self, tenant: Tenant, unreadable: Sequence[UnreadablePoint], done: PublisherResult
    ) -> None:
        known = {(tenant.name, one.skill, one.point): one.why for one in unreadable}
        for key, why in known.items():
            if self._unreadable.get(key) != why:
                _log.error("cannot ship %s of %s: %s", "/".join(key[1:]), tenant.name, why)
            done.failed.append(why)
        others = {key: why for key, why in self._unreadable.items() if key[0] != tenant.name}
        self._unreadable = others | known

    async def _check(self, row: PointRow, tenant: Tenant, done: PublisherResult) -> None:
        key = tenant.name, row.skill, row.point
        now = time.monotonic()
        if now < self._checked.get(key, 0.0):
            return
        reasons = await check_drift(self._database, row, now=self._clock())
        if reasons:
            done.drifted[f"{row.skill}/{row.point}"] = "; ".join(reasons)
        self._checked[key] = now + self._settings.publish_s

    async def _ship(
        self, connection: Any, row: PointRow, registry: Registry, done: PublisherResult
    ) -> None:
        """Publish a point if due; retry a rejected state after one interval."""
        key = str(row.tenant), row.skill, row.point
        now = time.monotonic()
        if now < self._tried.get(key, 0.0):
            return
        async with as_tenant(connection, row.tenant):
            if not await self._is_due(connection, row):
                return
        self._tried[key] = now + self._settings.publish_s
        why = Reason(actor=ACTOR, git_commit=self._settings.git_commit)
        made = await publish(self._database, row, registry, why)
        done.published[f"{row.skill}/{row.point}"] = made.version
        del self._tried[key]

    async def _is_due(self, connection: Any, row: PointRow) -> bool:
        point = row.tenant, row.skill, row.point
        if await last_update(connection, point) == 0:
            return False
        known = available(await snapshots_of(connection, point))
        newest = known[-1].published_at if known else None
        if newest is None:
            return True
        return await server_time(connection) - newest >= timedelta(seconds=self._settings.publish_s)
