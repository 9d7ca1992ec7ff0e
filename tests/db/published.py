"""Helpers: a decision point with a log and published snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steersman.db.declarations import declare
from steersman.db.derived_snapshots import hold_point
from steersman.db.rewards import spec_of
from steersman.db.snapshots import (
    FrozenState,
    SnapshotRow,
    find_snapshot,
    mark_published,
    reserve_snapshot,
    store_spec,
)
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state
from steersman.registry.versions import Ingredients, next_version
from steersman.spec.loader import loads
from steersman.wire import new_id
from tests.db.rows import connected
from tests.db.test_points import DOCUMENT

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database


async def declared(database: Database, tenant: UUID, document: str = DOCUMENT) -> Point:
    """Declare a point and return its key."""
    row = await declare(database, tenant, document, actor="test")
    return row.tenant, row.skill, row.point


async def learn(database: Database, point: Point, count: int) -> list[UUID]:
    """Write the next updates of the live snapshot; return their decisions."""
    decisions = [new_id() for _ in range(count)]
    async with connected(database, "worker", point[0]) as connection:
        for decision in decisions:
            await connection.execute(
                "WITH l AS (UPDATE learner SET seq = seq + 1 WHERE skill = $2 AND point = $3 "
                "RETURNING snapshot, seq) INSERT INTO update (tenant, skill, point, snapshot, seq, "
                "decision, revision, x, action, reward_change, weight_change, weight, bucket) "
                "SELECT $1, $2, $3, l.snapshot, l.seq, $4, 1, $5, 'deep', 0.5, 1, 1, 0 FROM l",
                *(*point, decision, [0.5] * 8),
            )
    return decisions


async def frozen(
    database: Database, point: Point, seq: int, *, document: str | None = None, **changes: Any
) -> SnapshotRow:
    """Reserve a version of the live lineage after an update; its state is arbitrary."""
    async with connected(database, "worker") as connection, connection.transaction():
        row = await hold_point(connection, point)
        spec = row.spec if document is None else loads(document)
        if document is not None:
            await store_spec(connection, point, bytes.fromhex(spec.spec_hash), document)
        one = FrozenState(
            line=row.snapshot,
            line_seq=seq,
            spec_hash=bytes.fromhex(spec.spec_hash),
            feature_hash=row.feature_hash,
            state=pack_state(initial_policy(spec).state()),
            algorithm=spec.policy.algorithm,
            samples=seq,
        )
        before, after = Ingredients.of(row.spec, row.snapshot), Ingredients.of(spec)
        return await reserve_snapshot(
            connection,
            point,
            replace(one, **changes),
            lambda taken: next_version(before, after, taken),
        )


async def published(
    database: Database, point: Point, seq: int, *, document: str | None = None, **changes: Any
) -> SnapshotRow:
    """Mark the live lineage after an update as published in the store."""
    row = await frozen(database, point, seq, document=document, **changes)
    async with connected(database, "worker", point[0]) as connection:
        return await mark_published(connection, point, row.version, {"samples": row.samples})


async def found(database: Database, point: Point, version: str) -> SnapshotRow:
    async with connected(database, "app", point[0]) as connection:
        await spec_of(connection, (await find_snapshot(connection, point, version)).spec_hash)
        return await find_snapshot(connection, point, version)
