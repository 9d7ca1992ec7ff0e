"""HTTP handlers for snapshots: list and retract the versions of a tenant's policies."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.points import points_as_they_are
from steersman.db.rollouts import active_rollouts
from steersman.db.snapshots import snapshots_of
from steersman.errors import InputError, RolloutError, StateError
from steersman.platform.http.tenant_limiter import Apart
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.state_machine import checked_reason
from steersman.snapshots.retract import retract_version
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from asyncpg import Pool

    from steersman.api.service import Service
    from steersman.db.points import PointRow, UnreadablePoint
    from steersman.db.rollouts import RolloutRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.platform.postgres.database import Database
    from steersman.snapshots.retract import RetractionResult

_MOST = 200
_EXAMPLE = {
    "skill": "assistant",
    "decision": "route",
    "version": "0.1.2",
    "reason": "learned from a bot",
    "take_back": True,
}
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


class RetractSnapshot(msgspec.Struct, forbid_unknown_fields=True):
    """Request to retract a published version permanently.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        version: published version to retract.
        reason: reason for the audit log.
        take_back: whether to retract a version that serves. If true, the decision point returns to
            the previous signed version, stays pinned to it, and an incident opens. If false, a
            serving version is refused.
    """

    skill: _Name
    decision: _Name
    version: _Name
    reason: Annotated[str, Meta(min_length=1, max_length=500)]
    take_back: bool = False


class RetractedSnapshot(msgspec.Struct, omit_defaults=True):
    """Retracted version.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        version: retracted version; it never serves again.
        retracted_at: time of the first retraction in seconds since 1970.
        serves: version that serves instead; absent: the retracted version did not serve.
    """

    skill: str
    decision: str
    version: str
    retracted_at: float
    serves: str | None = None


class ShownSnapshot(msgspec.Struct, omit_defaults=True):
    """One version of a decision point's policy.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        version: version, for example 0.1.0.
        reason: declared (no learning yet), rebuilt (from the log) or published (signed).
        spec_hash: hash of the declaration at creation, hexadecimal.
        feature_hash: hash of the feature map, hexadecimal.
        created_at: creation time in seconds since 1970.
        roles: current roles: ``serving``, ``control``, ``candidate``; empty: none.
        parent: previous version.
        algorithm: algorithm of the policy.
        samples: number of decisions learned from.
        line: for a published version, the snapshot that its state comes from.
        line_seq: number of updates applied to that snapshot.
        published_at: signing time in seconds since 1970; absent: not signed.
        retracted_at: retraction time in seconds since 1970; absent: not retracted.
        description: signed description.
    """

    skill: str
    decision: str
    version: str
    reason: str
    spec_hash: str
    feature_hash: str
    created_at: float
    roles: list[str] = []
    parent: str | None = None
    algorithm: str | None = None
    samples: int | None = None
    line: str | None = None
    line_seq: int | None = None
    published_at: float | None = None
    retracted_at: float | None = None
    description: Any = None


class Snapshots:
    """Handlers of the routes for snapshots.

    Args:
        database: database of the snapshots.
        pool: connections of role app, for reading.
        reading: circuit breaker for reads.
        acting: circuit breaker for actions.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        pool: Pool[Any],
        *,
        reading: Breaker,
        acting: Breaker,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._pool = pool
        self._breaker = reading
        self._acting = acting
        self._apart = Apart()
        self._clock = clock

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        pools, breakers = service.pools, service.breakers
        reading, acting = breakers["reading"], breakers["rollouts"]
        return cls(pools.acting, pools.reading, reading=reading, acting=acting)

    @handles(
        Route(
            "GET",
            "/v1/snapshots",
            "List the newest policy versions of every decision point",
            {"snapshots": list[ShownSnapshot]},
            scope="read",
            sheds="read",
        )
    )
    async def snapshots(self, request: Request) -> dict[str, list[ShownSnapshot]]:
        """Return the newest 200 of each point, newest first."""
        tenant = request.key.tenant
        shown = await self._breaker.call(lambda: self._read(tenant))
        return {"snapshots": shown}

    @handles(
        Route(
            "POST",
            "/v1/snapshots/retract",
            "Retract a version permanently",
            RetractedSnapshot,
            scope="admin",
            body=RetractSnapshot,
            examples={"one": _EXAMPLE},
            codes=("not_allowed",),
        )
    )
    async def retract(self, request: Request, asked: RetractSnapshot) -> RetractedSnapshot:
        """Return the version and its replacement; a retraction is never shed.

        This process has no signing keys: the publisher removes the version from the registry within
        half a minute. Services stop serving it at once.

        Raises:
            Refused: unknown version, a version that serves, or an active rollout.
        """
        try:
            async with self._apart.turn(request.key.tenant):
                done = await self._acting.call(lambda: self._retract(request, asked))
        except InputError as error:
            raise Refused.of("invalid", str(error), field="reason") from None
        except (RolloutError, StateError) as error:
            raise Refused.of("not_allowed", str(error)) from None
        row = done.row
        at = 0.0 if row.retracted_at is None else row.retracted_at.timestamp()
        return RetractedSnapshot(row.skill, row.point, row.version, at, done.serves)

    async def _retract(self, request: Request, asked: RetractSnapshot) -> RetractionResult:
        tenant, reason = request.key.tenant, checked_reason(asked.reason)
        connection = await self._database.connect("worker")
        try:
            async with connection.transaction():
                return await retract_version(
                    connection,
                    (tenant, asked.skill, asked.decision),
                    asked.version,
                    actor=f"key {request.key.id}",
                    reason=reason,
                    now=datetime.fromtimestamp(self._clock(), UTC),
                    take_back=asked.take_back,
                )
        finally:
            await connection.close()

    async def _read(self, tenant: UUID) -> list[ShownSnapshot]:
        shown = []
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            rollouts = await active_rollouts(connection, tenant)
            # The answer contains no declaration, so unreadable points are listed too.
            rows, unreadable = await points_as_they_are(connection, tenant)
            known: list[PointRow | UnreadablePoint] = [*rows, *unreadable]
            for row in sorted(known, key=lambda it: (it.skill, it.point)):
                place = row.skill, row.point
                rollout = next((it for it in rollouts if (it.skill, it.point) == place), None)
                found = await snapshots_of(connection, (tenant, *place))
                shown += [_shown(one, row.snapshot, rollout) for one in found[::-1][:_MOST]]
        return shown


def _shown(found: SnapshotRow, serving: str, rollout: RolloutRow | None) -> ShownSnapshot:
    roles = [] if found.version != serving else ["serving"]
    if rollout is not None:
        arms = {"control": rollout.control, "candidate": rollout.candidate}
        roles += [arm for arm, version in arms.items() if version == found.version]
    return ShownSnapshot(
        found.skill,
        found.point,
        found.version,
        found.reason,
        found.spec_hash.hex(),
        found.feature_hash.hex(),
        found.created_at.timestamp(),
        roles,
        found.parent,
        found.algorithm,
        found.samples,
        found.line,
        found.line_seq,
        None if found.published_at is None else found.published_at.timestamp(),
        None if found.retracted_at is None else found.retracted_at.timestamp(),
        found.description,
    )
