"""Contract checks of a PostgreSQL server for the store.

Run them over a server before it holds anything that matters: another version, another vendor's
build, a proxy in between. They write rows of two test tenants and leave them there.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

import asyncpg

from steersman.wire import id_time, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROLES = ("app", "worker", "owner")


class Server(Protocol):
    """Protocol of a checked database; `steersman.platform.postgres.database.Database` has it."""

    async def connect(self, role: Any = "app") -> Any:
        """Return an asyncpg connection that acts as a role: app, worker or owner.

        Args:
            role: whose rights it has.
        """


@dataclass
class Place:
    """Two tenants on a server, and a connection of each role.

    Attributes:
        database: the server.
        mine: a tenant.
        theirs: another.
        roles: connections, by role.
    """

    database: Server
    mine: UUID
    theirs: UUID
    roles: dict[str, Any]

    async def close(self) -> None:
        """Close the connections."""
        for connection in self.roles.values():
            await connection.close()

    async def fetch(self, role: str, tenant: UUID | None, query: str, *arguments: Any) -> Any:
        """Return the rows that a role reads as a tenant, or without a tenant."""
        connection = self.roles[role]
        async with connection.transaction():
            if tenant is not None:
                await _set_tenant(connection, tenant)
            return await connection.fetch(query, *arguments)


async def prepare(database: Server) -> Place:
    """Create two tenants, and connect as every role."""
    place = Place(database, uuid4(), uuid4(), {})
    for role in ROLES:
        place.roles[role] = await database.connect(role)
    for tenant in (place.mine, place.theirs):
        await place.fetch(
            *("owner", tenant, "INSERT INTO tenant (id, name) VALUES ($1, $2)", tenant),
            f"check-{tenant.hex}",
        )
    return place


async def _set_tenant(connection: Any, tenant: UUID) -> None:
    await connection.execute("SELECT set_config('app.tenant', $1, true)", str(tenant))


async def write_decisions(
    connection: Any, rows: Sequence[dict[str, Any]]
) -> dict[UUID, tuple[UUID, bytes]]:
    """Write decisions; return the earlier decision and body hash of those whose key was taken."""
    ordered = sorted(rows, key=lambda row: (row["tenant"], row["idempotency_key"] or "", row["id"]))
    taken = await connection.fetch(
        "SELECT asked, earlier, earlier_hash FROM log_decisions("
        "ARRAY(SELECT jsonb_populate_record(NULL::decision, r) "
        "FROM jsonb_array_elements($1::text::jsonb) AS r), $2, $3, $4, '{}')",
        *(json.dumps(ordered), *_slices(ordered)),
    )
    return {row["asked"]: (row["earlier"], row["earlier_hash"]) for row in taken}


async def write_events(connection: Any, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Write events; return r (replayed), c (conflict) or u (unknown) for those not written."""
    ordered = sorted(rows, key=lambda row: (row["tenant"], row["id"]))
    told = await connection.fetch(
        "SELECT event, verdict::text FROM log_events("
        "ARRAY(SELECT jsonb_populate_record(NULL::event, r) "
        "FROM jsonb_array_elements($1::text::jsonb) AS r), $2, $3, $4)",
        *(json.dumps(ordered), *_slices(ordered)),
    )
    return {row["event"]: row["verdict"] for row in told}


def _slices(rows: Sequence[dict[str, Any]]) -> tuple[list[UUID], list[int], list[int]]:
    """Return the tenants of sorted rows, and the first and last place of each from 1."""
    tenants = [row["tenant"] for row in rows]
    names = sorted(set(tenants))
    firsts = [tenants.index(name) + 1 for name in names]
    lasts = [first + tenants.count(name) - 1 for first, name in zip(firsts, names, strict=True)]
    return [UUID(name) for name in names], firsts, lasts


def decision(tenant: UUID, **changes: Any) -> dict[str, Any]:
    """Return a decision as JSON, made now or at the time of ``id``."""
    identifier = changes.pop("id", None) or str(new_id())
    at = datetime.fromtimestamp(id_time(UUID(identifier)), UTC).isoformat()
    row = {
        **dict.fromkeys(("episode", "idempotency_key", "body_hash")),
        "tenant": str(tenant),
        "id": identifier,
        "skill": "check",
        "point": "store",
        "stage": "live",
        "arm": "control",
        "snapshot": "0.1.0",
        "update_seq": 0,
        "spec_hash": "\\x00",
        "feature_hash": "\\x00",
        "context": {"é": [1.5, None]},
        "distribution": [0.25, 0.75],
        "action": "b",
        "p": 0.75,
        "p_kind": "exact",
        "degraded": False,
        "weight": 1,
        "at": at,
        "window_ends": at,
    }
    return {**row, **changes}


def event(tenant: UUID, decision: str | None, **changes: Any) -> dict[str, Any]:
    """Return an event as JSON, received now."""
    now = datetime.now(UTC).isoformat()
    row = {
        "tenant": str(tenant),
        "id": uuid4().hex,
        "decision": decision,
        "type": "feedback.submit",
        "schema_version": 1,
        "at": now,
        "received_at": now,
        "outcomes": {"ok": 1},
        "body_hash": "\\x01",
    }
    return {**row, **changes}


