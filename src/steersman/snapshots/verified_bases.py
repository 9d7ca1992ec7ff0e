"""Verified base states of snapshots.

A published base comes from the tenant's registry with its signatures, never from the store's row. A
declared or rebuilt base is the prior, recomputed from its declaration. Verified bases stay in a
cache shared by all processes of a home directory. During a registry outage they serve as long as
the consumer allows.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.points import learned_from
from steersman.db.rewards import spec_of
from steersman.db.snapshots import find_snapshot
from steersman.db.tenants import tenant_name
from steersman.errors import MissingSnapshotError, SnapshotError, VerificationError
from steersman.platform.breaker import Breaker
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.snapshots.release_marks import read_known

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.policies import ChoicePolicy
    from steersman.registry.consumer import Consumer
    from steersman.registry.description import Description
    from steersman.registry.loaded import LoadedSnapshot
    from steersman.spec.point import DecisionPoint

# Cached versions per point: explanations load old ones, which must not evict the live one.
_KEEP = 10
_QUICK_S = 2.0  # timeout if the cache may have the version
_PATIENT_S = 20.0  # timeout of a fetch; a stopping process waits for it
_FAILURES = 3  # consecutive failures that open the circuit breaker
_REST_S = 5.0


class BaseRequest(NamedTuple):
    """Wanted base, as the store describes it.

    Attributes:
        tenant: tenant name in the registry.
        row: decision point with the wanted snapshot.
        found: row of the snapshot without its state.
        spec: declaration of the snapshot.
    """

    tenant: str
    row: PointRow
    found: SnapshotRow
    spec: DecisionPoint


class PreparedBase:
    """Verified base; it creates a new policy on each call.

    Args:
        make: creates a policy in a thread.
    """

    def __init__(self, make: Callable[[], ChoicePolicy]) -> None:
        self._make = make

    async def check(self, connection: Any, row: PointRow) -> None:
        """Do nothing, because the base is verified."""

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy."""
        return await asyncio.to_thread(self._make)


class VerifiedBases:
    """Loader of verified bases for all tenants; implements `steersman.learning.replica.Bases`.

    Args:
        home: directory of the cache, the trusted roots, and the registry unless ``source`` is
            given.
        source: directory, ``s3://…`` or ``https://…`` with a repository per tenant; default:
            ``STEERSMAN_REGISTRY``, or the home directory.
        clock: seconds since 1970.

    Attributes:
        breaker: circuit breaker for the registry of all tenants; while it is open, the cache serves
            at once.
    """

    def __init__(
        self, home: Path, *, source: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._home = home
        self._source = source or os.environ.get("STEERSMAN_REGISTRY") or str(home / "registry")
        self._clock = clock
        self.breaker = Breaker(
            "registry", time.monotonic, failures=_FAILURES, open_s=_REST_S, timeout_s=_PATIENT_S
        )
        self._names: dict[UUID, str] = {}
        self._consumers: dict[str, _Consumers] = {}
        # Separate threads: a registry that hangs must not delay states from the cache.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="registry")

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, connection: Any, row: PointRow) -> None:
        """Check that a published base verifies.

        Raises:
            SnapshotError: the base is missing or does not verify.
            StateError: the snapshot is unknown.
        """
        request = await self.find(connection, row)
        if request.found.reason == "published":
            await self.fetch(request)

    async def base(self, connection: Any, row: PointRow) -> ChoicePolicy:
        """Return the policy that a snapshot starts from.

        Raises:
            SnapshotError: the base is missing or does not verify.
            StateError: the snapshot is unknown.
        """
        prepared = await self.fetch(await self.find(connection, row))
        return await prepared.base(connection, row)

    async def find(self, connection: Any, row: PointRow) -> BaseRequest:
        """Return the store's description of a snapshot, without a request to the registry.

        Raises:
            StateError: the snapshot is unknown.
            MissingSnapshotError: the snapshot was retracted.
        """
        point = row.tenant, row.skill, row.point
        found = await find_snapshot(connection, point, row.snapshot)
        if found.retracted_at is not None:
            name = f"{row.skill}/{row.point} {row.snapshot}"
            raise MissingSnapshotError(f"{name} was retracted; serve another one")
        spec = await spec_of(connection, found.spec_hash)
        return BaseRequest(await self._name(connection, row.tenant), row, found, spec)

    async def fetch(self, request: BaseRequest) -> PreparedBase:
        """Return a verified base; it needs no database connection.

        Raises:
            SnapshotError: the base is missing or does not verify.
        """
        if request.found.reason != "published":
            return PreparedBase(lambda: initial_policy(request.spec))
        row = request.row
        loaded = await self._load(request.tenant, row.skill, row.point, row.snapshot)
        return PreparedBase(lambda: _fitting(loaded, request))

    async def last_good(self, connection: Any, row: PointRow) -> PointRow:
        """Return a decision point with the newest released snapshot that verifies.

        A candidate is signed before it serves. So rejected and rolled-back candidates, versions
        beyond a pin and versions frozen after a retracted one are excluded.

        Raises:
            SnapshotError: no snapshot verifies.
            StateError: the store does not know the snapshot.
        """
        tenant = await self._name(connection, row.tenant)
        point = row.tenant, row.skill, row.point
        loaded = await self._load(
            tenant, row.skill, row.point, among=await _proven(connection, row)
        )
        found = await find_snapshot(connection, point, _description(loaded).version)
        return await of_snapshot(connection, row, found)

    async def _name(self, connection: Any, tenant: UUID) -> str:
        name = self._names.get(tenant)
        if name is None:
            name = self._names[tenant] = await tenant_name(connection, tenant)
        return name

    async def _load(
        self, tenant: str, *wanted: str, among: Collection[str] | None = None
    ) -> LoadedSnapshot:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._load_now, tenant, wanted, among)

    def _load_now(
        self, tenant: str, wanted: tuple[str, ...], among: Collection[str] | None
    ) -> LoadedSnapshot:
        known = self._consumers.get(tenant)
        if known is None:
            known = self._consumers.setdefault(tenant, _Consumers(self._consumer, tenant))
        return known.load(*wanted, among=among)

    def _consumer(self, tenant: str, timeout_s: float) -> Consumer:
        root = self._home / "trust" / tenant / "root.json"
        if not root.is_file():
            # Tenants read this over HTTP, so it must not contain the path.
            message = f"missing trusted root of tenant {tenant} in the service's home folder; "
            raise VerificationError(message + "copy root.json there from the holder of the keys")
        # The import loads TUF, which is slow: only in this thread, and only with a trusted root.
        from steersman.registry.consumer import Consumer  # noqa: PLC0415

        source = self._source
        own = f"{source.rstrip('/')}/{tenant}" if "://" in source else Path(source) / tenant
        cache = self._home / "cache" / "registry" / tenant
        return Consumer(
            *(own, root.read_bytes(), cache),
            keep=_KEEP,
            clock=self._clock,
            timeout_s=timeout_s,
            breaker=self.breaker,
        )


