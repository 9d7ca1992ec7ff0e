"""What a reward is computed from, and where it is kept: decisions, their events, revisions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import StoreError
from steersman.spec import DecisionPoint, loads
from steersman.store.lines import line_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.store.work import Point

_parsed = lru_cache(maxsize=256)(loads)


class Decided(NamedTuple):
    """What is known of a decision whose reward is to be computed.

    Attributes:
        id: of the decision.
        episode: what it belongs to with others, if anything.
        spec_hash: 32 bytes: of the declaration that it was made under.
        feature_hash: 32 bytes: of the feature map that ``x`` was made with.
        context: what was known.
        action: what was chosen.
        x: what the policy saw for it.
        key: likewise.
        p_kind: exact, fallback, client, imported or none.
        degraded: whether a fallback answered.
        weight: how many observations it counts for.
        at: when it was made.
        window_ends: when its reward is final.
        barred: whether it was erased, or excluded from the snapshot.
        revision: of its newest reward; 0 if there is none.
        value: of that reward.
        status: likewise; None if there is none.
        terms: likewise.
        final: likewise.
        traceparent: W3C trace context of the request that it answered.
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


class Learned(NamedTuple):
    """What a snapshot holds of a decision.

    Attributes:
        decision: of which.
        x: what was learned from; corrections use the same.
        key: likewise.
        action: likewise.
        weight: likewise.
        bucket: likewise.
        value: the reward as it is learned; None: it was withdrawn.
    """

    decision: UUID
    x: list[float] | None
    key: str | None
    action: str
    weight: float
    bucket: int
    value: float | None


class Happened(NamedTuple):
    """An event that may credit decisions.

    Attributes:
        decision: what it is about: this decision, or its episode.
        episode: what it credits with it.
        at: when it happened.
        outcomes: numbers by name, or None.
        action_taken: what the application did instead, or None.
    """

    decision: UUID | None
    episode: str | None
    at: datetime
    outcomes: Any
    action_taken: str | None


class RewardRow(NamedTuple):
    """One revision of a decision's reward.

    Attributes:
        decision: whose.
        revision: 1, 2, 3, …
        spec_hash: of the declaration that it follows from.
        value: 0 to 1; None if there is none, or not yet.
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
    """Return a declaration of the tenant, past or present.

    Args:
        connection: within a transaction of the tenant.
        spec_hash: 32 bytes.

    Returns:
        The declaration.

    Raises:
        StoreError: there is none with that hash.
    """
    document = await connection.fetchval("SELECT document FROM spec WHERE hash = $1", spec_hash)
    if document is None:
        raise StoreError(f"declaration not found: {spec_hash.hex()[:12]}; declare it again")
    return _parsed(document)


async def decisions_to_credit(
    connection: Any, point: Point, snapshot: str, ids: Sequence[UUID]
) -> dict[UUID, Decided]:
    """Return decisions of a point with their newest reward.

    Args:
        connection: within a transaction of the tenant.
        point: whose decisions; others are left out.
        snapshot: the one that learns.
        ids: of decisions.

    Returns:
        By id; what is not there any more is left out.
    """
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
        # The bounds let the planner pass over the partitions of other days.
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.id = ANY($5) "
        "AND d.id >= $6 AND d.id <= $7",
        *(*point, snapshot, ids, min(ids), max(ids)),
    )
    return {row[0]: _decided(row) for row in rows}


def _decided(row: Sequence[Any]) -> Decided:
    """Return a decision with its terms as the floats they were: jsonb writes 1e+23 as an integer.

    That is another number than the float it was made of, and Python compares them exactly.
    """
    decided = Decided(*row)
    if decided.terms is None:
        return decided
    terms = {name: float(value) for name, value in decided.terms.items()}
    return decided._replace(terms=terms)


async def decisions_of(
    connection: Any, point: Point, after: UUID, *, limit: int = 500
) -> list[UUID]:
    """Return the next decisions of a point, by id.

    Args:
        connection: within a transaction of the tenant.
        point: tenant, skill and decision point.
        after: those after this id.
        limit: most ids.

    Returns:
        At most ``limit`` ids, in order; none: that was all.
    """
    rows = await connection.fetch(
        "SELECT id FROM decision WHERE tenant = $1 AND skill = $2 AND point = $3 AND id > $4 "
        "ORDER BY id LIMIT $5",
        *(*point, after, limit),
    )
    return [row["id"] for row in rows]


async def events_about(
    connection: Any, tenant: UUID, ids: Sequence[UUID], episodes: Sequence[str]
) -> list[Happened]:
    """Return the events that may credit decisions, in the order in which they happened.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        ids: decisions: their own events.
        episodes: episodes: events of theirs and of every decision within them.

    Returns:
        Events with outcomes or an action taken; each once.
    """
    members = dict.fromkeys(ids)
    source = "SELECT * FROM event WHERE tenant = $1 AND decision = ANY($2)"
    theirs = []
    if episodes:  # seldom; PostgreSQL keeps the plan of one condition, and plans two anew
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
    return [Happened(row[0], row[1] or members.get(row[0]), *row[2:]) for row in rows]


async def learned_of(
    connection: Any, point: Point, snapshot: str, ids: Sequence[UUID], *, until: int | None = None
) -> dict[UUID, Learned]:
    """Return what a state holds of decisions.

    Args:
        connection: within a transaction of the tenant.
        point: whose snapshot.
        snapshot: the base of the state; what that one stands on belongs to it.
        ids: of decisions.
        until: the last of its updates that the state holds; None: all that were given out.

    Returns:
        By decision; without those it never learned from.

    Raises:
        StateError: there is no such snapshot.
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
    return {row[0]: Learned(*row) for row in rows}


async def erased_among(connection: Any, tenant: UUID, ids: Sequence[UUID]) -> set[UUID]:
    """Return which decisions were erased.

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        ids: of decisions.

    Returns:
        Those of them.
    """
    rows = await connection.fetch(
        "SELECT decision FROM erasure WHERE tenant = $1 AND decision = ANY($2)", tenant, ids
    )
    return {row["decision"] for row in rows}


async def append_rewards(connection: Any, tenant: UUID, rows: Sequence[RewardRow]) -> None:
    """Write revisions of rewards.

    Args:
        connection: of role worker, within a transaction of the tenant that holds the fence.
        tenant: whose.
        rows: the next revision of each decision.
    """
    await connection.execute(
        "INSERT INTO reward SELECT r.tenant, r.decision, r.revision, r.spec_hash, r.value, "
        "r.status, r.terms, r.final, now() FROM unnest($1::reward[]) AS r",
        [(tenant, *row, None) for row in rows],
    )
