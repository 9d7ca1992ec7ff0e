"""Needed snapshots, and snapshots that contain erased data.

A published snapshot has sums over its lineage's decisions, like a checkpoint. Once no live state
depends on it, its state is removed if it learned from an erased decision. `erase` lists the
versions to retract, because signed files are outside the database.

A policy trained from the log, such as trees, has no updates that tell its training data. It is
assumed to contain every decision between the oldest and newest that it was signed with, or, without
these, every earlier decision. That may list too many versions, never too few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

_SAME_POINT = "{0}.tenant = {1}.tenant AND {0}.skill = {1}.skill AND {0}.point = {1}.point"

IN_USE = (
    # Live snapshots, both arms of rollouts, and the lineages of these.
    "in_use (tenant, skill, point, snapshot) AS ("  # noqa: S608 (constants)
    "SELECT tenant, skill, point, snapshot FROM decision_point UNION "
    "SELECT r.tenant, r.skill, r.point, a.snapshot FROM rollout AS r, "
    "LATERAL (VALUES (r.candidate), (r.control)) AS a (snapshot) WHERE r.ended_at IS NULL UNION "
    "SELECT s.tenant, s.skill, s.point, s.line FROM in_use AS i JOIN snapshot AS s "
    f"ON {_SAME_POINT.format('s', 'i')} AND s.id = i.snapshot WHERE s.line IS NOT NULL)"
)
"""A common table expression, to be used after ``WITH RECURSIVE``."""
_STANDS = (
    # The logs of a published snapshot's state.
    "stands (tenant, skill, point, top, snapshot, last) AS ("  # noqa: S608 (constants)
    "SELECT tenant, skill, point, id, line, line_seq FROM snapshot WHERE line IS NOT NULL UNION "
    "SELECT s.tenant, s.skill, s.point, t.top, s.line, s.line_seq FROM stands AS t "
    f"JOIN snapshot AS s ON {_SAME_POINT.format('s', 't')} AND s.id = t.snapshot "
    "WHERE s.line IS NOT NULL)"
)
_HOLDS = (
    f"EXISTS (SELECT FROM stands AS t JOIN update AS u ON {_SAME_POINT.format('u', 't')} "
    "AND u.snapshot = t.snapshot AND u.seq <= t.last AND u.decision = ANY($1) "
    f"WHERE {_SAME_POINT.format('t', 'o')} AND t.top = o.id)"
)
_NEWEST_BEFORE = (  # the last id that can have been made until a snapshot was
    "(lpad(to_hex((extract(epoch FROM s.created_at) * 1000)::bigint), 12, '0') "
    "|| repeat('f', 20))::uuid"
)
_TRAINED = (
    # It, or a base of its lineage, was trained on one of these decisions. Decisions known to
    # belong to another point are excluded; rows of earlier erasures are gone.
    f"EXISTS (SELECT FROM snapshot AS s, unnest($1::uuid[]) AS e (decision) "  # noqa: S608 (constants)
    f"WHERE {_SAME_POINT.format('s', 'o')} AND (s.id = o.id OR EXISTS (SELECT FROM stands AS t "
    f"WHERE {_SAME_POINT.format('t', 'o')} AND t.top = o.id AND t.snapshot = s.id)) "
    "AND s.description #>> '{evidence,trained}' = 'true' "
    "AND e.decision <= coalesce((s.description #>> '{evidence,grown,newest}')::uuid, "
    f"{_NEWEST_BEFORE}) "
    "AND e.decision >= coalesce((s.description #>> '{evidence,grown,oldest}')::uuid, e.decision) "
    "AND NOT EXISTS (SELECT FROM decision AS d WHERE d.tenant = s.tenant AND d.id = e.decision "
    "AND (d.skill, d.point) <> (s.skill, s.point)))"
)
_WAITING = "(o.published_at IS NULL AND o.description IS NOT NULL AND o.reason = 'published')"
SUPERSEDED = (
    f"EXISTS (SELECT FROM decision_point AS p WHERE {_SAME_POINT.format('o', 'p')}) "  # noqa: S608
    f"AND NOT EXISTS (SELECT FROM in_use AS i WHERE {_SAME_POINT.format('o', 'i')} "
    "AND o.{0} = i.snapshot)"
)
"""SQL condition: the snapshot of row ``o`` is not in use; fill in its column."""


async def published_from(connection: Any, ids: Sequence[UUID]) -> tuple[tuple[str, str, str], ...]:
    """Return the published or reserved snapshots whose states learned from decisions.

    A reserved version counts, because its publisher may be about to sign it.
    """
    rows = await connection.fetch(
        f"WITH RECURSIVE {_STANDS} SELECT skill, point, id FROM snapshot AS o "  # noqa: S608 (constants)
        f"WHERE (published_at IS NOT NULL OR {_WAITING}) AND retracted_at IS NULL "
        f"AND ({_HOLDS} OR {_TRAINED}) "
        "ORDER BY skill, point, created_at, id",
        ids,
    )
    return tuple((row["skill"], row["point"], row["id"]) for row in rows)


async def clear_states(connection: Any, ids: Sequence[UUID], *, waiting: bool = False) -> int:
    """Remove unused states that learned from erased decisions."""
    status: str = await connection.execute(
        f"WITH RECURSIVE {IN_USE}, {_STANDS} UPDATE snapshot AS o SET state = NULL "  # noqa: S608 (constants)
        f"WHERE state IS NOT NULL AND {SUPERSEDED.format('id')} "
        f"AND ({_HOLDS} OR {_TRAINED}) AND (NOT $2 OR {_WAITING})",
        *(ids, waiting),
    )
    return int(status.rsplit(maxsplit=1)[-1])


async def thin_states(connection: Any, most: int) -> int:
    """Remove states of older published snapshots that were never live."""
    status: str = await connection.execute(
        f"WITH RECURSIVE {IN_USE} UPDATE snapshot AS o SET state = NULL FROM ("  # noqa: S608 (constants)
        "SELECT tenant, skill, point, id, row_number() OVER ("
        "PARTITION BY tenant, skill, point ORDER BY created_at DESC, id DESC) AS place "
        "FROM snapshot WHERE published_at IS NOT NULL) AS n "
        f"WHERE {_SAME_POINT.format('n', 'o')} AND n.id = o.id AND n.place > $1 "
        f"AND o.state IS NOT NULL AND {SUPERSEDED.format('id')} AND NOT EXISTS ("
        f"SELECT FROM update AS u WHERE {_SAME_POINT.format('u', 'o')} AND u.snapshot = o.id)",
        most,
    )
    return int(status.rsplit(maxsplit=1)[-1])
