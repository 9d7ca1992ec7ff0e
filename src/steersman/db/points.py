"""Decision point rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import RolloutError, SpecError
from steersman.features import FeatureMap
from steersman.registry.versions import Ingredients
from steersman.spec.loader import loads, privacy_of

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.spec.point import DecisionPoint
    from steersman.spec.privacy import Privacy

_JOINED = (
    "SELECT p.tenant, p.skill, p.point, p.spec_hash, p.feature_hash, p.snapshot, p.per_episode, "
    "p.pinned_seq, CASE WHEN p.pinned_seq IS NOT NULL THEN p.pinned_by END AS pinned_by, "
    "s.document FROM decision_point AS p JOIN spec AS s ON s.tenant = p.tenant "
    "AND s.hash = p.spec_hash "
)
_parsed = lru_cache(maxsize=1024)(partial(loads, source="declaration"))
_privacy = lru_cache(maxsize=64)(privacy_of)


@dataclass(frozen=True)
class PointRow:
    """Declared decision point.

    Attributes:
        tenant: tenant id.
        skill: skill name.
        point: decision point name.
        spec: the declaration.
        spec_hash: hash of the declaration's meaning, 32 bytes.
        feature_hash: hash of the context encoding, 32 bytes.
        snapshot: version of the live policy state.
        per_episode: whether outcomes credit every decision of the episode.
        pinned_seq: update that it is pinned to; None: it follows its log.
        pinned_by: the rollout that pinned it; None: not pinned, or pinned by the drift
            guard.
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
        """Why this version of Steersman cannot use it, and what to do; None if it can."""
        if bytes.fromhex(FeatureMap(self.spec.context).hash) == self.feature_hash:
            return None
        return (
            f"{self.skill}/{self.point} was declared with another context encoding than this "
            "version of Steersman uses; declare it again with `steersman tenant declare`, then run "
            "`steersman learn rebuild`"
        )


@dataclass(frozen=True, slots=True)
class UnreadablePoint:
    """Decision point whose stored declaration this version cannot read.

    Attributes:
        skill: skill name.
        point: decision point name.
        snapshot: version of the live policy state.
        spec_hash: hash of the declaration, 32 bytes.
        why: what is wrong and what to do.
        pinned_seq: as in `PointRow`.
        pinned_by: as in `PointRow`.
        privacy: its personal-data rules; None: unreadable too.
    """

    skill: str
    point: str
    snapshot: str
    spec_hash: bytes
    why: str
    pinned_seq: int | None = None
    pinned_by: UUID | None = None
    privacy: Privacy | None = None


class LiveVersion(NamedTuple):
    """Live version of a decision point.

    Attributes:
        snapshot: version of the policy state.
        spec_hash: hash of the declaration, 32 bytes.
        feature_hash: hash of the context encoding, 32 bytes.
    """

    snapshot: str
    spec_hash: bytes
    feature_hash: bytes


async def points_of(connection: Any, tenant: UUID) -> list[PointRow]:
    """Return the decision points of a tenant.

    Raises:
        SpecError: a declaration cannot be read; the message names it.
    """
    return [_row(row) for row in await _all(connection, tenant)]


async def points_as_they_are(
    connection: Any, tenant: UUID
) -> tuple[list[PointRow], list[UnreadablePoint]]:
    """Return the readable and the unreadable decision points of a tenant."""
    found = [_read(row) for row in await _all(connection, tenant)]
    readable = [one for one in found if isinstance(one, PointRow)]
    return readable, [one for one in found if isinstance(one, UnreadablePoint)]


async def find_declared(connection: Any, point: Point) -> PointRow | None:
    """Return one decision point; unreadable others do not matter.

    Returns:
        The row; None if not declared.

    Raises:
        SpecError: its declaration cannot be read.
    """
    found = await _find(connection, point)
    return None if found is None else _row(found)


async def find_as_it_is(connection: Any, point: Point) -> PointRow | UnreadablePoint | None:
    """Return one decision point, readable or not; None if not declared."""
    found = await _find(connection, point)
    return None if found is None else _read(found)


async def check_settled(connection: Any, point: Point) -> None:
    """Raise an error if a rollout of a decision point is active.

    Raises:
        RolloutError: a rollout is active.
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


async def is_pinned(connection: Any, point: Point) -> bool:
    """Return whether a decision point is pinned to one update."""
    pinned = await connection.fetchval(
        "SELECT pinned_seq FROM decision_point WHERE tenant = $1 AND skill = $2 AND point = $3",
        *point,
    )
    return pinned is not None


async def live_version(connection: Any, point: Point) -> LiveVersion | None:
    """Return the live snapshot of a decision point; None if not declared."""
    found = await connection.fetchrow(
        "SELECT snapshot, spec_hash, feature_hash FROM decision_point "
        "WHERE tenant = $1 AND skill = $2 AND point = $3",
        *point,
    )
    return None if found is None else LiveVersion(*found)


async def point_names(
    connection: Any, skill: str | None = None, point: str | None = None
) -> list[tuple[str, str]]:
    """Return skill and name of the decision points of the transaction's tenant.

    Args:
        skill: only those of this skill.
        point: only those of this name.
    """
    rows = await connection.fetch(
        "SELECT skill, point FROM decision_point WHERE ($1::text IS NULL OR "
        "skill = $1) AND ($2::text IS NULL OR point = $2) ORDER BY skill, point",
        *(skill, point),
    )
    return [(row["skill"], row["point"]) for row in rows]


async def tell_services(connection: Any, point: Point) -> None:
    """Notify the services of a changed point after the commit."""
    name = "/".join(map(str, point))
    await connection.execute("SELECT pg_notify('steersman_point', $1)", name)


async def _all(connection: Any, tenant: UUID) -> Any:
    return await connection.fetch(_JOINED + "WHERE p.tenant = $1 ORDER BY p.skill, p.point", tenant)


async def _find(connection: Any, point: Point) -> Any:
    where = "WHERE p.tenant = $1 AND p.skill = $2 AND p.point = $3"
    return await connection.fetchrow(_JOINED + where, *point)


def learned_from(spec: DecisionPoint) -> dict[str, Any]:
    """Return what a state depends on besides rewards; states fit if these are equal."""
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
            _privacy(row["document"]),
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
