"""Logged decisions with what is needed to weigh another policy on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.decisions import offered_of
from steersman.platform.postgres.database import newest_rows

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from steersman.db.rollouts import RolloutRow
    from steersman.db.work_queue import Point
    from steersman.policies.offered import Offered

_LAST_REWARD = (
    "SELECT r.value FROM reward AS r WHERE r.tenant = $1 AND r.decision = d.id "
    "ORDER BY r.revision DESC LIMIT 1"
)
_CHOICE = (
    "SELECT d.id, coalesce(d.unit, d.episode, d.id::text), d.context, d.eligible, d.features, "
    "d.action, d.p, {}, d.links, d.steps"
)


class LoggedChoice(NamedTuple):
    """Logged decision of control.

    Attributes:
        id: decision id.
        unit: unit of the decision.
        context: context of the decision.
        eligible: eligible actions; None: all declared actions.
        features: features of the eligible actions, row by row; None: no features.
        action: drawn action.
        p: propensity.
        reward: reward, 0 to 1; None: no reward.
        links: candidates that a pick adds to a selection.
        steps: steps of a selection.
    """

    id: UUID
    unit: str
    context: Any
    eligible: list[str] | None
    features: array[float] | list[float] | None
    action: str
    p: float
    reward: float | None
    links: Any = None
    steps: Any = None


class StoredSelection(NamedTuple):
    """Stored selection with its reward.

    Attributes:
        id: decision id.
        unit: its unit, its episode or its id.
        offered: candidates of the request.
        steps: stored steps.
        reward: 0 to 1.
    """

    id: str
    unit: str
    offered: Offered
    steps: list[dict[str, Any]]
    reward: float


async def newest_choices(
    connection: Any,
    point: Point,
    *,
    closed: datetime,
    since: datetime | None,
    specs: Sequence[bytes] | None,
    kinds: Sequence[str],
    limit: int,
) -> list[LoggedChoice]:
    """Return the newest rewarded draws of control whose windows ended by a time, oldest first.

    Args:
        since: earliest time of a decision; None: no limit.
        specs: hashes of the declarations; None: all.
        kinds: kinds of propensity.
        limit: maximum number of rows; fewer if they exceed 256 MiB.
    """
    rows = await newest_rows(
        connection,
        f"{_CHOICE.format('r.value')} FROM decision AS d LEFT JOIN LATERAL ({_LAST_REWARD}) AS r "
        "ON true WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.p_kind = ANY($8) "
        "AND d.arm = 'control' AND NOT d.degraded AND d.weight > 0 AND d.window_ends <= $4 "
        "AND ($5::timestamptz IS NULL OR d.at >= $5) AND r.value IS NOT NULL "
        "AND ($7::bytea[] IS NULL OR d.spec_hash = ANY($7)) ORDER BY d.id DESC LIMIT $6",
        *(*point, closed, since, limit, specs, list(kinds)),
    )
    return [LoggedChoice(*row) for row in rows]


async def shadow_choices(
    connection: Any,
    row: RolloutRow,
    *,
    until: datetime,
    since: datetime | None,
    first: UUID,
    without: Sequence[UUID],
    limit: int,
) -> list[tuple[datetime, LoggedChoice]]:
    """Return decisions of a rollout's stage shadow with their times, in time order.

    Args:
        since: earliest time; None: no limit.
        first: smallest decision id.
        without: ids to leave out.
    """
    rows = await connection.fetch(
        f"{_CHOICE.format('NULL::float8')}, at FROM decision AS d "
        "WHERE tenant = $1 AND rollout = $2 AND skill = $3 "
        "AND point = $4 AND stage = 'shadow' AND p_kind = 'exact' AND at <= $5 "
        "AND ($6::timestamptz IS NULL OR at >= $6) AND id <> ALL ($7) AND id >= $8 "
        "ORDER BY at, id LIMIT $9",
        *(row.tenant, str(row.id), row.skill, row.point, until, since, list(without), first),
        limit,
    )
    return [(at, LoggedChoice(*choice)) for *choice, at in rows]


async def newest_selections(
    connection: Any,
    point: Point,
    *,
    closed: datetime,
    since: datetime | None,
    specs: Sequence[bytes] | None,
    limit: int,
) -> list[StoredSelection]:
    """Return the newest rewarded selections of a point whose windows ended by a time, oldest first.

    Args:
        since: earliest time of a decision, exclusive; None: no limit.
        specs: hashes of the declarations.
        limit: maximum number of rows; fewer if they exceed 256 MiB.
    """
    rows = await newest_rows(
        connection,
        "SELECT d.id::text, coalesce(d.unit, d.episode, d.id::text), d.eligible, d.links, "  # noqa: S608 (a constant)
        f"d.features, d.steps, r.value FROM decision AS d, LATERAL ({_LAST_REWARD}) AS r "
        "WHERE d.tenant = $1 AND d.skill = $2 AND d.point = $3 AND d.spec_hash = ANY($4) "
        "AND d.p_kind = 'exact' AND NOT d.degraded AND d.weight > 0 AND d.steps IS NOT NULL "
        "AND d.window_ends <= $5 AND ($6::timestamptz IS NULL OR d.at > $6) "
        "AND r.value IS NOT NULL "
        "AND NOT EXISTS (SELECT FROM erasure AS e WHERE e.tenant = $1 AND e.decision = d.id) "
        "ORDER BY d.id DESC LIMIT $7",
        *(*point, specs, closed, since, limit),
    )
    return [
        StoredSelection(name, unit, offered_of(eligible, links, features), steps, value)
        for name, unit, eligible, links, features, steps, value in rows
    ]
