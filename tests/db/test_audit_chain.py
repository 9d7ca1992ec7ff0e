"""Audit chain: gapless numbers, and detection of tampering."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.db.audit import history, record
from steersman.db.audit_chain import Anchor, audit_head, canonical_json, entry_hash, verify_chain
from steersman.db.tenants import create_tenant
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from tests.db.rows import connected
from tests.kept import run

DETAIL = {"z": [1, 2.5, -0.0, 1e-7, 1e22, True, None], "a": {"é": "“x”\n\\", "": {}}, "B": []}


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def owner(server):
    """Return a new tenant's id; its creation is the first audit row."""
    return run(create_tenant(server, f"t-{uuid4().hex}", actor="test")).id


async def write(server, tenant, count, *, role="app"):
    async with connected(server, role) as connection:
        for n in range(count):
            async with as_tenant(connection, tenant):
                await record(connection, tenant, "me", "test", str(n), {**DETAIL, "n": n})


async def verified(server, tenant, anchors=()):
    async with connected(server, "app", tenant) as connection:
        return await verify_chain(connection, tenant, anchors)


async def rows_of(server, tenant):
    async with connected(server, "app", tenant) as connection:
        return (await history(connection, limit=1000))[::-1]


async def behind_its_back(server, tenant, statement, *arguments):
    """Run a statement as a superuser with disabled triggers."""
    async with connected(server, None) as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        for each in statement.split(";"):
            await connection.execute(each, tenant, *arguments)


async def test_rows_follow_each_other_without_gaps(server, owner):
    await write(server, owner, 3)
    await write(server, owner, 2, role="worker")
    rows = await rows_of(server, owner)
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0].prev_hash == bytes(32)
    assert [row.prev_hash for row in rows[1:]] == [row.hash for row in rows[:-1]]
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    report = await verified(server, owner)
    assert (report.rows, report.broken, report.holds) == (6, [], True)
    async with connected(server, "app", owner) as connection:
        assert report.head == await audit_head(connection, owner) == (6, rows[-1].hash)


async def test_anybody_can_compute_the_hash_from_the_documented_form(server, owner):
    await write(server, owner, 1)
    row = (await rows_of(server, owner))[-1]
    entry = {
        "tenant": str(owner),
        "seq": 2,
        "id": str(row.id),
        "at": row.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "actor": "me",
        "action": "test",
        "subject": "0",
        "detail": {"z": [1, 2.5, 0, 1e-7, 10**22, True, None], "a": {"é": "“x”\n\\", "": {}}},
        "prev_hash": row.prev_hash.hex(),
    }
    entry["detail"] |= {"B": [], "n": 0}
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.replace("1e-07", "0.0000001").encode()).digest() == row.hash


async def test_what_was_rolled_back_leaves_no_gap(server, owner):
    async def attempt(connection):
        async with as_tenant(connection, owner):
            await record(connection, owner, "me", "test", "never")
            await connection.execute("SELECT 1 / 0")

    async with connected(server) as connection:
        for n in range(4):
            with pytest.raises(asyncpg.DivisionByZeroError):
                await attempt(connection)
            async with as_tenant(connection, owner):
                await record(connection, owner, "me", "test", str(n))
    assert [row.seq for row in await rows_of(server, owner)] == [1, 2, 3, 4, 5]
    assert (await verified(server, owner)).holds


async def test_who_writes_at_once_takes_turns(server, owner):
    other = (await create_tenant(server, f"t-{uuid4().hex}", actor="test")).id

    async def many(tenant, role):
        await write(server, tenant, 10, role=role)

    jobs = [many(t, role) for t in (owner, other) for role in ("app", "app", "worker", "owner")]
    await asyncio.gather(*jobs)
    for tenant in (owner, other):
        report = await verified(server, tenant)
        assert (report.rows, report.holds) == (41, True)


