"""Held-out decisions: a share of the newest units, selected by hash."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import SpecError
from steersman.platform.postgres.database import newest_rows
from steersman.spec.actions import Sequence
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from array import array
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.spec.point import DecisionPoint

_BYTES = 3  # of a hash: one in sixteen million
_OF_BYTES = 1 << 8 * _BYTES


class HeldOut(NamedTuple):
    """Decision with a final reward.

    Attributes:
        id: decision id.
        unit: its unit, its episode or its id.
        context: context of the decision.
        eligible: eligible action names; None: all declared ones.
        features: features of the eligible actions, row by row; None without.
        action: drawn action.
        p: propensity.
        reward: 0 to 1.
        links: of a selection: candidates that a pick adds.
        steps: of a selection: its steps.
    """

    id: UUID
    unit: str
    context: Any
    eligible: list[str] | None
    features: array[float] | list[float] | None
    action: str
    p: float
    reward: float
    links: Any = None
    steps: Any = None


async def alike(connection: Any, point: Point, spec: DecisionPoint) -> list[bytes] | None:
    """Return the declarations of a point whose selections a policy can replay.

    Returns:
        Hashes of declarations with equal actions; None for other kinds, which match actions
        by name.
    """
    if not isinstance(spec.actions, Sequence):
        return None
    query = "SELECT hash, document FROM spec WHERE tenant = $1 AND skill = $2 AND point = $3"
    rows = await connection.fetch(query, *point)
    return [row["hash"] for row in rows if _has(row["document"], spec.actions)]


def _has(document: str, actions: Sequence) -> bool:
    try:
        return bool(loads(document).actions == actions)
    except SpecError:
        return False  # written by another version; its selections are not usable


async def hold_out(
    connection: Any,
    point: Point,
    *,
    share: float,
    newest: int,
    judged: DecisionPoint | None = None,
) -> list[HeldOut]:
    """Return a share of a point's newest decisions with closed windows.

    A hash of the unit selects them. The selection is the same in every process and at any time,
    does not depend on observations, and keeps units whole.

    Args:
        share: share of units, in (0, 1].
        newest: number of newest decisions, 1 or more.
    """
    specs = None if judged is None else await alike(connection, point, judged)
    rows = await newest_rows(
        connection,
        "SELECT d.id, d.name, d.context, d.eligible, d.features, d.action, d.p, r.value, "
        "d.links, d.steps FROM ("
        "  SELECT *, coalesce(unit, episode, id::text) AS name FROM decision WHERE tenant = $1 "
        "  AND skill = $2 AND point = $3 ORDER BY id DESC LIMIT $4) AS d, LATERAL ("
        "  SELECT * FROM reward AS r WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r "
        "WHERE d.p_kind = 'exact' AND NOT d.degraded AND d.weight > 0 AND r.value IS NOT NULL "
        "AND d.window_ends <= now() "
        "AND substr(sha256(convert_to(d.name, 'UTF8')), 1, 3) < $5 "
        "AND NOT EXISTS (SELECT FROM erasure AS e WHERE e.tenant = $1 AND e.decision = d.id) "
        "AND ($6::bytea[] IS NULL OR d.spec_hash = ANY($6)) ORDER BY d.id DESC",
        *(*point, newest, _below(share), specs),
    )
    return [HeldOut(*row) for row in rows]


def is_held_out(unit: str, share: float) -> bool:
    """Return whether `hold_out` selects a unit.

    A smaller share selects a subset of a larger one.

    Args:
        share: share of units, in (0, 1].

    >>> sum(is_held_out(f"u{n}", 0.2) for n in range(1000))
    186
    """
    return sha256(unit.encode()).digest()[:_BYTES] < _below(share)


def _below(share: float) -> bytes:
    """Return the hash bound below which a share of all names lies."""
    return min(round(share * _OF_BYTES), _OF_BYTES - 1).to_bytes(_BYTES, "big")
