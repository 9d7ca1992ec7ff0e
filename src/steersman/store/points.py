"""Decision points as they are declared: the document, the snapshot it starts from, its learner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError, RolloutError, SpecError
from steersman.features import FeatureMap
from steersman.policies import build
from steersman.registry import Ingredients, next_version, pack_state
from steersman.spec import Choice, DecisionPoint, loads
from steersman.store.audit import record
from steersman.store.database import as_tenant
from steersman.store.scrubbing import check_scrubbers

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.policies import ChoicePolicy
    from steersman.store.database import Database
    from steersman.store.work import Point

_JOINED = (
    "SELECT p.tenant, p.skill, p.point, p.spec_hash, p.feature_hash, p.snapshot, p.per_episode, "
    "p.pinned_seq, CASE WHEN p.pinned_seq IS NOT NULL THEN p.pinned_by END AS pinned_by, "
    "s.document FROM decision_point AS p JOIN spec AS s ON s.tenant = p.tenant "
    "AND s.hash = p.spec_hash "
)
_READ_NUMBERS = {"lin_ucb", "bounded_lin_ucb", "kernel_ucb", "lin_ts"}
_parsed = lru_cache(maxsize=1024)(partial(loads, source="declaration"))


@dataclass(frozen=True)
class PointRow:
    """A declared decision point.

    Attributes:
        tenant: whose it is.
        skill: the application capability.
        point: the decision point's name.
        spec: the declaration.
        spec_hash: 32 bytes; changes with the declaration's meaning.
        feature_hash: 32 bytes; changes whenever a context would become another vector.
        snapshot: the policy state that serves, by its version.
        per_episode: whether outcomes credit every decision of the episode.
        pinned_seq: the update after which it serves, whatever is learned; None: it follows.
        pinned_by: the rollout that froze it there; None: it is not pinned, or the drift guard did.
    """

    tenant: UUID
    skill: str
    point: str
    spec: DecisionPoint
    spec_hash: bytes
    feature_hash: bytes
    snapshot: str
    per_episode: bool
    pinned_seq: int | None = None
    pinned_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class UnreadablePoint:
    """A decision point whose stored declaration this version cannot read.

    Attributes:
        skill: the application capability.
        point: the decision point's name.
        snapshot: the policy state that served when it could be read.
        why: what is wrong, and what to do.
    """

    skill: str
    point: str
    snapshot: str
    why: str


async def declare(database: Database, tenant: UUID, document: str, *, actor: str) -> PointRow:
    """Declare a decision point, or change its declaration; the same again changes nothing.

    Where context, actions, policy or exploration differ from what was declared before, what was
    learned does not fit: a new snapshot begins that has learned nothing (``learn rebuild`` relearns
    it from the log). Any other change keeps the snapshot. What was declared before need not be
    readable: the same declaration mends it, and another one begins anew.

    Args:
        database: migrated.
        tenant: whose decision point.
        document: YAML, as ``steersman.spec.loads`` takes it.
        actor: who declares it, for the audit.

    Returns:
        The decision point as it is from now on.

    Raises:
        SpecError: the document is wrong.
        InputError: it cannot be served: mixed actions and sequences have no policy yet, numbers
            of the context have no statistics, or a scrubber is not installed.
        RolloutError: a rollout of the point is under way, whose arms could not be compared then.
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    spec = loads(document, source="declaration")
    check_scrubbers(spec)
    policy = _servable(spec)
    connection = await database.connect("owner")
    try:
        async with as_tenant(connection, tenant):
            await _take_turns(connection, tenant, spec)
            point = tenant, spec.skill, spec.decision
            found = await _find(connection, point)
            old = None if found is None else _read(found)
            if found is not None and found["spec_hash"] == bytes.fromhex(spec.spec_hash):
                if isinstance(old, PointRow):
                    return old
                return await _mend(connection, point, found, document, actor)
            await check_settled(connection, point)
            return await _store(connection, tenant, document, spec, policy, old, actor)
    finally:
        await connection.close()


async def points_of(connection: Any, tenant: UUID) -> list[PointRow]:
    """Return the decision points of a tenant.

    Args:
        connection: of any role, within a transaction of that tenant.
        tenant: whose.

    Returns:
        Rows by skill and name.

    Raises:
        SpecError: the declaration of one of them cannot be read; the message names it.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    return [_row(row) for row in await _all(connection, tenant)]


async def points_as_they_are(
    connection: Any, tenant: UUID
) -> tuple[list[PointRow], list[UnreadablePoint]]:
    """Return the decision points of a tenant, and those whose declaration cannot be read.

    Args:
        connection: of any role, within a transaction of that tenant.
        tenant: whose.

    Returns:
        Each by skill and name.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    found = [_read(row) for row in await _all(connection, tenant)]
    readable = [one for one in found if isinstance(one, PointRow)]
    return readable, [one for one in found if isinstance(one, UnreadablePoint)]


