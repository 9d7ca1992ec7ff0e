"""Row builders for store tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from steersman.db.decisions import DecisionRow
from steersman.db.packed_events import EventRow
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.wire import id_time, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.platform.postgres.database import Database

# Every table that holds rows of tenants.
TABLES = (
    "answer_cache",
    "api_key",
    "audit",
    "checkpoint",
    "cold_export",
    "corpus",
    "corpus_document",
    "corpus_links",
    "corpus_passage",
    "corpus_snapshot",
    "corpus_vector",
    "decision",
    "decision_point",
    "erasure",
    "event",
    "excluded",
    "idempotency",
    "incident",
    "learner",
    "reward",
    "rollout",
    "rollout_task",
    "snapshot",
    "spec",
    "update",
    "verdict",
    "work",
)


def decision(tenant: UUID, **changes: Any) -> DecisionRow:
    """Return a decision made now, or at the time of ``id``."""
    identifier = changes.pop("id", None) or new_id()
    at = datetime.fromtimestamp(id_time(identifier), UTC)
    row = DecisionRow(
        tenant=tenant,
        id=identifier,
        skill="search",
        point="depth",
        episode=None,
        parent=None,
        unit=None,
        rollout=None,
        stage="live",
        arm="control",
        snapshot="0.1.0",
        update_seq=0,
        spec_hash=bytes(32),
        feature_hash=bytes(32),
        context={"length": 3},
        eligible=None,
        distribution=[0.25, 0.75],
        action="deep",
        p=0.75,
        p_kind="exact",
        x=[1.0, 0.5],
        key=None,
        features=None,
        u=0.5,
        degraded=False,
        weight=1.0,
        idempotency_key=None,
        body_hash=None,
        traceparent=None,
        at=at,
        window_ends=at + timedelta(minutes=10),
    )
    return replace(row, **changes)


def decision_of(
    row: PointRow, context: dict[str, Any], action: str, *, at: float, **changes: Any
) -> DecisionRow:
    """Return a decision of a declared point over a context."""
    x, key = encode(row.spec, _features(row), context)
    moment = datetime.fromtimestamp(at, UTC)
    made = decision(
        row.tenant,
        id=new_id(at),
        skill=row.skill,
        point=row.point,
        snapshot=row.snapshot,
        spec_hash=row.spec_hash,
        feature_hash=row.feature_hash,
        context=context,
        action=action,
        x=None if x is None else x.tolist(),
        key=key,
        at=moment,
        window_ends=moment + timedelta(seconds=row.spec.reward.window_s),
    )
    return replace(made, **changes)


_maps: dict[bytes, FeatureMap] = {}


def _features(row: PointRow) -> FeatureMap:
    """Return the cached feature map of a declaration."""
    if row.spec_hash not in _maps:
        _maps[row.spec_hash] = FeatureMap(row.spec.context)
    return _maps[row.spec_hash]


def event(tenant: UUID, decision: UUID | None, **changes: Any) -> EventRow:
    """Return an event about a decision, received now."""
    now = datetime.now(UTC)
    row = EventRow(
        tenant=tenant,
        id=str(new_id()),
        decision=decision,
        episode=None,
        type="feedback.submit",
        schema_version=1,
        at=now,
        received_at=now,
        outcomes={"clicked": 1.0},
        action_taken=None,
        body={"text": "thanks"},
        body_hash=bytes(16),
        traceparent=None,
    )
    return row._replace(**changes)


@asynccontextmanager
async def connected(
    database: Database, role: str | None = "app", tenant: UUID | None = None
) -> AsyncIterator[Any]:
    """Open a connection, inside a transaction of a tenant if given."""
    connection = await database.connect(role)
    try:
        if tenant is None:
            yield connection
        else:
            async with as_tenant(connection, tenant):
                yield connection
    finally:
        await connection.close()


async def counts(database: Database, tenant: UUID) -> dict[str, int]:
    """Return a tenant's row counts by table, without zeros."""
    async with connected(database, "owner", tenant) as connection:
        found = {
            table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES
        }
    return {table: count for table, count in found.items() if count}