class _Consumers:
    """Two consumers of one registry and cache: one with short and one with long timeouts."""

    def __init__(self, make: Callable[[str, float], Consumer], tenant: str) -> None:
        self._quick = make(tenant, _QUICK_S)
        self._patient = make(tenant, _PATIENT_S)
        self._lock = threading.Lock()

    def load(self, *wanted: str, among: Collection[str] | None) -> LoadedSnapshot:
        """Load a version; refresh the registry if it is unknown."""
        with self._lock:
            try:
                return self._quick.load(*wanted, among=among)
            except SnapshotError:
                self._patient.refresh()
                return self._patient.load(*wanted, among=among)


async def _proven(connection: Any, row: PointRow) -> set[str]:
    """Return the released versions that were not retracted, according to the store."""
    known = await read_known(connection, (row.tenant, row.skill, row.point))
    return {
        one.version
        for one in known.snapshots.values()
        if one.retracted_at is None and known.standing(one.version) == "released"
    }


async def of_snapshot(connection: Any, row: PointRow, found: SnapshotRow) -> PointRow:
    """Return a decision point with the declaration that a snapshot needs.

    This is the current declaration if the snapshot is compatible with it, so that both arms of a
    rollout get the same credit; else the declaration of the snapshot.
    """
    spec = await spec_of(connection, found.spec_hash)
    same = learned_from(spec) == learned_from(row.spec)
    if same and found.feature_hash == row.feature_hash:
        return replace(row, snapshot=found.version)
    return replace(
        row,
        snapshot=found.version,
        spec=spec,
        spec_hash=found.spec_hash,
        feature_hash=found.feature_hash,
        per_episode=spec.reward.scope == "episode",
    )


def _description(loaded: LoadedSnapshot) -> Description:
    if loaded.description is None:  # a warm start or a prior; neither may serve
        message = "a state without a signed description was loaded; only signed states serve"
        raise VerificationError(message)
    return loaded.description


def _fitting(loaded: LoadedSnapshot, request: BaseRequest) -> ChoicePolicy:
    """Return the policy if its signed description matches the store's."""
    said, row, found = _description(loaded), request.row, request.found
    signed = said.skill, said.point, said.version, said.spec_hash, said.feature_hash
    wanted = row.skill, row.point, row.snapshot, found.spec_hash.hex(), found.feature_hash.hex()
    name = f"{row.skill}/{row.point} {row.snapshot}"
    if signed != wanted or request.spec.spec_hash != said.spec_hash:
        raise VerificationError(
            f"{name} was signed as {signed}, but the store has {wanted}; publish it again"
        )
    policy, prior = load_policy(loaded.state), initial_policy(request.spec)
    parts = policy.algorithm, policy.actions, policy.floor
    declared = prior.algorithm, prior.actions, prior.floor
    if parts != declared:
        raise VerificationError(
            f"{name} has {parts}, but its declaration has {declared}; publish it again"
        )
    return policy