async def test_several_rows_of_one_statement_are_chained_too(server, owner):
    async with connected(server, "app", owner) as connection:
        await connection.execute(
            "INSERT INTO audit (tenant, id, actor, action, subject, detail, seq, hash, prev_hash) "
            r"SELECT $1, gen_random_uuid(), 'me', 'test', n::text, '{}', 7, '\x00', '\x00' "
            "FROM generate_series(1, 5) AS n",
            owner,
        )
    report = await verified(server, owner)
    assert (report.rows, report.holds) == (6, True)


@pytest.mark.parametrize("role", ["app", "worker", "owner"])
@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit"],
)
async def test_no_role_changes_or_removes_a_row(server, owner, role, statement):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(server, role, owner) as connection:
            await connection.execute(statement)


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
async def test_an_owner_who_takes_the_right_is_refused_by_the_table(server, owner, statement):
    async with connected(server, "owner") as connection:
        await connection.execute("BEGIN")
        await connection.execute("SELECT set_config('app.tenant', $1, true)", str(owner))
        await connection.execute("GRANT ALL ON audit TO steersman_owner")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="never changed or removed"):
            await connection.execute(statement)
        await connection.execute("ROLLBACK")


async def test_not_even_a_superuser_truncates_it_by_mistake(server):
    async with connected(server, None) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="never changed or removed"):
            await connection.execute("TRUNCATE audit")


TAMPERED = {
    "changed": ("UPDATE audit SET actor = 'eve' WHERE tenant = $1 AND seq = 3", [3]),
    "detail": (
        "UPDATE audit SET detail = jsonb_set(detail, '{z,1}', '2.4') WHERE tenant = $1 AND seq = 3",
        [3],
    ),
    "moved": ("UPDATE audit SET at = at - interval '1 day' WHERE tenant = $1 AND seq = 3", [3]),
    "hashed anew": (
        (
            "UPDATE audit AS a SET actor = 'eve', hash = "
            "audit_hash(jsonb_populate_record(a, jsonb_build_object('actor', 'eve'))) "
            "WHERE tenant = $1 AND seq = 3"
        ),
        [4],
    ),
    "removed": ("DELETE FROM audit WHERE tenant = $1 AND seq IN (3, 4)", [5]),
    "first removed": ("DELETE FROM audit WHERE tenant = $1 AND seq = 1", [2]),
    "removed and renumbered": (
        (
            "DELETE FROM audit WHERE tenant = $1 AND seq = 6;"
            "UPDATE audit SET seq = 6 WHERE tenant = $1 AND seq = 7"
        ),
        [6, 6],
    ),
}


@pytest.mark.parametrize("way", TAMPERED)
async def test_tampering_is_found(server, owner, way):
    await write(server, owner, 6)
    statement, places = TAMPERED[way]
    await behind_its_back(server, owner, statement)
    report = await verified(server, owner)
    assert [seq for seq, _ in report.broken] == places
    assert not report.holds


async def test_exchanged_rows_are_found(server, owner):
    await write(server, owner, 6)
    for statement in (
        "UPDATE audit SET seq = -seq WHERE tenant = $1 AND seq IN (3, 4)",
        "UPDATE audit SET seq = 7 + seq WHERE tenant = $1 AND seq < 0",
    ):
        await behind_its_back(server, owner, statement)
    report = await verified(server, owner)
    assert {seq for seq, _ in report.broken} == {3, 4, 5}


async def test_missing_rows_at_the_end_are_found_by_anchors_alone(server, owner):
    await write(server, owner, 3)
    async with connected(server, "app", owner) as connection:
        anchor = await audit_head(connection, owner)
    await write(server, owner, 2)
    assert (await verified(server, owner, [anchor])).holds
    await behind_its_back(server, owner, "DELETE FROM audit WHERE tenant = $1 AND seq > 2")
    assert (await verified(server, owner)).holds
    report = await verified(server, owner, [anchor])
    assert [str(what) for _, what in report.broken] == [
        "row 4 has an anchor but is missing; the chain ends at 2"
    ]
    # Others in their place do not help.
    await write(server, owner, 4)
    report = await verified(server, owner, [anchor])
    assert [what for _, what in report.broken] == ["row 4 differs from its anchor"]
    assert (report.anchors, report.holds) == (1, False)


