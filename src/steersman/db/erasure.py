"""Erasure and export of the data of a unit or of decisions.

The rows of an erased decision leave the hot tables at once. Its id stays in table ``erasure``, so
that the cold store, evidence and relearning leave it out, and `sweep` deletes records that arrive
again.

The learner is asked to withdraw the decision from its state; `learn rebuild` makes a state that
never saw it. Until then the numbered updates keep its features, because a state cannot be rebuilt
from a log with gaps. `sweep` deletes them once the live snapshot does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.db.audit import record
from steersman.db.snapshot_references import IN_USE, SUPERSEDED, clear_states, published_from
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence
    from uuid import UUID

    from steersman.platform.postgres.database import Database

_VERSION = 7
_WHOLE = "it ran in one transaction, so it is safe to erase again"
_EXPORTED = {
    "decision": "SELECT to_jsonb(r) FROM decision AS r WHERE id = ANY($1) ORDER BY id",
    "event": (
        "SELECT to_jsonb(r) FROM event AS r WHERE decision = ANY($1) "
        "OR (decision IS NULL AND episode = ANY($2)) ORDER BY received_at, id"
    ),
    "reward": (
        "SELECT to_jsonb(r) FROM reward AS r WHERE decision = ANY($1) ORDER BY decision, revision"
    ),
    "update": "SELECT to_jsonb(r) FROM update AS r WHERE decision = ANY($1) ORDER BY decision, seq",
}


@dataclass(frozen=True, slots=True)
class ErasureResult:
    """Result of an erasure.

    Attributes:
        decisions: erased ids, including those only in the cold store.
        rows: number of deleted rows by table.
        learned: skill and decision point of states that learned from them; rebuild those.
        published: skill, decision point and version of signed snapshots that learned from
            them; retract those once others are live.
    """

    decisions: tuple[UUID, ...]
    rows: dict[str, int]
    learned: tuple[tuple[str, str], ...]
    published: tuple[tuple[str, str, str], ...] = ()


async def count_erased(connection: Any, ids: Collection[UUID]) -> int:
    """Return how many of some decisions are erased."""
    query = "SELECT count(*) FROM erasure WHERE decision = ANY($1::uuid[])"
    found: int = await connection.fetchval(query, list(ids))
    return found


async def erase(
    database: Database,
    tenant: UUID,
    *,
    reason: str,
    actor: str,
    unit: str | None = None,
    decisions: Sequence[UUID] | None = None,
) -> ErasureResult:
    """Erase decisions with their events, rewards and keys; a repeated call changes nothing.

    Events of an episode are erased with any of its decisions. Only the id and the reason stay.

    Args:
        reason: reason, 1 to 200 characters; kept for ever, so it must not be personal.

    Raises:
        InputError: not exactly one of unit and decisions, an invalid reason, or an id that
            is not a UUIDv7 of the past.
        StoreError: the database is unreachable, or the connection was lost.
    """
    _check(unit, decisions, reason)
    async with (
        database.connected("owner", "the erasure", _WHOLE) as connection,
        as_tenant(connection, tenant),
    ):
        # Wait for a learner that is crediting one of them; the next one sees the erasure.
        await connection.execute("SELECT FROM learner ORDER BY skill, point FOR UPDATE")
        ids = await _of_unit(connection, unit) if decisions is None else sorted(set(decisions))
        await _write_down(connection, tenant, ids, reason)
        # Before the rows that tell a decision's point are deleted.
        published = await published_from(connection, ids)
        await clear_states(connection, ids, waiting=True)
        rows = await _delete(connection, ids)
        learned = await _take_back(connection, ids)
        detail = {"decisions": len(ids), "rows": rows, "by_unit": unit is not None}
        await record(connection, tenant, actor, "data.erase", reason, detail)
    return ErasureResult(tuple(ids), rows, learned, published)


async def export(database: Database, tenant: UUID, *, unit: str) -> AsyncIterator[str]:
    """Yield all hot rows of a unit as JSON objects.

    Raises:
        StoreError: the database is unreachable, or the connection was lost.
    """
    async with (
        database.connected(
            "owner", "the export", "the file is incomplete; export again"
        ) as connection,
        as_tenant(connection, tenant),
    ):
        ids = await _of_unit(connection, unit)
        episodes = await _episodes(connection, ids)
        for table, query in _EXPORTED.items():
            arguments = (ids, episodes) if table == "event" else (ids,)
            async for row in connection.cursor(query, *arguments):
                yield msgspec.json.encode({"table": table, "row": row[0]}).decode()


async def sweep(connection: Any) -> dict[str, int]:
    """Delete late rows of erased decisions and superseded states."""
    ids = [row["decision"] for row in await connection.fetch("SELECT decision FROM erasure")]
    if not ids:
        return {}
    rows = await _delete(connection, ids)
    rows["snapshot"] = await clear_states(connection, ids)
    for table, condition in _CLEARED.items():
        status = await connection.execute(
            f"WITH RECURSIVE {IN_USE} DELETE FROM {table} AS o WHERE {condition}"  # noqa: S608 (constants)
        )
        rows[table] = int(status.split()[-1])
    return {table: count for table, count in rows.items() if count}


# For a snapshot without live dependants that learned from an erased decision: first
# the stored sums, then the updates that identify such snapshots. Relearning skips
# the gaps.
_CLEARED = {
    "checkpoint": f"{SUPERSEDED.format('snapshot')} AND EXISTS ("
    "SELECT FROM update AS u JOIN erasure AS e ON e.tenant = u.tenant AND e.decision = u.decision "
    "WHERE u.tenant = o.tenant AND u.skill = o.skill AND u.point = o.point "
    "AND u.snapshot = o.snapshot)",
    "update": f"{SUPERSEDED.format('snapshot')} AND o.decision IN (SELECT decision FROM erasure)",  # noqa: S608
}


def _check(unit: str | None, decisions: Sequence[UUID] | None, reason: str) -> None:
    if (unit is None) == (decisions is None):
        message = "pass exactly one of unit and decisions to select what to erase"
        raise InputError(message)
    if not 1 <= len(reason) <= 200:
        message = f"the reason has {len(reason)} characters; allowed are 1 to 200"
        raise InputError(message)
    # The cold store finds the day of an erased decision by its id alone.
    latest = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    for identifier in decisions or ():
        if identifier.version != _VERSION or id_time(identifier) > latest:
            message = (
                f"{identifier} is not a decision id; allowed are UUIDv7 of the past; check it; "
                "nothing was erased"
            )
            raise InputError(message)


async def _of_unit(connection: Any, unit: str | None) -> list[UUID]:
    rows = await connection.fetch("SELECT id FROM decision WHERE unit = $1 ORDER BY id", unit)
    return [row["id"] for row in rows]


async def _episodes(connection: Any, ids: Sequence[UUID]) -> list[str]:
    rows = await connection.fetch(
        "SELECT episode FROM decision WHERE id = ANY($1) AND episode IS NOT NULL "
        "UNION SELECT episode FROM erasure WHERE decision = ANY($1) AND episode IS NOT NULL",
        ids,
    )
    return [row["episode"] for row in rows]


async def _write_down(connection: Any, tenant: UUID, ids: Sequence[UUID], reason: str) -> None:
    await connection.execute(
        "INSERT INTO erasure (tenant, decision, episode, reason) "
        "SELECT $1, n.id, d.episode, $3 FROM unnest($2::uuid[]) AS n (id) "
        "LEFT JOIN decision AS d ON d.tenant = $1 AND d.id = n.id ON CONFLICT DO NOTHING",
        *(tenant, ids, reason),
    )


async def _delete(connection: Any, ids: Sequence[UUID]) -> dict[str, int]:
    """Delete the rows of decisions, and queue the rewards that lose an episode's events."""
    episodes = await _episodes(connection, ids)
    events = await connection.fetch(
        "DELETE FROM event WHERE decision = ANY($1) OR (decision IS NULL AND episode = ANY($2)) "
        "RETURNING id, decision",
        *(ids, episodes),
    )
    decided = await connection.fetch(
        "DELETE FROM decision WHERE id = ANY($1) RETURNING idempotency_key", ids
    )
    keys = [row["idempotency_key"] for row in decided if row["idempotency_key"] is not None]
    deleted = {"decision": len(decided), "event": len(events)}
    for table, condition, arguments in (
        ("idempotency", "kind = 'd' AND key = ANY($1) AND decision = ANY($2)", (keys, ids)),
        ("idempotency", "kind = 'e' AND key = ANY($1)", ([row["id"] for row in events],)),
        ("reward", "decision = ANY($1)", (ids,)),
    ):
        status = await connection.execute(f"DELETE FROM {table} WHERE {condition}", *arguments)  # noqa: S608 (constants)
        deleted[table] = deleted.get(table, 0) + int(status.split()[-1])
    if any(row["decision"] is None for row in events):
        await _queue(connection, "SELECT * FROM decision WHERE episode = ANY($1)", episodes)
    return deleted


async def _take_back(connection: Any, ids: Sequence[UUID]) -> tuple[tuple[str, str], ...]:
    """Queue withdrawals from live states; return their decision points."""
    learned = (
        "SELECT DISTINCT u.tenant, u.skill, u.point, u.decision AS id FROM update AS u "
        "WHERE u.decision = ANY($1)"
    )
    await _queue(connection, learned, ids)
    rows = await connection.fetch(
        f"SELECT DISTINCT skill, point FROM ({learned}) AS u ORDER BY skill, point",  # noqa: S608 (a constant)
        ids,
    )
    return tuple((row["skill"], row["point"]) for row in rows)


async def _queue(connection: Any, query: str, names: Sequence[Any]) -> None:
    await connection.execute(
        "INSERT INTO work (tenant, skill, point, decision, due_at) "  # noqa: S608 (constants)
        f"SELECT d.tenant, d.skill, d.point, d.id, now() FROM ({query}) AS d",
        names,
    )
    await connection.execute("SELECT pg_notify('steersman_work', '')")
