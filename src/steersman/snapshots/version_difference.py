"""Comparison of two versions of a point on held-out decisions.

Copies of both states first withdraw what they learned from these decisions, so that the newer
version gets no advantage. Parameters, features and origin are the signed ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.decisions import offered_of
from steersman.db.held_out import hold_out
from steersman.db.rewards import learned_of, spec_of
from steersman.db.snapshots import find_snapshot
from steersman.db.tenants import tenant_name
from steersman.db.updates import base_state
from steersman.features import FeatureMap
from steersman.learning.held_out import forget
from steersman.platform.postgres.database import as_tenant
from steersman.points.feature_encoding import encode
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import unpack_state
from steersman.registry.description import Description, Published, describe
from steersman.snapshots.comparison import diff
from steersman.snapshots.reference_log import Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.db.held_out import HeldOut
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy
    from steersman.policies.offered import Offered
    from steersman.snapshots.comparison import Diff
    from steersman.spec.point import DecisionPoint

SHARE = 0.2
NEWEST = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class _Version:
    description: Description
    policy: ChoicePolicy
    spec: DecisionPoint


async def compare_versions(
    database: Database,
    point: Point,
    first: str,
    second: str,
    *,
    share: float = SHARE,
    newest: int = NEWEST,
) -> Diff:
    """Return the differences of two versions.

    Args:
        share: share of the units of the newest decisions used for comparison, in (0, 1].

    Raises:
        StateError: a version does not exist or its state was removed.
        StoreError: the database is unreachable.
    """
    connection = await database.connect("worker")
    try:
        async with as_tenant(connection, point[0]):
            both = [await _version(connection, point, version) for version in (first, second)]
            rows = await hold_out(
                connection, point, share=share, newest=newest, judged=both[-1].spec
            )
            for one in both if rows else ():
                ids = [row.id for row in rows]
                version = one.description.version
                known = await learned_of(connection, point, version, ids, until=0)
                forget(one.policy, known.values())
    finally:
        await connection.close()
    return await asyncio.to_thread(_diff, both, rows)


def _diff(both: Sequence[_Version], rows: Sequence[HeldOut]) -> Diff:
    before, after = (Published(one.description, one.policy.state()) for one in both)
    return diff(before, after, _reference(both, rows) if rows else None)


async def _version(connection: Any, point: Point, version: str) -> _Version:
    row = await find_snapshot(connection, point, version)
    state = unpack_state(await base_state(connection, point, version))
    if row.description is not None:
        description = Description.from_json(row.description)
    else:
        description = describe(
            state,
            tenant=await tenant_name(connection, point[0]),
            skill=point[1],
            point=point[2],
            version=version,
            created_at=row.created_at,
            feature_hash=row.feature_hash.hex(),
            spec_hash=row.spec_hash.hex(),
        )
    return _Version(description, load_policy(state), await spec_of(connection, row.spec_hash))


def _reference(both: Sequence[_Version], rows: Sequence[HeldOut]) -> Reference:
    contexts, other_contexts = (_seen(one.spec, rows) for one in both)
    names = [tuple(getattr(one.spec.actions, "names", ())) for one in both]
    return Reference(
        contexts=contexts,
        other_contexts=other_contexts,
        actions=[row.action for row in rows],
        propensities=[row.p for row in rows],
        rewards=[row.reward for row in rows],
        eligible=[row.eligible for row in rows],
        features=[_offered(row) or _features(row, names[0]) for row in rows],
        units=[row.unit for row in rows],
    )


def _seen(spec: DecisionPoint, rows: Sequence[HeldOut]) -> Sequence[Any] | NDArray[np.float64]:
    """Return encoded contexts: vectors, keys or the contexts themselves."""
    features = FeatureMap(spec.context)
    found = [encode(spec, features, row.context) for row in rows]
    if found[0][0] is not None:
        return np.array([x for x, _ in found])
    return [row.context if key is None else key for row, (_, key) in zip(rows, found, strict=True)]


def _offered(row: HeldOut) -> tuple[Offered, list[dict[str, Any]]] | None:
    """Return the candidates and steps of a selection; None if it is not one."""
    if row.steps is None:
        return None
    return offered_of(row.eligible, row.links, row.features), row.steps


def _features(row: HeldOut, names: Sequence[str]) -> dict[str, NDArray[np.float64]] | None:
    if row.features is None:
        return None
    asked = row.eligible or names
    values = np.asarray(row.features, dtype=np.float64).reshape(len(asked), -1)
    return dict(zip(asked, values, strict=True))