async def test_a_chain_written_anew_is_found_by_anchors(server, owner):
    await write(server, owner, 3)
    first = [Anchor(row.seq, row.hash) for row in await rows_of(server, owner)]
    await behind_its_back(server, owner, "DELETE FROM audit WHERE tenant = $1")
    await write(server, owner, 4)
    assert (await verified(server, owner)).holds
    report = await verified(server, owner, first)
    assert [seq for seq, _ in report.broken] == [1, 2, 3, 4]


async def test_an_anchor_of_no_row_is_refused(server, owner):
    with pytest.raises(InputError, match="has row number 0"):
        await verified(server, owner, [(0, bytes(32))])


async def test_an_empty_audit_holds(server):
    report = await verified(server, uuid4())
    assert (report.rows, report.head, report.holds) == (0, None, True)


async def test_one_tenant_never_sees_or_checks_anothers_chain(server, owner):
    await write(server, owner, 3)
    mine = (await create_tenant(server, f"t-{uuid4().hex}", actor="test")).id
    async with connected(server, "app", mine) as connection:
        assert await audit_head(connection, owner) is None
        assert (await verify_chain(connection, owner)).rows == 0
        assert [row.seq for row in await history(connection)] == [1]
        # Nor does writing as another tell how long their chain is.
        with pytest.raises(asyncpg.InsufficientPrivilegeError) as refused:
            await record(connection, owner, "eve", "test", "x")
    assert "row-level security" in str(refused.value)
    # A row that was copied from another's chain does not fit.
    copied = (
        "INSERT INTO audit SELECT $1, id, at, actor, action, subject, detail, seq + 1, "
        "prev_hash, hash FROM audit WHERE tenant = $2 AND seq = 1"
    )
    await behind_its_back(server, mine, copied, owner)
    assert not (await verified(server, mine)).holds


async def test_a_long_chain_is_read_in_pages(server, owner):
    async with connected(server, "app", owner) as connection:
        await connection.execute(
            "INSERT INTO audit (tenant, id, actor, action, subject, detail) "
            "SELECT $1, gen_random_uuid(), 'me', 'test', n::text, '{}' "
            "FROM generate_series(1, 2100) AS n",
            owner,
        )
    report = await verified(server, owner, [(1500, bytes(32))])
    assert (report.rows, [seq for seq, _ in report.broken]) == (2101, [1500])


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
def test_database_and_verifier_write_any_value_alike(server):
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(server.connect("app"))
    query = "SELECT canonical_json(t::jsonb) FROM unnest($1::text[]) WITH ORDINALITY AS u (t, n) "

    @settings(max_examples=200, deadline=None)
    @given(st.lists(VALUES, min_size=1, max_size=20))
    def alike(values):
        texts = [json.dumps(value) for value in values]
        rows = loop.run_until_complete(connection.fetch(query + "ORDER BY n", texts))
        found = [row[0] for row in rows]
        assert found == [canonical_json(value) for value in values]
        exact = [json.loads(text, parse_float=Decimal) for text in texts]
        assert found == [canonical_json(value) for value in exact]

    try:
        alike()
    finally:
        loop.run_until_complete(connection.close())
        loop.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}])
def test_what_json_cannot_hold_has_no_form(value):
    with pytest.raises(InputError):
        canonical_json({"x": value})


def test_times_are_hashed_in_utc():
    at = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    entry = dict.fromkeys(("actor", "action", "subject"), "x")
    entry |= {"tenant": 1, "seq": 1, "id": 2, "detail": {}, "prev_hash": bytes(32)}
    there = at.astimezone(timezone(timedelta(hours=5)))
    assert entry_hash({**entry, "at": at}) == entry_hash({**entry, "at": there})