_TABLES = ("decision", "work", "idempotency", "event", "outcome")
_LONG_AGO = datetime(1971, 1, 1, tzinfo=UTC)


def check_store(database: Server) -> None:
    """Check a migrated database; an AssertionError names the failed check.

    Tenants do not see, change or count each other's rows, whatever the role; nothing is seen
    without a tenant, also on a connection that had one; writing again with the same key changes
    nothing, with another body raises; events need their decision; batches that cross do not
    wait for each other for ever; what commits late is seen late and not skipped; a day has its
    partition, and a day without one loses nothing.

    Args:
        database: a ``steersman.platform.postgres.database.Database`` after ``migrate``, or anything
            that connects as the three roles.

    Raises:
        AssertionError: with what was broken.
    """
    asyncio.run(_check_all(database))


async def _check_all(database: Server) -> None:
    place = await prepare(database)
    try:
        for check in (
            check_catalogue,
            check_isolation,
            check_decisions_once,
            check_events_once,
            check_crossing_batches,
            check_late_commits,
            check_partitions,
        ):
            await check(place)
    finally:
        await place.close()


async def check_catalogue(place: Place) -> None:
    """Check that every tenant table has forced row-level security.

    Args:
        place: two tenants on a server.
    """
    open_tables = await place.fetch(
        "owner",
        None,
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'steersman'::regnamespace "
        "AND c.relkind IN ('r', 'p') AND c.relname <> 'migration' "
        "AND NOT (c.relrowsecurity AND c.relforcerowsecurity)",
    )
    assert not open_tables, f"tables without forced row-level security: {_names(open_tables)}"
    strong = await place.fetch(
        "owner",
        None,
        "SELECT rolname FROM pg_roles WHERE rolname ~ '^steersman_(app|worker|owner)$' "
        "AND (rolsuper OR rolbypassrls OR rolcanlogin OR rolcreaterole OR rolcreatedb)",
    )
    assert not strong, f"roles with rights they must not have: {_names(strong)}"


async def check_isolation(place: Place) -> None:
    """Check that no role sees, changes or writes rows of a tenant it was not set to.

    Args:
        place: two tenants on a server.
    """
    app = place.roles["app"]
    row = decision(place.theirs, idempotency_key=uuid4().hex, body_hash="\\x01")
    await write_decisions(app, [row])
    await write_events(app, [event(place.theirs, row["id"])])
    for role in ROLES:
        for table in _TABLES:
            own = await place.fetch(
                role, place.theirs, f"SELECT FROM {table} WHERE tenant = $1", place.theirs
            )
            assert own, (
                f"{role} saw no {table} row of the tenant it was set to, so the check is not "
                "conclusive"
            )
        for tenant in (place.mine, None):
            for table in _TABLES:
                if role == "worker" and table == "work":
                    continue  # it sees the queue of all
                seen = await place.fetch(
                    role, tenant, f"SELECT FROM {table} WHERE tenant = $1", place.theirs
                )
                assert not seen, f"{role} saw {table} rows of a tenant it was not set to"
            await _refuse_foreign(place, role, tenant)
    kept = await place.fetch("app", place.theirs, "SELECT id FROM decision")
    assert [found["id"] for found in kept] == [UUID(row["id"])], "its own row is missing"


async def _refuse_foreign(place: Place, role: str, tenant: UUID | None) -> None:
    changed: object = None
    for statement in (
        "INSERT INTO audit VALUES ($1, gen_random_uuid(), now(), 'a', 'b', 'c', '{}') RETURNING id",
        "UPDATE decision SET unit = 'x' WHERE tenant = $1 RETURNING id",
        "DELETE FROM decision WHERE tenant = $1 RETURNING id",
    ):
        try:
            changed = await place.fetch(role, tenant, statement, place.theirs)
        except asyncpg.InsufficientPrivilegeError:
            continue
        assert not changed, f"{role} changed rows of a tenant it was not set to: {statement}"


async def check_decisions_once(place: Place) -> None:
    """Check that an idempotency key identifies one decision per tenant.

    Args:
        place: two tenants on a server.
    """
    app, key = place.roles["app"], uuid4().hex
    first = decision(place.mine, idempotency_key=key, body_hash="\\x01")
    theirs = decision(place.theirs, idempotency_key=key, body_hash="\\x02")
    assert await write_decisions(app, [first, theirs]) == {}, (
        "equal keys of two tenants must not collide"
    )
    assert await write_decisions(app, [first]) == {}, "writing a decision again must be accepted"
    again = decision(place.mine, idempotency_key=key, body_hash="\\x03")
    plain = decision(place.mine)
    taken = await write_decisions(app, [plain, again])
    told = {UUID(again["id"]): (UUID(first["id"]), b"\x01")}
    assert taken == told, f"a used key must return its decision: {taken}"
    ids = {row["id"] for row in await place.fetch("app", place.mine, "SELECT id FROM decision")}
    assert ids == {UUID(first["id"]), UUID(plain["id"])}, "unexpected decisions in the store"


