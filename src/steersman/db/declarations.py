"""Declaration of a decision point: document, initial snapshot and learner."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steersman.db.audit import record
from steersman.db.points import (
    PointRow,
    UnreadablePoint,
    check_settled,
    find_as_it_is,
    find_declared,
    learned_from,
    tell_services,
)
from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.points.state_bytes import pack_state
from steersman.privacy.declared_scrub import check_scrubbers
from steersman.registry.versions import Ingredients, next_version
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint


async def declare(database: Database, tenant: UUID, document: str, *, actor: str) -> PointRow:
    """Declare a decision point or change its declaration; a repeated call changes nothing.

    If context, actions, policy, exploration or the context encoding change, learned state does not
    fit. Then a new, empty snapshot begins (``learn rebuild`` relearns it from the log). Any other
    change keeps the snapshot. An unreadable earlier declaration is repaired by the same document,
    or replaced.

    Raises:
        SpecError: the document is invalid.
        InputError: mixed parts have too many values, numbers of the context have no
            statistics, or a scrubber is not installed.
        RolloutError: a rollout of the point is active.
        StoreError: the database is unreachable.
    """
    spec, policy = _checked(document)
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant):
            await _take_turns(connection, tenant, spec)
            point = tenant, spec.skill, spec.decision
            old = await find_as_it_is(connection, point)
            if old is not None and old.spec_hash == bytes.fromhex(spec.spec_hash):
                if not isinstance(old, PointRow):
                    old = await _mend(connection, point, old, document, actor)
                if old.feature_hash == _feature_hash(spec):
                    return old
            await check_settled(connection, point)
            return await _store(connection, tenant, document, spec, policy, old, actor)
    finally:
        await connection.close()


def check_declaration(document: str) -> DecisionPoint:
    """Return the decision point of a document, if `declare` would accept it.

    Raises:
        SpecError: the document is invalid.
        InputError: numbers without statistics, or a scrubber that is not installed.
    """
    return _checked(document)[0]


def _checked(document: str) -> tuple[DecisionPoint, ChoicePolicy]:
    spec = loads(document, source="declaration")
    check_scrubbers(spec)
    return spec, _servable(spec)


def _servable(spec: DecisionPoint) -> ChoicePolicy:
    # Importing the policies (scipy) takes as long as the rest of the store.
    from steersman.points.policy_factory import initial_policy  # noqa: PLC0415

    policy = initial_policy(spec)
    unfitted = FeatureMap(spec.context).unfitted
    if unfitted and spec.policy.reads == "vector":
        message = (
            f"{spec.skill}/{spec.decision}: {spec.policy.algorithm} reads number fields "
            f"{', '.join(unfitted)}, which have no statistics; declare their centre and spread"
        )
        raise InputError(message)
    return policy


async def _take_turns(connection: Any, tenant: UUID, spec: DecisionPoint) -> None:
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"declare/{tenant}/{spec.skill}/{spec.decision}",
    )


async def _mend(
    connection: Any, point: Point, old: UnreadablePoint, document: str, actor: str
) -> PointRow:
    """Replace an unreadable text by one of the same meaning; keep the learned state."""
    await connection.execute(
        "UPDATE spec SET document = $3 WHERE tenant = $1 AND hash = $2",
        *(point[0], old.spec_hash, document),
    )
    detail = {"spec_hash": old.spec_hash.hex(), "snapshot": old.snapshot}
    await record(connection, point[0], actor, "point.declare", "/".join(point[1:]), detail)
    await tell_services(connection, point)
    row = await find_declared(connection, point)
    assert row is not None  # noqa: S101 (it was found before, and is held)
    return row


async def _store(
    connection: Any,
    tenant: UUID,
    document: str,
    spec: DecisionPoint,
    policy: ChoicePolicy,
    old: PointRow | UnreadablePoint | None,
    actor: str,
) -> PointRow:
    row = PointRow(
        tenant,
        spec.skill,
        spec.decision,
        spec,
        bytes.fromhex(spec.spec_hash),
        _feature_hash(spec),
        await _version(connection, spec, old),
        spec.reward.scope == "episode",
    )
    if isinstance(old, PointRow) and row.snapshot == old.snapshot:
        row = replace(row, pinned_seq=old.pinned_seq, pinned_by=old.pinned_by)
    await connection.execute(
        "INSERT INTO spec (tenant, hash, skill, point, document) VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT DO NOTHING",
        *(tenant, row.spec_hash, row.skill, row.point, document),
    )
    if old is None or row.snapshot != old.snapshot:
        await _begin(connection, row, policy, None if old is None else old.snapshot)
    await connection.execute(
        "INSERT INTO decision_point "
        "(tenant, skill, point, spec_hash, feature_hash, snapshot, per_episode) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, skill, point) DO UPDATE SET "
        "spec_hash = excluded.spec_hash, feature_hash = excluded.feature_hash, "
        "snapshot = excluded.snapshot, per_episode = excluded.per_episode, updated_at = now(), "
        "pinned_seq = CASE WHEN decision_point.snapshot = excluded.snapshot "
        "THEN decision_point.pinned_seq END",
        *(tenant, row.skill, row.point, row.spec_hash, row.feature_hash, row.snapshot),
        row.per_episode,
    )
    detail = {"spec_hash": spec.spec_hash, "snapshot": row.snapshot}
    await record(connection, tenant, actor, "point.declare", f"{row.skill}/{row.point}", detail)
    await tell_services(connection, (tenant, row.skill, row.point))
    return row


async def _version(
    connection: Any, spec: DecisionPoint, old: PointRow | UnreadablePoint | None
) -> str:
    """Return the live snapshot: the old one or a new version."""
    readable = old if isinstance(old, PointRow) else None
    encoded_alike = readable is None or readable.feature_hash == _feature_hash(spec)
    if readable is not None and encoded_alike and learned_from(spec) == learned_from(readable.spec):
        return readable.snapshot
    taken = await connection.fetch(
        "SELECT id FROM snapshot WHERE skill = $1 AND point = $2", spec.skill, spec.decision
    )
    before = None if readable is None else Ingredients.of(readable.spec, readable.snapshot)
    return next_version(
        before,
        Ingredients.of(spec),
        [row["id"] for row in taken],
        least="patch" if encoded_alike else "minor",
    )


def _feature_hash(spec: DecisionPoint) -> bytes:
    return bytes.fromhex(FeatureMap(spec.context).hash)


async def _begin(connection: Any, row: PointRow, policy: ChoicePolicy, parent: str | None) -> None:
    """Store an empty snapshot and reset the learner.

    The epoch grows, so that a learner of the old snapshot is fenced.
    """
    state = pack_state(policy.state())
    await connection.execute(
        "INSERT INTO snapshot "
        "(tenant, skill, point, id, parent, spec_hash, feature_hash, reason, state, sha256, "
        "algorithm, samples) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, 'declared', $8, sha256($8), $9, 0)",
        *(row.tenant, row.skill, row.point, row.snapshot, parent),
        *(row.spec_hash, row.feature_hash, state, row.spec.policy.algorithm),
    )
    await connection.execute(
        "INSERT INTO learner (tenant, skill, point, epoch, holder, snapshot, seq) "
        "VALUES ($1, $2, $3, 0, '', $4, 0) ON CONFLICT (tenant, skill, point) DO UPDATE SET "
        "epoch = learner.epoch + 1, holder = '', snapshot = excluded.snapshot, seq = 0",
        *(row.tenant, row.skill, row.point, row.snapshot),
    )
