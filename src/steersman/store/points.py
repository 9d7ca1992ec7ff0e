"""Decision points as they are declared, read from their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from steersman.errors import RolloutError, SpecError
from steersman.features import FeatureMap
from steersman.registry import Ingredients
from steersman.spec import DecisionPoint, Mixed, Sequence, loads

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.policies import ChoicePolicy
    from steersman.store.work import Point

_JOINED = (
    "SELECT p.tenant, p.skill, p.point, p.spec_hash, p.feature_hash, p.snapshot, p.per_episode, "
    "p.pinned_seq, CASE WHEN p.pinned_seq IS NOT NULL THEN p.pinned_by END AS pinned_by, "
    "s.document FROM decision_point AS p JOIN spec AS s ON s.tenant = p.tenant "
    "AND s.hash = p.spec_hash "
)
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

    @property
    def problem(self) -> str | None:
        """Why this version cannot serve it, and what to do; None: it can."""
        if bytes.fromhex(FeatureMap(self.spec.context).hash) == self.feature_hash:
            return None
        return (
            f"{self.skill}/{self.point} was declared with another context encoding than this "
            "version of Steersman uses; declare it again with `steersman tenant declare`, then run "
            "`steersman learn rebuild`"
        )


@dataclass(frozen=True, slots=True)
class UnreadablePoint:
    """A decision point whose stored declaration this version cannot read.

    Attributes:
        skill: the application capability.
        point: the decision point's name.
        snapshot: the policy state that served when it could be read.
        spec_hash: 32 bytes, of what the declaration meant.
        why: what is wrong, and what to do.
        pinned_seq: as of a `PointRow`.
        pinned_by: likewise.
    """

    skill: str
    point: str
    snapshot: str
    spec_hash: bytes
    why: str
    pinned_seq: int | None = None
    pinned_by: UUID | None = None


async def points_of(connection: Any, tenant: UUID) -> list[PointRow]:
    """Return the decision points of a tenant.

    Args:
        connection: of any role, within a transaction of that tenant.
        tenant: whose.

    Returns:
        Rows by skill and name.

    Raises:
        SpecError: the declaration of one of them cannot be read; the message names it.
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
    """
    found = await _find(connection, point)
    return None if found is None else _row(found)


async def find_as_it_is(connection: Any, point: Point) -> PointRow | UnreadablePoint | None:
    """Return one decision point, though its declaration may not be readable.

    Args:
        connection: of any role, within a transaction of that tenant.
        point: tenant, skill and decision point.

    Returns:
        The point; None: nobody declared it.
    """
    found = await _find(connection, point)
    return None if found is None else _read(found)


def initial_policy(spec: DecisionPoint) -> ChoicePolicy:
    """Return the policy that a declaration names, with nothing learned.

    Args:
        spec: a decision point.

    Returns:
        A policy over the context's vector, or over the actions' features where it is a joint one
        or that of a sequence.

    Raises:
        InputError: parts with too many values.

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
    # With scipy below them policies take as long to import as all the rest of the store.
    from steersman.policies import build  # noqa: PLC0415

    if isinstance(spec.actions, Mixed):
        mixed = spec.actions
        dim = spec.context.dim
        return build(spec.policy, mixed.names, dim=dim, floor=spec.floor, mixed=mixed)
    if isinstance(spec.actions, Sequence):
        return build(spec.policy, (), dim=0, floor=spec.floor, sequence=spec.actions)
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
    """
    found = await connection.fetchrow(
        "SELECT id, candidate FROM rollout WHERE tenant = $1 AND skill = $2 AND point = $3 "
        "AND status IN ('running', 'paused')",
        *point,
    )
    if found is not None:
        raise RolloutError(
            f"rollout {found['id']} of {point[1]}/{point[2]} {found['candidate']} is "
            "active, so its arms must not change; promote it or roll it back first"
        )


async def tell_services(connection: Any, point: Point) -> None:
    """Tell every service, once this transaction is committed, that a point serves otherwise.

    Args:
        connection: within a transaction.
        point: that was declared, promoted, pinned, or whose rollout moved.
    """
    name = "/".join(map(str, point))
    await connection.execute("SELECT pg_notify('steersman_point', $1)", name)


async def _all(connection: Any, tenant: UUID) -> Any:
    return await connection.fetch(_JOINED + "WHERE p.tenant = $1 ORDER BY p.skill, p.point", tenant)


async def _find(connection: Any, point: Point) -> Any:
    where = "WHERE p.tenant = $1 AND p.skill = $2 AND p.point = $3"
    return await connection.fetchrow(_JOINED + where, *point)


def learned_from(spec: DecisionPoint) -> dict[str, Any]:
    """Return what a state depends on beside the rewards it learned; equal: it fits.

    Args:
        spec: a declaration.

    Returns:
        Values by name, to be compared.
    """
    return dict(Ingredients.of(spec).parameters)


def _read(row: Any) -> PointRow | UnreadablePoint:
    try:
        return _row(row)
    except SpecError as error:
        return UnreadablePoint(
            row["skill"],
            row["point"],
            row["snapshot"],
            row["spec_hash"],
            str(error),
            row["pinned_seq"],
            row["pinned_by"],
        )


def _row(row: Any) -> PointRow:
    try:
        spec = _parsed(row["document"])
    except SpecError as error:
        name = f"{row['skill']}/{row['point']}"
        message = f"cannot read the declaration of {name}: {str(error).splitlines()[0]:.300}; "
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
