"""Migrations: once, serialised, and whole files or nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from steersman.db.audit import history
from steersman.db.audit_chain import verify_chain
from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.migrate import make_partitions, migrate
from steersman.db.points import points_of
from steersman.db.snapshots import snapshots_of
from steersman.db.tenants import create_tenant
from steersman.errors import StoreError
from steersman.features import FeatureMap
from steersman.platform.postgres.database import Database, as_tenant
from steersman.points.policy_factory import initial_policy
from steersman.points.state_bytes import pack_state
from steersman.spec.loader import loads
from steersman.wire import new_id
from tests.db.rows import connected, decision
from tests.db.test_backup import execute, fetch, on
from tests.db.test_points import DOCUMENT

FILES = [
    "0001_roles.sql",
    "0002_tables.sql",
    "0003_isolation.sql",
    "0004_logging.sql",
    "0005_partitions.sql",
    "0006_snapshots.sql",
    "0007_rollouts.sql",
    "0008_audit_chain.sql",
]


@pytest.fixture(params=["database", "database_15"])
def fresh(request):
    """Return an empty database on a server with the roles."""
    database = request.getfixturevalue(request.param)
    name = f"fresh_{uuid4().hex[:12]}"
    asyncio.run(execute(database, f"CREATE DATABASE {name}"))
    yield on(database, name)
    asyncio.run(execute(database, f"DROP DATABASE {name} WITH (FORCE)"))


async def test_the_second_time_nothing_is_left_to_do(fresh):
    assert (await migrate(fresh))[: len(FILES)] == FILES
    assert await migrate(fresh) == []


async def test_those_who_migrate_at_once_take_turns(fresh):
    done = await asyncio.gather(*(migrate(fresh) for _ in range(4)))
    assert sorted(map(len, done))[:3] == [0, 0, 0]
    applied = await fetch(fresh, "SELECT name FROM migration ORDER BY name")
    assert [name for (name,) in applied] == max(done, key=len)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            r"UPDATE migration SET sha256 = '\x00' WHERE name = '0003_isolation.sql'",
            r"0003_isolation.sql was applied with other content",
        ),
        (
            r"INSERT INTO migration VALUES ('0999_later.sql', '\x00')",
            r"0999_later.sql, which this version does not know",
        ),
    ],
    ids=["other content", "newer"],
)
async def test_migrate_with_other_files_applied_names_the_file(fresh, statement, says):
    await migrate(fresh)
    await execute(fresh, statement)
    with pytest.raises(StoreError, match=says):
        await migrate(fresh)


async def test_nothing_is_left_of_a_file_that_failed(fresh, monkeypatch):
    files = migrate.__globals__["_files"]()
    broken = [*files[:2], ("0002_tables_broken.sql", "CREATE TABLE half (a int); SELECT 1 / 0;")]
    monkeypatch.setitem(migrate.__globals__, "_files", lambda: broken)
    with pytest.raises(
        StoreError, match=r"0002_tables_broken.sql failed and was rolled back: division by zero"
    ):
        await migrate(fresh)
    assert await fetch(fresh, "SELECT to_regclass('half')::text") == [(None,)]
    applied = await fetch(fresh, "SELECT name FROM migration ORDER BY name")
    assert [name for (name,) in applied] == FILES[:2]
    monkeypatch.undo()
    assert await migrate(fresh) == [name for name, _ in files[2:]]


@pytest.fixture
def plain(fresh):
    """Return the fresh database for a user with login right only."""
    name = f"plain_{uuid4().hex[:12]}"
    asyncio.run(execute(fresh, f"CREATE ROLE {name} LOGIN"))
    yield on(fresh, place(fresh), user=name)
    asyncio.run(execute(fresh, f"DROP OWNED BY {name}; DROP ROLE {name}"))


def place(database):
    return urlsplit(database.url).path[1:]


async def test_a_user_without_the_roles_is_told(fresh, plain):
    with pytest.raises(
        StoreError,
        match=r"0001_roles.sql failed and was rolled back: (permission denied|must have)",
    ):
        await migrate(plain)
    with pytest.raises(StoreError, match="cannot connect to PostgreSQL as app"):
        await plain.connect("app")


async def test_a_user_that_was_given_the_roles_is_enough(fresh, plain):
    name = urlsplit(plain.url).username
    await execute(fresh, f"GRANT CREATE ON DATABASE {place(fresh)} TO {name}")
    await execute(fresh, f"GRANT steersman_owner, steersman_app, steersman_worker TO {name}")
    assert (await migrate(plain))[: len(FILES)] == FILES
    tenant = await create_tenant(plain, "t", actor="me")
    async with connected(plain) as connection:
        await log_decisions(connection, [decision(tenant.id)])
        # Not even by leaving its role does it see more.
        await connection.execute("SET ROLE NONE")
        assert await connection.fetch("SELECT * FROM decision") == []
    assert await migrate(plain) == []


async def test_every_partition_finds_the_decisions_of_a_rollout(fresh):
    await migrate(fresh)
    assert await make_partitions(fresh, days=16) > 0
    rows = await fetch(
        fresh,
        "SELECT c.relname, count(i) FROM pg_inherits AS h JOIN pg_class AS c ON c.oid = h.inhrelid "
        "LEFT JOIN pg_indexes AS i ON i.tablename = c.relname AND i.indexdef LIKE "
        "'%(tenant, rollout, id) WHERE (rollout IS NOT NULL)' "
        "WHERE h.inhparent = 'steersman.decision'::regclass GROUP BY 1",
    )
    assert len(rows) > 16
    assert {count for _, count in rows} == {1}


async def test_partitions_are_there_for_the_days_to_come(fresh):
    await migrate(fresh)
    rows = await fetch(fresh, "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    names = {name for (name,) in rows}
    today = datetime.now(UTC).date()
    for table in ("decision", "event"):
        for ahead in range(-1, 14):
            assert f"{table}_{today + timedelta(days=ahead):%Y%m%d}" in names
    assert await make_partitions(fresh) == 0
    assert await make_partitions(fresh, days=16) == 4


async def test_partitions_wait_for_no_reader_and_nobody_waits_for_them(fresh):
    await migrate(fresh)
    tenant = await create_tenant(fresh, "t", actor="me")
    async with connected(fresh, "app", tenant.id) as reader:
        await reader.fetchval("SELECT count(*) FROM decision")  # as a backup does, for long
        with pytest.raises(StoreError, match="when it ends"):
            await make_partitions(fresh, days=16)
        async with connected(fresh) as connection, asyncio.timeout(5):
            await log_decisions(connection, [decision(tenant.id)])
        assert await migrate(fresh) == []
    assert await make_partitions(fresh, days=16) == 4


async def test_a_day_whose_rows_came_first_stays_where_they_are(fresh):
    await migrate(fresh)
    tenant = await create_tenant(fresh, "t", actor="me")
    at = datetime.now(UTC) + timedelta(days=20)
    row = decision(tenant.id, id=new_id(at.timestamp()))
    async with connected(fresh) as connection:
        await log_decisions(connection, [row])
    await make_partitions(fresh, days=21)
    async with connected(fresh, "app", tenant.id) as connection:
        found = await connection.fetchval("SELECT tableoid::regclass::text FROM decision")
    assert found == "decision_default"


async def test_an_address_that_does_not_answer_is_told_without_its_password():
    away = Database("postgresql://someone:hidden@127.0.0.1:1/nothing")
    with pytest.raises(StoreError, match="cannot connect") as told:
        await away.connect("app")
    assert "hidden" not in str(told.value)
    assert "hidden" not in repr(away)


async def test_rows_of_an_earlier_schema_keep_working(fresh, monkeypatch):
    files = migrate.__globals__["_files"]()
    monkeypatch.setitem(migrate.__globals__, "_files", lambda: files[:5])
    await migrate(fresh)
    first, second = [await old_tenant(fresh, name) for name in ("first", "second")]
    monkeypatch.undo()
    assert await migrate(fresh) == [name for name, _ in files[5:]]
    for tenant in (first, second):
        async with connected(fresh, "app", tenant) as connection:
            (point,) = await points_of(connection, tenant)
            assert (point.snapshot, point.pinned_seq) == ("0.1.0", None)
            (snapshot,) = await snapshots_of(connection, (tenant, "search", "depth"))
            assert (snapshot.reason, snapshot.line) == ("declared", None)
            assert snapshot.published_at is None
            # In the order of their times, whatever their ids.
            rows = await history(connection)
            assert [(row.seq, row.subject) for row in rows] == [(3, "c"), (2, "b"), (1, "a")]
            assert (await verify_chain(connection, tenant)).holds
    again = await declare(fresh, first, DOCUMENT, actor="me")
    assert again.snapshot == "0.1.0"
    async with connected(fresh, "app", first) as connection:
        assert (await verify_chain(connection, first)).rows == 3
    changed = await declare(fresh, first, DOCUMENT.replace("dim: 8", "dim: 9"), actor="me")
    assert changed.snapshot == "0.2.0"
    async with connected(fresh, "app", first) as connection:
        report = await verify_chain(connection, first)
    assert (report.rows, report.holds) == (4, True)


async def old_tenant(database, name):
    """Write rows of the previous version: a tenant with a learned point and an audit log."""
    async with connected(database, "owner") as connection:
        tenant = await connection.fetchval("SELECT gen_random_uuid()")
        async with as_tenant(connection, tenant):
            await connection.execute("INSERT INTO tenant (id, name) VALUES ($1, $2)", tenant, name)
            spec = loads(DOCUMENT)
            spec_hash = bytes.fromhex(spec.spec_hash)
            features = bytes.fromhex(FeatureMap(spec.context).hash)
            state = pack_state(initial_policy(spec).state())
            point = tenant, "search", "depth"
            await connection.execute(
                "INSERT INTO spec (tenant, skill, point, hash, document) "
                "VALUES ($1, $2, $3, $4, $5)",
                *(*point, spec_hash, DOCUMENT),
            )
            await connection.execute(
                "INSERT INTO snapshot (tenant, skill, point, id, parent, spec_hash, feature_hash, "
                "reason, state, sha256) "
                "VALUES ($1, $2, $3, '0.1.0', NULL, $4, $5, 'declared', $6, sha256($6))",
                *(*point, spec_hash, features, state),
            )
            await connection.execute(
                "INSERT INTO decision_point (tenant, skill, point, spec_hash, feature_hash, "
                "snapshot, per_episode) VALUES ($1, $2, $3, $4, $5, '0.1.0', false)",
                *(*point, spec_hash, features),
            )
            await connection.execute(
                "INSERT INTO learner (tenant, skill, point, epoch, holder, snapshot, seq) "
                "VALUES ($1, $2, $3, 0, '', '0.1.0', 0)",
                *point,
            )
            await connection.execute(
                "INSERT INTO audit (tenant, id, at, actor, action, subject, detail) "
                "SELECT $1, gen_random_uuid(), now() - n * interval '1 hour', 'me', 'x', s, "
                """'{"n": 1.50, "é": [null, 1e30, "\\u0001"]}' """
                "FROM (VALUES ('c', 1), ('a', 3), ('b', 2)) AS v (s, n)",
                tenant,
            )
    return tenant