async def check_events_once(place: Place) -> None:
    """Check that an event of a stored decision is stored once and creates work.

    Args:
        place: two tenants on a server.
    """
    app = place.roles["app"]
    mine, theirs = decision(place.mine, episode=uuid4().hex), decision(place.theirs)
    await write_decisions(app, [mine, theirs])
    stored = event(place.mine, mine["id"])
    whole = event(place.mine, None, episode=mine["episode"])
    foreign = event(place.mine, theirs["id"])
    nowhere = event(place.mine, None, episode=uuid4().hex)
    told = await write_events(app, [stored, whole, foreign, nowhere])
    assert told == {foreign["id"]: "u", nowhere["id"]: "u"}, f"unknown targets: {told}"
    other = {**stored, "body_hash": "\\x09"}
    assert await write_events(app, [stored]) == {stored["id"]: "r"}, "a replay must be reported"
    assert await write_events(app, [other]) == {stored["id"]: "c"}, "a conflict must be reported"
    found = await place.fetch("app", place.mine, "SELECT id FROM event")
    assert {row["id"] for row in found} == {stored["id"], whole["id"]}, (
        "unexpected events in the store"
    )
    work = await place.fetch(
        "app", place.mine, "SELECT FROM work WHERE decision = $1", UUID(mine["id"])
    )
    assert work, "an event with outcomes must create work"


async def check_crossing_batches(place: Place) -> None:
    """Check that batches with equal keys in different orders cause no deadlock or duplicate.

    Args:
        place: two tenants on a server.
    """
    keys = [uuid4().hex for _ in range(20)]
    batches = [
        [decision(tenant, idempotency_key=key, body_hash="\\x01")
         for key in order for tenant in (place.mine, place.theirs)]
        for order in (keys, keys[::-1], keys[1::2] + keys[::2])
    ]  # fmt: skip
    connections = [await place.database.connect("app") for _ in batches]
    try:
        writing = (
            write_decisions(connection, batch)
            for connection, batch in zip(connections, batches, strict=True)
        )
        async with asyncio.timeout(60):
            taken = await asyncio.gather(*writing)
    finally:
        for connection in connections:
            await connection.close()
    assert sum(map(len, taken)) == 2 * 2 * len(keys), "a key must belong to one decision"
    for tenant in (place.mine, place.theirs):
        found = await place.fetch(
            "app", tenant, "SELECT FROM decision WHERE idempotency_key = ANY($1)", keys
        )
        assert len(found) == len(keys), "a key must have exactly one decision"


async def check_late_commits(place: Place) -> None:
    """Check that the work of a late commit appears after its commit.

    Args:
        place: two tenants on a server.
    """
    decided = decision(place.mine)
    await write_decisions(place.roles["app"], [decided])
    late, early = event(place.mine, decided["id"]), event(place.mine, decided["id"])
    connection = await place.database.connect("app")
    try:
        transaction = connection.transaction()
        await transaction.start()
        await write_events(connection, [late])
        await write_events(place.roles["app"], [early])
        before = await _queued(place, decided)
        await transaction.commit()
    finally:
        await connection.close()
    after = await _queued(place, decided)
    assert len(before) == 1, f"{len(before)} work rows instead of that of the committed event"
    assert len(after) == 2, "the work of a late commit must appear"
    assert min(after - before) < min(before), (
        "ids are in commit order, so the check is not conclusive"
    )


async def _queued(place: Place, decided: dict[str, Any]) -> set[int]:
    rows = await place.fetch(
        "worker", None, "SELECT id FROM work WHERE decision = $1", UUID(decided["id"])
    )
    return {row["id"] for row in rows}


async def check_partitions(place: Place) -> None:
    """Check that a row goes to the partition of its day, or to the default partition.

    Args:
        place: two tenants on a server.
    """
    day = (_LONG_AGO + timedelta(days=int(uuid4()) % 3000)).date()
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    await place.fetch("owner", None, "SELECT make_partitions($1, 1)", day)
    ids = [new_id(at) for at in (begin - 0.001, begin, begin + 86_399.999, begin + 86_400)]
    await write_decisions(
        place.roles["app"], [decision(place.mine, id=str(identifier)) for identifier in ids]
    )
    rows = await place.fetch(
        *("app", place.mine, "SELECT id, tableoid::regclass::text AS part FROM decision"),
    )
    parts = {row["id"]: row["part"].rpartition(".")[2] for row in rows}
    own = f"decision_{day:%Y%m%d}"
    found = [parts.get(identifier) for identifier in ids]
    assert found[1:3] == [own, own], f"rows of {day} are in {found[1:3]}, not in {own}"
    assert own not in (found[0], found[3]), f"rows of other days are in {own}"
    assert None not in found, "a row of a day without a partition must be kept"


def _names(rows: Iterable[Any]) -> str:
    return ", ".join(row[0] for row in rows)