async def find_declared(connection: Any, point: Point) -> PointRow | None:
    """Return one decision point, whatever others of the tenant are like.

    Args:
        connection: of any role, within a transaction of that tenant.
        point: tenant, skill and decision point.

    Returns:
        The row; None: nobody declared it.

    Raises:
        SpecError: its declaration cannot be read.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    found = await _find(connection, point)
    return None if found is None else _row(found)


def initial_policy(spec: DecisionPoint) -> ChoicePolicy:
    """Return the policy that a declaration names, with nothing learned.

    Args:
        spec: a decision point with choice actions.

    Returns:
        A policy over the context's vector, or over the actions' features where it is a joint one.

    Raises:
        InputError: mixed actions or a sequence, for which there is no policy yet.

    >>> from steersman.spec import loads
    >>> spec = loads('''
    ... format: 1
    ... skill: search
    ... decision: depth
    ... actions: {kind: choice, names: [shallow, deep]}
    ... policy: {algorithm: lin_ucb}
    ... floor: 0.02
    ... fallback: {rules: [], otherwise: shallow}
    ... reward: {terms: {clicked: {weight: 1}}}
    ... ''')
    >>> initial_policy(spec).actions
    ('shallow', 'deep')
    """
    if not isinstance(spec.actions, Choice):
        message = (
            f"{spec.skill}/{spec.decision} has {spec.actions.kind} actions, and there is no policy "
            "yet; allowed is kind: choice; name the combinations as actions"
        )
        raise InputError(message)
    joint = spec.policy.algorithm.startswith("joint_")
    dim = len(spec.actions.features) if joint else spec.context.dim
    names = () if spec.actions.open and joint else spec.actions.names
    return build(spec.policy, names, dim=dim, floor=spec.floor)


async def check_settled(connection: Any, point: Point) -> None:
    """Refuse to change what a point learns from while a rollout of it is under way.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.

    Raises:
        RolloutError: there is one.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    found = await connection.fetchrow(
        "SELECT id, candidate FROM rollout WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND status IN ('running', 'paused')",
        *point,
    )
    if found is not None:
        raise RolloutError(
            f"the rollout {found['id']} of {point[1]}/{point[2]} {found['candidate']} is under "
            "way, and its arms must stay as they are; promote it or roll it back first"
        )


async def tell_services(connection: Any, point: Point) -> None:
    """Tell every service, once this transaction is committed, that a point serves otherwise.

    Args:
        connection: within a transaction.
        point: that was declared, promoted, pinned, or whose rollout moved.

    No doctest: it needs a server; ``tests/store/test_points.py`` shows it.
    """
    name = "/".join(map(str, point))
    await connection.execute("SELECT pg_notify('steersman_point', $1)", name)


def _servable(spec: DecisionPoint) -> ChoicePolicy:
    policy = initial_policy(spec)
    algorithm = spec.policy.algorithm
    reads_numbers = algorithm in _READ_NUMBERS or getattr(spec.policy, "contextual", False)
    unfitted = FeatureMap(spec.context).unfitted
    if unfitted and reads_numbers:
        message = (
            f"{spec.skill}/{spec.decision}: {algorithm} reads the numbers "
            f"{', '.join(unfitted)}, which have no statistics; declare their centre and spread"
        )
        raise InputError(message)
    return policy


async def _take_turns(connection: Any, tenant: UUID, spec: DecisionPoint) -> None:
    """Wait for whoever declares the same point at the same time."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
        f"declare/{tenant}/{spec.skill}/{spec.decision}",
    )


async def _all(connection: Any, tenant: UUID) -> Any:
    return await connection.fetch(_JOINED + "WHERE p.tenant = $1 ORDER BY p.skill, p.point", tenant)


async def _find(connection: Any, point: Point) -> Any:
    where = "WHERE p.tenant = $1 AND p.skill = $2 AND p.point = $3"
    return await connection.fetchrow(_JOINED + where, *point)


async def _mend(connection: Any, point: Point, found: Any, document: str, actor: str) -> PointRow:
    """Store a readable text of the same meaning; what was learned stays."""
    await connection.execute(
        "UPDATE spec SET document = $3 WHERE tenant = $1 AND hash = $2",
        *(point[0], found["spec_hash"], document),
    )
    detail = {"spec_hash": found["spec_hash"].hex(), "snapshot": found["snapshot"]}
    await record(connection, point[0], actor, "point.declare", "/".join(point[1:]), detail)
    await tell_services(connection, point)
    return _row({**found, "document": document})


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
        bytes.fromhex(FeatureMap(spec.context).hash),
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
    """Return the snapshot that serves from now on: the old one, or a new version."""
    readable = old if isinstance(old, PointRow) else None
    if readable is not None and learned_from(spec) == learned_from(readable.spec):
        return readable.snapshot
    taken = await connection.fetch(
        "SELECT id FROM snapshot WHERE skill = $1 AND point = $2", spec.skill, spec.decision
    )
    before = None if readable is None else Ingredients.of(readable.spec, readable.snapshot)
    return next_version(before, Ingredients.of(spec), [row["id"] for row in taken])


def learned_from(spec: DecisionPoint) -> dict[str, Any]:
    """Return what a state depends on beside the rewards it learned; equal: it fits.

    Args:
        spec: a declaration.

    Returns:
        Values by name, to be compared.

    No doctest: it needs a declaration; ``tests/store/test_points.py`` shows it.
    """
    return dict(Ingredients.of(spec).parameters)


async def _begin(connection: Any, row: PointRow, policy: ChoicePolicy, parent: str | None) -> None:
    """Store a snapshot that has learned nothing, and put the learner to its beginning.

    The epoch grows, so that a learner which is writing updates of the old snapshot is fenced.
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


def _read(row: Any) -> PointRow | UnreadablePoint:
    try:
        return _row(row)
    except SpecError as error:
        return UnreadablePoint(row["skill"], row["point"], row["snapshot"], str(error))


def _row(row: Any) -> PointRow:
    try:
        spec = _parsed(row["document"])
    except SpecError as error:
        name = f"{row['skill']}/{row['point']}"
        message = f"what was declared of {name} cannot be read: {str(error).splitlines()[0]:.300}; "
        hint = "declare it again with `steersman tenant declare`, or use the version that stored it"
        raise SpecError(message + hint) from error
    return PointRow(
        row["tenant"],
        row["skill"],
        row["point"],
        spec,
        row["spec_hash"],
        row["feature_hash"],
        row["snapshot"],
        row["per_episode"],
        row["pinned_seq"],
        row["pinned_by"],
    )
