"""Decisions that are kept for judging: a share of the newest units, by their names."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import SpecError
from steersman.spec import Sequence, loads
from steersman.store.newest import newest_rows

if TYPE_CHECKING:
    from array import array
    from uuid import UUID

    from steersman.spec import DecisionPoint
    from steersman.store.work import Point

_BYTES = 3  # of a hash: one in sixteen million
_OF_BYTES = 1 << 8 * _BYTES


class HeldOut(NamedTuple):
    """A decision whose reward stands.

    Attributes:
        id: of the decision.
        unit: what it belongs to: its unit, its episode or itself.
        context: what was known.
        eligible: names allowed; None: all that are declared.
        features: of the eligible actions, row after row; None without.
        action: what was drawn.
        p: with which probability.
        reward: 0 to 1.
        links: of a selection: what picking a candidate brings in.
        steps: of a selection: what was done.
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
    """Return the declarations of a point whose selections another one's policy can be gone through.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        spec: the declaration of that policy.

    Returns:
        Hashes of those with the very same actions; None for other kinds, whose actions are told
        apart by name.
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
        return False  # one of another version; its selections fit nothing we know


async def hold_out(
    connection: Any,
    point: Point,
    *,
    share: float,
    newest: int,
    judged: DecisionPoint | None = None,
) -> list[HeldOut]:
    """Return a share of a point's newest decisions, of those whose windows are closed.

    Which ones follows from a hash of their unit, so it is the same in every process and at every
    time, nothing that was observed has a say in it, and a unit is held out as a whole.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        share: of the units, in (0, 1].
        newest: how many decisions are looked at, 1 or more.
        judged: the declaration of what is to be judged: of kind sequence, selections that were made
            under one with other actions are left out.

    Returns:
        In the order in which they were made; decisions without a reward are left out, and those
        that nothing is learned from.
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
    """Return whether a unit is among those that are kept for judging, as `hold_out` keeps them.

    Those of a smaller share are among those of a larger one.

    Args:
        unit: its unit, its episode or its id.
        share: of the units, in (0, 1].

    Returns:
        The same in every process and at every time.

    >>> sum(is_held_out(f"u{n}", 0.2) for n in range(1000))
    186
    """
    return sha256(unit.encode()).digest()[:_BYTES] < _below(share)


def _below(share: float) -> bytes:
    """Return the bytes that hashes of this share of all names lie below."""
    return min(round(share * _OF_BYTES), _OF_BYTES - 1).to_bytes(_BYTES, "big")
