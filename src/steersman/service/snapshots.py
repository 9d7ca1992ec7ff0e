"""`GET /v1/snapshots`: the versions of a tenant's policies, and which of them serve now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.service.app import Route
from steersman.service.http import Answer, json_answer
from steersman.store import active_rollouts, as_tenant, points_of, snapshots_of

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg import Pool

    from steersman.service.http import Request
    from steersman.store import Breaker, PointRow, RolloutRow, SnapshotRow

_MOST = 200


class ShownSnapshot(msgspec.Struct, omit_defaults=True):
    """One version of a decision point's policy.

    Attributes:
        skill: the application capability.
        decision: the decision point.
        version: such as 0.1.0.
        reason: declared (it has learned nothing), rebuilt (from the log) or published (signed).
        spec_hash: of the declaration that it was made under, hexadecimal.
        feature_hash: of its feature map, hexadecimal.
        created_at: when the version was given out, seconds since 1970.
        roles: what it does now: ``serving``, ``control``, ``candidate``; none: nothing.
        parent: the version before it.
        algorithm: of its policy.
        samples: decisions that it learned from.
        line: of a published one, the snapshot whose state it is,
        line_seq: and after how many of its updates.
        published_at: when it was signed, seconds since 1970; absent: it was not, or not yet.
        retracted_at: when it was taken back; absent: it was not.
        description: as it was signed.
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
    """Handler of ``GET /v1/snapshots``.

    Args:
        pool: connections of role app.
        breaker: around the store.

    No doctest: it needs a server; ``tests/service/test_serving_rollouts.py`` shows it.
    """

    def __init__(self, pool: Pool[Any], breaker: Breaker) -> None:
        self._pool = pool
        self._breaker = breaker

    def routes(self) -> list[tuple[str, Route]]:
        """Return the routes."""
        return [("GET", Route("/v1/snapshots", self.snapshots, "read", "read"))]

    async def snapshots(self, request: Request) -> Answer:
        """Answer the request.

        Args:
            request: whose key may read.

        Returns:
            ``{"snapshots": [...]}``: the newest 200 of each decision point, newest first.
        """
        tenant = request.key.tenant
        shown = await self._breaker.call(lambda: self._read(tenant))
        return json_answer({"snapshots": shown})

    async def _read(self, tenant: UUID) -> list[ShownSnapshot]:
        shown = []
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            rollouts = await active_rollouts(connection, tenant)
            for row in await points_of(connection, tenant):
                place = row.skill, row.point
                rollout = next((it for it in rollouts if (it.skill, it.point) == place), None)
                found = await snapshots_of(connection, (tenant, *place))
                shown += [_shown(one, row, rollout) for one in found[::-1][:_MOST]]
        return shown


def _shown(found: SnapshotRow, row: PointRow, rollout: RolloutRow | None) -> ShownSnapshot:
    roles = [] if found.version != row.snapshot else ["serving"]
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
