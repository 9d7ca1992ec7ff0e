"""Reward rows: decisions, their events and reward revisions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.snapshots import line_of
from steersman.errors import StoreError
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.work_queue import Point
    from steersman.spec.point import DecisionPoint

_parsed = lru_cache(maxsize=256)(loads)


class RewardDecision(NamedTuple):
    """Decision whose reward is computed.

    Attributes:
        id: decision id.
        episode: episode id, if any.
        spec_hash: hash of its declaration, 32 bytes.
        feature_hash: hash of the feature map of ``x``, 32 bytes.
        context: context of the decision.
        action: chosen action.
        x: features for the policy.
        key: key for the policy.
        p_kind: exact, fallback, client, imported or none.
        degraded: whether a fallback answered.
        weight: number of observations it counts for.
        at: decision time.
        window_ends: end of the reward window.
        barred: whether it was erased, or excluded from the snapshot.
        revision: newest reward revision; 0 if none.
        value: value of that revision.
        status: status of that revision; None if none.
        terms: terms of that revision.
        final: whether that revision is final.
        traceparent: W3C trace context of its request.
    """

    id: UUID
    episode: str | None
    spec_hash: bytes
    feature_hash: bytes
    context: Any
    action: str
    x: list[float] | None
    key: str | None
    p_kind: str
    degraded: bool
    weight: float
    at: datetime
    window_ends: datetime
    barred: bool
    revision: int
    value: float | None
    status: str | None
    terms: Any
    final: bool | None
    traceparent: str | None = None


class CreditedUpdate(NamedTuple):
    """What a snapshot learned from a decision.

    Attributes:
        decision: decision id.
        x: learned features; corrections use the same.
        key: learned key.
        action: learned action.
        weight: learned weight.
        bucket: time bucket.
        value: learned reward; None if withdrawn.
    """

    decision: UUID
    x: list[float] | None
    key: str | None
    action: str
    weight: float
    bucket: int
    value: float | None


class RewardEvent(NamedTuple):
    """Event that may credit decisions.

    Attributes:
        decision: decision id, or None for an episode event.
        episode: episode id.
        at: time of the event.
        outcomes: numbers by name, or None.
        action_taken: action of the application instead of the decided one, or None.
    """

    decision: UUID | None
    episode: str | None
    at: datetime
    outcomes: Any
    action_taken: str | None


class RewardRow(NamedTuple):
    """One revision of a decision's reward.

    Attributes:
        decision: decision id.
        revision: revision number from 1.
        spec_hash: hash of the declaration.
        value: 0 to 1; None if there is none or not yet.
        status: scored, waiting, assumed, dropped, withdrawn or failed.
        terms: raw values by outcome.
        final: whether the window is closed.
    """

    decision: UUID
    revision: int
    spec_hash: bytes
    value: float | None
    status: str
    terms: Any
    final: bool


async def spec_of(connection: Any, spec_hash: bytes) -> DecisionPoint:
    """Return a current or past declaration of the tenant.

    Args:
        spec_hash: 32 bytes.

    Raises:
        StoreError: the declaration does not exist.
    """
    return _parsed(await spec_document(connection, spec_hash))


async def spec_document(connection: Any, spec_hash: bytes) -> str:
    """Return the text of a current or past declaration of the tenant.

    Args:
        spec_hash: 32 bytes.

    Raises:
        StoreError: the declaration does not exist.
    """
    document: str | None = await connection.fetchval(
        "SELECT document FROM spec WHERE hash = $1", spec_hash
    )
    if document is None:
        raise StoreError(f"declaration not found: {spec_hash.hex()[:12]}; declare it again")
    return document


async def decisions_to_credit(
    connection: Any, point: Point, snapshot: str, ids: Sequence[UUID]
) -> dict[UUID, RewardDecision]:
    """Return decisions of a point with their newest reward."""
    rows = await connection.fetch(
        "SELECT d.id, d.episode, d.spec_hash, d.feature_hash, d.context, d.action, d.x, d.key, "
        "d.p_kind, d.degraded, d.weight, d.at, d.window_ends, EXISTS ("
        "  SELECT FROM erasure AS e WHERE e.tenant = $1 AND e.decision = d.id"
        ") OR EXISTS (SELECT FROM excluded AS e WHERE e.tenant = $1 AND e.skill = $2 "
        "  AND e.point = $3 AND e.snapshot = $4 AND e.decision = d.id), "
        "coalesce(r.revision, 0), r.value, r.status, r.terms, r.final, d.traceparent "
        "FROM decision AS d LEFT JOIN LATERAL ("
        "  SELECT * FROM reward AS r WHERE r.tenant = $1 AND r.decision = d.id "
        "  ORDER BY r.revision DESC LIMIT 1) AS r ON true "
        # The bounds let the planner skip partitions of other days.
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.id = ANY($5) "
        "AND d.id >= $6 AND d.id <= $7",
        *(*point, snapshot, ids, min(ids), max(ids)),
    )
    return {row[0]: _decided(row) for row in rows}


def _decided(row: Sequence[Any]) -> RewardDecision:
    """Return a decision with float terms, because jsonb writes 1e+23 as an integer.

    Python compares the integer and the float exactly and finds them different.
    """
    decided = RewardDecision(*row)
    if decided.terms is None:
        return decided
    terms = {name: float(value) for name, value in decided.terms.items()}
    return decided._replace(terms=terms)


async def decisions_of(
    connection: Any, point: Point, after: UUID, *, limit: int = 500
) -> list[UUID]:
    """Return the next decision ids of a point.

    Returns:
        At most ``limit`` ids in order; empty at the end.
    """
    rows = await connection.fetch(
        "SELECT id FROM decision WHERE tenant = $1 AND skill = $2 AND point = $3 AND id > $4 "
        "ORDER BY id LIMIT $5",
        *(*point, after, limit),
    )
    return [row["id"] for row in rows]


async def events_about(
    connection: Any, tenant: UUID, ids: Sequence[UUID], episodes: Sequence[str]
) -> list[RewardEvent]:
    """Return the events that may credit decisions, in time order.

    Returns:
        Distinct events with outcomes or an action taken.
    """
    members = dict.fromkeys(ids)
    source = "SELECT * FROM event WHERE tenant = $1 AND decision = ANY($2)"
    theirs = []
    if episodes:  # rare; PostgreSQL caches the plan of one condition but not of two
        members |= await connection.fetch(
            "SELECT id, episode FROM decision WHERE tenant = $1 AND episode = ANY($2)",
            *(tenant, episodes),
        )
        source += (
            " UNION ALL SELECT * FROM event WHERE tenant = $1 AND episode = ANY($3)"
            " AND (decision IS NULL OR decision <> ALL ($2))"
        )
        theirs = [episodes]
    rows = await connection.fetch(
        f"SELECT decision, episode, at, outcomes, action_taken FROM ({source}) AS e "  # noqa: S608
        "WHERE outcomes IS NOT NULL OR action_taken IS NOT NULL ORDER BY at, received_at, id",
        *(tenant, list(members), *theirs),
    )
    return [RewardEvent(row[0], row[1] or members.get(row[0]), *row[2:]) for row in rows]


async def learned_of(
    connection: Any, point: Point, snapshot: str, ids: Sequence[UUID], *, until: int | None = None
) -> dict[UUID, CreditedUpdate]:
    """Return what a state learned from decisions.

    Args:
        until: last update in the state; None: all.

    Raises:
        StateError: the snapshot does not exist.
    """
    line = await line_of(connection, point, snapshot, until=until)
    rows = await connection.fetch(
        "SELECT u.decision, u.x, u.key, u.action, u.weight, u.bucket, "
        # One look-up for each: as a join, before there are statistics, it read all of the tenant's.
        "CASE WHEN u.held > 0 THEN coalesce("
        "  (SELECT r.value FROM reward AS r WHERE r.tenant = $1 AND r.decision = u.decision"
        "   AND r.revision = u.revision), least(1, greatest(0, u.reward))) END FROM ("
        "  SELECT DISTINCT ON (decision) *, sum(weight_change) OVER each AS held, "
        "  sum(reward_change) OVER each AS reward FROM ("
        # Likewise: by decision, and not by snapshot, which holds them all.
        "    SELECT found.* FROM (SELECT DISTINCT unnest($4::uuid[]) AS id) AS asked, LATERAL"
        "    (SELECT * FROM update WHERE tenant = $1 AND decision = asked.id OFFSET 0) AS found"
        "  ) AS of_them WHERE skill = $2 AND point = $3 AND snapshot = ANY($5) "
        "  AND seq <= coalesce(($6::bigint[])[array_position($5, snapshot)], seq) "
        "  WINDOW each AS (PARTITION BY decision) "
        "  ORDER BY decision, array_position($5, snapshot) DESC, seq DESC"
        ") AS u",
        *(*point, ids, [each.snapshot for each in line], [each.last for each in line]),
    )
    return {row[0]: CreditedUpdate(*row) for row in rows}


async def erased_among(connection: Any, tenant: UUID, ids: Sequence[UUID]) -> set[UUID]:
    """Return the erased decisions among some ids."""
    rows = await connection.fetch(
        "SELECT decision FROM erasure WHERE tenant = $1 AND decision = ANY($2)", tenant, ids
    )
    return {row["decision"] for row in rows}


async def append_rewards(connection: Any, tenant: UUID, rows: Sequence[RewardRow]) -> None:
    """Write reward revisions."""
    await connection.execute(
        "INSERT INTO reward SELECT r.tenant, r.decision, r.revision, r.spec_hash, r.value, "
        "r.status, r.terms, r.final, now() FROM unnest($1::reward[]) AS r",
        [(tenant, *row, None) for row in rows],
    )
