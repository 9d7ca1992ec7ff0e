"""Drift guard: pin a live lineage to its signed base when it leaves the base's bounds.

Lineages learn without supervision between two versions. The guard therefore compares the state with
its base, using the publish guard's measures and held-out decisions. If a bound is violated, the
point is pinned to its signed base. Learning continues in the background, so that an operator can
inspect the state and publish it as a candidate.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.audit import record
from steersman.db.derived_snapshots import hold_point, hold_view
from steersman.db.incidents import open_incident
from steersman.db.promotion import pin_point
from steersman.db.rollouts import active_rollouts
from steersman.db.snapshots import find_snapshot
from steersman.db.updates import base_state
from steersman.learning.held_out import ComparedState, HeldOutReport, compare
from steersman.learning.replica import load
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import load_policy
from steersman.points.scale_guard import guard, measure
from steersman.points.state_bytes import unpack_state

if TYPE_CHECKING:
    from steersman.db.points import PointRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database

LEVEL = 0.999
ACTOR = "drift guard"


async def check_drift(
    database: Database, row: PointRow, *, level: float = LEVEL, now: float
) -> list[str]:
    """Pin a decision point to its signed base if its lineage left the bounds.

    Does nothing without a signed base, if the point is already pinned, or during a rollout
    (neither arm learns then).

    Args:
        level: confidence level that must show a loss on held-out decisions. The default allows one
            false alarm in two thousand hourly checks.
        now: Unix time in seconds, for the incident.

    Returns:
        Reasons for pinning; empty if the point was not pinned.

    Raises:
        StoreError: the database is unreachable.
    """
    point = row.tenant, row.skill, row.point
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            row = await hold_view(connection, point)
            if not await _may_drift(connection, row):
                return []
            reasons, detail = await _judge(connection, row, level)
        if not reasons:
            return []
        async with as_tenant(connection, row.tenant):
            return await _go_back(connection, row, reasons, detail, now)
    finally:
        await connection.close()


async def _may_drift(connection: Any, row: PointRow) -> bool:
    if row.pinned_seq is not None or row.spec.learning.mode != "online":
        return False
    under_way = await active_rollouts(connection, row.tenant)
    if (row.skill, row.point) in {(one.skill, one.point) for one in under_way}:
        return False
    return (
        await find_snapshot(connection, (row.tenant, row.skill, row.point), row.snapshot)
    ).is_available


async def _judge(connection: Any, row: PointRow, level: float) -> tuple[list[str], dict[str, Any]]:
    point: Point = row.tenant, row.skill, row.point
    replica = await load(connection, row)
    if replica.seq == 0:
        return [], {}
    base = load_policy(unpack_state(await base_state(connection, point, row.snapshot)))
    reasons = guard(measure(replica.policy.state()), [measure(base.state())])
    report = await compare(
        connection,
        point,
        ComparedState(row.spec, replica.policy, row.snapshot, replica.seq),
        ComparedState(row.spec, base, row.snapshot, 0),
        level=level,
    )
    if report.is_worse:
        reasons.append(_worse(report))
    return reasons, {"snapshot": row.snapshot, "seq": replica.seq, "held_out": report.to_json()}


def _worse(report: HeldOutReport) -> str:
    return (
        f"over {report.decisions} held-out decisions its reward is {report.difference:+.4f} "
        f"(95 % CI {report.low:+.4f} to {report.high:+.4f}) relative to its base {report.against}"
    )


async def _go_back(
    connection: Any, row: PointRow, reasons: list[str], detail: dict[str, Any], now: float
) -> list[str]:
    """Pin the point unless the live version changed meanwhile."""
    point = row.tenant, row.skill, row.point
    held = await hold_point(connection, point)
    if held.snapshot != row.snapshot or not await _may_drift(connection, held):
        return []
    await pin_point(connection, point, 0)
    detail = {**detail, "reasons": reasons, "skill": row.skill, "point": row.point}
    name = f"{row.skill}/{row.point}"
    summary = f"drift guard restored {row.snapshot} for {name}: {reasons[0]}"
    at = datetime.fromtimestamp(now, UTC)
    await open_incident(connection, row.tenant, kind="drift", summary=summary, detail=detail, at=at)
    await record(connection, row.tenant, ACTOR, "point.pin", name, detail)
    return reasons
