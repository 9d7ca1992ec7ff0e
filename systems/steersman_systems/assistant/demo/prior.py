"""Prior of the assistant's policies, as rows of the store.

In one process a call warms up a policy. Here the same pseudo-requests are decisions without a
propensity: the learner reads them like an imported log, and evidence skips them.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from steersman.cli.options import run
from steersman.db.decisions import DecisionRow, log_decisions
from steersman.db.packed_events import EventRow, log_events
from steersman.db.points import points_of
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.rewards import evaluate
from steersman.wire import canonical_hash, new_id
from steersman_systems.assistant.choosers import PRIOR_REQUESTS, PRIOR_REWARD

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.points import PointRow
    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman.spec.point import DecisionPoint

PREFIX = "prior-"
"""Prefix of the event ids."""


def write_prior(database: Database, tenant: Tenant) -> None:
    """Write the pseudo-requests of every point with fixed actions."""
    run(_write(database, tenant.id))


async def _write(database: Database, tenant: UUID) -> None:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            points = await points_of(connection, tenant)
        decisions = [
            _decision(point, action)
            for point in points
            for action in getattr(point.spec.actions, "names", ())
            for _ in range(PRIOR_REQUESTS)
        ]
        outcomes = {point.point: worth(point.spec, PRIOR_REWARD) for point in points}
        await log_decisions(connection, decisions)
        await log_events(connection, [_event(row, outcomes[row.point]) for row in decisions])
    finally:
        await connection.close()


def worth(spec: DecisionPoint, reward: float) -> dict[str, float]:
    """Return outcomes of a right answer whose latency gives the wanted reward."""
    right = {"success": 1.0, "tool_ok": 1.0, "cost_usd": 0.0, "cache_hit": 0.0}
    right["guardian_flag"] = 0.0
    at_once = evaluate(spec.reward, {**right, "latency_ms": 0.0}).value
    slowest = evaluate(spec.reward, {**right, "latency_ms": 2000.0}).value
    if at_once is None or slowest is None or at_once == slowest:
        return right
    return {**right, "latency_ms": 2000.0 * (at_once - reward) / (at_once - slowest)}


def _decision(point: PointRow, action: str) -> DecisionRow:
    at = time.time()
    moment = datetime.fromtimestamp(at, UTC)
    x = [1.0] + [0.0] * (FeatureMap(point.spec.context).dim - 1)
    return DecisionRow(
        tenant=point.tenant,
        id=new_id(at),
        skill=point.skill,
        point=point.point,
        snapshot="imported",
        spec_hash=point.spec_hash,
        feature_hash=point.feature_hash,
        context={},
        distribution=[],
        action=action,
        p=None,
        p_kind="none",
        x=x,
        at=moment,
        window_ends=moment + timedelta(seconds=point.spec.reward.window_s),
    )


def _event(row: DecisionRow, outcomes: dict[str, Any]) -> EventRow:
    identifier = f"{PREFIX}{row.id}"
    return EventRow(
        tenant=row.tenant,
        id=identifier,
        decision=row.id,
        episode=None,
        type="task_result",
        schema_version=1,
        at=row.at,
        received_at=row.at,
        outcomes=outcomes,
        action_taken=None,
        body=None,
        body_hash=canonical_hash({"event_id": identifier, "outcomes": outcomes}),
        traceparent=None,
    )
