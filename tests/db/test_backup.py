"""Backup and restore: rows, roles, policies and partitions are complete."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.audit import record
from steersman.db.audit_chain import audit_head, verify_chain
from steersman.db.backup import backup, restore
from steersman.db.decisions import log_decisions
from steersman.db.declarations import declare
from steersman.db.migrate import migrate
from steersman.db.packed_events import log_events
from steersman.db.tenants import create_tenant
from steersman.errors import StoreError
from steersman.platform.postgres import programs
from steersman.platform.postgres.database import Database
from tests.db.rows import connected, decision, event
from tests.db.schema import fill as one_row_each
from tests.db.test_points import DOCUMENT
from tests.forked import call
from tests.kept import run
from tests.learning.processes import until

RULES = """
SELECT 'policy', polrelid::regclass::text, polname, polcmd::text, polroles::regrole[]::text,
       pg_get_expr(polqual, polrelid) || coalesce(pg_get_expr(polwithcheck, polrelid), '')
FROM pg_policy
UNION ALL
SELECT 'table', oid::regclass::text, relrowsecurity::text, relforcerowsecurity::text,
       relowner::regrole::text, relacl::text
FROM pg_class WHERE relnamespace = 'steersman'::regnamespace AND relkind IN ('r', 'p', 'v')
UNION ALL
SELECT 'column', attrelid::regclass::text, attname, '', '', attacl::text
FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid::regclass::text NOT LIKE 'pg\\_%'
UNION ALL
SELECT 'function', oid::regprocedure::text, prosecdef::text, proconfig::text,
       proowner::regrole::text, proacl::text
FROM pg_proc WHERE pronamespace = 'steersman'::regnamespace
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, tgenabled::text, tgfoid::regprocedure::text, ''
FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0
ORDER BY 1, 2, 3
"""

OF_PSQL = "FROM pg_stat_activity WHERE application_name = 'psql' AND datname = current_database()"


def on(database, name, user=None):
    """Return another database of the same server."""
    parts = urlsplit(database.url)
    host = parts.netloc if user is None else f"{user}@{parts.netloc.rpartition('@')[2]}"
    return Database(parts._replace(netloc=host, path=f"/{name}").geturl())


async def execute(database, statement):
    connection = await database.connect(None)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def database(database_alone):
    """Return a separate database, to keep the copies small."""
    return database_alone


@pytest.fixture
def empty(database):
    name = f"restored_{uuid4().hex[:12]}"
    run(execute(database, f"CREATE DATABASE {name}"))
    yield on(database, name)
    run(execute(database, f"DROP DATABASE {name} WITH (FORCE)"))


async def fetch(database, query):
    connection = await database.connect(None)
    try:
        return await rows_of(connection, query)
    finally:
        await connection.close()


async def rows_of(connection, query):
    return [tuple(row) for row in await connection.fetch(query)]


async def contents(database):
    """Return row count and hash of every table, including unreadable ones."""
    connection = await database.connect(None)
    try:
        names = await rows_of(
            connection,
            "SELECT relname FROM pg_class WHERE relnamespace = 'steersman'::regnamespace "
            "AND relkind IN ('r', 'p') ORDER BY relname",
        )
        found = {}
        for (name,) in names:
            (found[name],) = await rows_of(
                connection,
                f"SELECT count(*), sum(hashtextextended(to_jsonb(t)::text, 0)) FROM {name} AS t",
            )
        return found
    finally:
        await connection.close()


async def fill(database, tenant):
    await declare(database, tenant.id, DOCUMENT, actor="me")
    rows = [decision(tenant.id, unit=f"u{n}") for n in range(20)]
    async with connected(database) as connection:
        await log_decisions(connection, rows)
        await log_events(connection, [event(tenant.id, row.id) for row in rows])


async def test_the_audits_chain_holds_and_goes_on_in_what_was_restored(
    database, tenant, empty, tmp_path
):
    await fill(database, tenant)
    made = await backup(database, tmp_path / "all.backup")
    async with connected(database, "app", tenant.id) as connection:
        head = await audit_head(connection, tenant.id)
    await restore(empty, made.file)
    async with connected(empty, "app", tenant.id) as connection:
        await record(connection, tenant.id, "me", "test", "after")
        report = await verify_chain(connection, tenant.id, [head])
    assert (report.rows, report.holds) == (head.seq + 1, True)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with connected(empty, "owner", tenant.id) as connection:
            await connection.execute("UPDATE audit SET actor = 'x'")


async def test_everything_comes_back(database, tenant, empty, tmp_path):
    await fill(database, tenant)
    another = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    tables = await one_row_each(database, another.id)
    assert {"rollout", "rollout_task", "verdict", "incident", "snapshot"} <= set(tables)
    made = await backup(database, tmp_path / "all.backup")
    assert made.bytes == made.file.stat().st_size > 10_000
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert await restore(empty, made.file) == []
    before = await contents(database)
    assert before["decision"][0] >= 20
    assert await contents(empty) == before
    # A partitioned table and a view hold no rows themselves.
    assert made.tables == len(before.keys() - {"outcome", "decision", "event"})
    assert await fetch(empty, RULES) == await fetch(database, RULES)


async def test_what_came_back_is_at_work(database, tenant, empty, tmp_path):
    await fill(database, tenant)
    await restore(empty, (await backup(database, tmp_path / "all.backup")).file)
    other = await create_tenant(empty, f"t-{uuid4().hex}", actor="me")
    async with connected(empty, "app", other.id) as connection:
        assert await connection.fetchval("SELECT count(*) FROM decision") == 0
    async with connected(empty, "app", tenant.id) as connection:
        assert await connection.fetchval("SELECT count(*) FROM decision") == 20
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM decision")
    async with connected(empty) as connection:
        await log_decisions(connection, [decision(tenant.id)])
    await fill(empty, other)


async def test_a_database_with_tenants_is_replaced_only_if_one_says_so(
    database, tenant, empty, tmp_path
):
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    with pytest.raises(StoreError, match="has 1 tenants"):
        await restore(empty, file)
    assert await fetch(empty, "SELECT name FROM tenant") == [("theirs",)]
    await restore(empty, file, replace=True)
    assert await contents(empty) == await contents(database)
    assert await fetch(empty, "SELECT to_regnamespace('steersman_before_restore')::text") == [
        (None,)
    ]


async def test_a_damaged_file_leaves_everything_as_it_was(database, empty, tmp_path):
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    data = bytearray(file.read_bytes())
    broken = tmp_path / "broken.backup"
    for damaged in (b"", b"nonsense", data[: len(data) // 2], data[:-2000]):
        broken.write_bytes(damaged)
        with pytest.raises(StoreError, match="pg_restore failed"):
            await restore(empty, broken, replace=True)
        assert await fetch(empty, "SELECT name FROM tenant") == [("theirs",)]
    async with connected(empty) as connection:
        assert await connection.fetch("SELECT * FROM decision") == []


def unsealed(file):
    """Return a backup without checksum, as earlier versions wrote it."""
    return file.read_bytes().rpartition(b"\nsteersman: SHA-256")[0]


@pytest.mark.parametrize("of", [b"INSERT INTO event", b"app.tenant", b"PGDMP"])
async def test_a_changed_letter_is_seen(database, tmp_path, of):
    """PostgreSQL itself restores a changed function or policy without an error."""
    file = (await backup(database, tmp_path / "all.backup")).file
    data = bytearray(file.read_bytes())
    data[data.index(of)] ^= 1
    file.write_bytes(data)
    before = await contents(database)
    with pytest.raises(StoreError, match=r"all\.backup is damaged: .*use another copy"):
        await restore(database, file, replace=True)
    assert await contents(database) == before


async def test_a_backup_of_an_earlier_version_has_no_seal(database, tenant, empty, tmp_path):
    await fill(database, tenant)
    made = await backup(database, tmp_path / "all.backup")
    made.file.write_bytes(unsealed(made.file))
    await restore(empty, made.file)
    assert await contents(empty) == await contents(database)


@pytest.mark.parametrize(
    ("made", "refusal"),
    [
        (r"INSERT INTO migration VALUES ('0999_later.sql', '\x00')", "0999_later.sql, which this"),
        (
            r"UPDATE migration SET sha256 = '\x00' WHERE name ~ '^0003'",
            "applied with other content",
        ),
        ("DELETE FROM migration", "not a Steersman backup"),
        ("DROP SCHEMA steersman CASCADE; CREATE TABLE public.other ()", "not a Steersman backup"),
    ],
)
async def test_what_does_not_fit_this_version_leaves_everything_as_it_was(
    database, empty, tmp_path, made, refusal
):
    """The old data must stay until the backup is known to be usable."""
    await migrate(empty)
    await execute(empty, made)
    file = tmp_path / "strange.backup"
    await programs.run("pg_dump", "--format=custom", f"--file={file}", url=empty.url)
    before = await contents(database)
    with pytest.raises(StoreError, match=refusal):
        await restore(database, file, replace=True)
    assert await contents(database) == before
    assert await schemas(database) == [("steersman",)]


async def test_an_interrupted_restore_can_be_done_again(database, tenant, empty, tmp_path):
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await execute(empty, "ALTER SCHEMA steersman RENAME TO steersman_before_restore")
    await restore(empty, file)
    assert await contents(empty) == await contents(database)


@pytest.mark.parametrize(
    "left",
    ["", "CREATE SCHEMA steersman", "CREATE SCHEMA steersman; CREATE TABLE steersman.tenant ()"],
)
async def test_what_earlier_versions_left_aside_is_the_original(
    database, tenant, empty, tmp_path, left
):
    """Earlier versions renamed first; a kill left the original beside a partial copy."""
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    await execute(empty, f"ALTER SCHEMA steersman RENAME TO steersman_before_restore; {left}")
    damaged = tmp_path / "damaged.backup"
    damaged.write_bytes(unsealed(file).replace(b"CREATE POLICY", b"CREATE POLICE"))
    with pytest.raises(StoreError, match="psql failed"):
        await restore(empty, damaged, replace=True)
    assert await fetch(empty, "SELECT name FROM tenant") == [("theirs",)]
    with pytest.raises(StoreError, match="has 1 tenants"):
        await restore(empty, file)
    await restore(empty, file, replace=True)
    assert await contents(empty) == await contents(database)


async def schemas(database):
    return await fetch(database, "SELECT nspname FROM pg_namespace WHERE nspname ~ '^steersman'")


def _restore_and_die(url, file, share):
    """Restore, and be killed after a share of the script was sent."""

    async def stop(source, sink):
        script = await programs._stdout(source).read()
        whole = bytearray(script)
        while more := await programs._stdout(source).read(1 << 20):
            whole += more
        target = programs._stdin(sink)
        script = whole.replace(programs._UNKNOWN, b"")
        target.write(script[: int(share * len(script))])
        await target.drain()
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    programs._copy = stop
    asyncio.run(restore(Database(url), file, replace=True))


@pytest.mark.parametrize("share", [0.02, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0])
async def test_a_restore_that_is_killed_anywhere_changes_nothing(
    database, tenant, empty, tmp_path, share
):
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    before = await contents(empty)
    killed = call(_restore_and_die, empty.url, file, share)
    assert await asyncio.to_thread(killed.wait, 60.0) == -signal.SIGKILL

    async def ended():
        return await fetch(empty, f"SELECT count(*) {OF_PSQL}") == [(0,)]

    await until(ended)
    assert await schemas(empty) == [("steersman",)]
    assert await contents(empty) == before
    await restore(empty, file, replace=True)
    assert await contents(empty) == await contents(database)


async def test_a_restore_whose_session_is_ended_says_so_and_changes_nothing(
    database, tenant, empty, tmp_path, monkeypatch
):
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    monkeypatch.setattr(programs, "_CHUNK", 1 << 12)  # what is read ahead is less than the script
    connection = await empty.connect(None)
    restoring = asyncio.create_task(restore(empty, file, replace=True))
    end = f"SELECT count(pg_terminate_backend(pid)) {OF_PSQL}"
    await until(lambda: connection.fetchval(end), every_s=0.001)
    with pytest.raises(StoreError, match="psql failed"):
        await asyncio.wait_for(restoring, 30.0)
    await connection.close()
    assert await schemas(empty) == [("steersman",)]
    assert await fetch(empty, "SELECT name FROM tenant") == [("theirs",)]


async def test_a_restore_whose_own_connection_is_lost_is_told_and_done_again(
    database, tenant, empty, tmp_path, monkeypatch
):
    """Another connection loads the rows; the old schema stays aside."""
    await fill(database, tenant)
    file = (await backup(database, tmp_path / "all.backup")).file
    await migrate(empty)
    await create_tenant(empty, "theirs", actor="me")
    monkeypatch.setattr(programs, "_CHUNK", 1 << 12)
    connection = await empty.connect(None)
    restoring = asyncio.create_task(restore(empty, file, replace=True))
    await until(lambda: connection.fetchval(f"SELECT count(*) {OF_PSQL}"), every_s=0.001)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = 'steersman' AND datname = current_database()"
    )
    with pytest.raises(
        StoreError, match=r"the restore stopped: .*either the old data or the backup, complete"
    ):
        await asyncio.wait_for(restoring, 30.0)
    await connection.close()
    assert await contents(empty) == await contents(database)
    await restore(empty, file, replace=True)
    assert await schemas(empty) == [("steersman",)]
    assert await contents(empty) == await contents(database)


async def test_two_restores_at_once_are_told_of_each_other(database, empty, tmp_path):
    file = (await backup(database, tmp_path / "all.backup")).file
    ended = await asyncio.gather(*[restore(empty, file) for _ in range(2)], return_exceptions=True)
    refused = [one for one in ended if isinstance(one, StoreError)]
    assert len(refused) == 1
    assert "another restore" in str(refused[0])
    assert await contents(empty) == await contents(database)


async def test_a_backup_is_on_the_disk_by_its_name_when_it_is_told(database, tmp_path, monkeypatch):
    flush, flushed = os.fsync, []

    def noted(handle):
        flush(handle)
        flushed.append((os.fstat(handle).st_ino, [path.name for path in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", noted)
    made = await backup(database, tmp_path / "all.backup")
    content, name = flushed
    assert content[0] == made.file.stat().st_ino
    assert name == (tmp_path.stat().st_ino, ["all.backup"])


async def test_what_a_killed_backup_left_is_removed_by_the_next(database, tmp_path):
    left = tmp_path / ".all.backup.0123abcd"
    left.write_bytes(b"everybody's data")
    others = [tmp_path / name for name in (".all.backup.note", ".of-all.backup.0123abcd")]
    for other in others:
        other.write_bytes(b"kept")
    with (tmp_path / ".all.backup.ffff0000").open("wb") as written:
        fcntl.flock(written, fcntl.LOCK_EX)  # another backup is under way
        made = await backup(database, tmp_path / "all.backup")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {made.file.name, ".all.backup.ffff0000", *(other.name for other in others)}


async def test_who_does_not_see_all_rows_is_told_what_to_do(database, empty, tmp_path):
    name = f"held_{uuid4().hex[:12]}"
    await execute(database, f"CREATE ROLE {name} LOGIN IN ROLE steersman_owner")
    try:
        held = on(database, urlsplit(database.url).path[1:], user=name)
        with pytest.raises(StoreError, match="BYPASSRLS"):
            await backup(held, tmp_path / "all.backup")
        assert list(tmp_path.iterdir()) == []
    finally:
        await execute(database, f"DROP ROLE {name}")


async def test_a_failed_backup_leaves_the_older_one(database, tmp_path):
    made = await backup(database, tmp_path / "all.backup")
    before = made.file.read_bytes()
    broken = on(database, "nowhere")
    with pytest.raises(StoreError):
        await backup(broken, made.file)
    assert made.file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["all.backup"]


@pytest.mark.nightly
@pytest.mark.slow
async def test_a_year_of_days_is_replaced_too(database, empty, tmp_path):
    """One statement would need more locks than a server has by default."""
    await migrate(empty)
    for first in range(0, 400, 100):
        await execute(empty, f"SELECT make_partitions(date '2024-01-01' + {first}, 100)")
    file = (await backup(empty, tmp_path / "all.backup")).file
    assert await restore(empty, file, replace=True) == []
    assert await schemas(empty) == [("steersman",)]


async def test_the_oldest_supported_server_too(database_15, tmp_path):
    tenant = await create_tenant(database_15, f"t-{uuid4().hex}", actor="me")
    await fill(database_15, tenant)
    made = await backup(database_15, tmp_path / "all.backup")
    before = await contents(database_15)
    await restore(database_15, made.file, replace=True)
    after = await contents(database_15)
    assert before.items() <= after.items()
    # Past midnight there is a table more, for a day to come.
    assert {rows for name, rows in after.items() if name not in before} <= {(0, None)}


async def test_a_file_that_cannot_be_replaced_in_the_end_is_told(database, tmp_path, monkeypatch):
    """In sticky folders users cannot replace files of others."""

    def others(draft, target):
        raise PermissionError(1, "Operation not permitted", str(draft), None, str(target))

    monkeypatch.setattr(Path, "replace", others)
    with pytest.raises(StoreError, match=r"cannot write .*all\.backup: Operation not permitted"):
        await backup(database, tmp_path / "all.backup")
    assert list(tmp_path.iterdir()) == []


async def test_what_cannot_be_written_or_read_is_told_by_its_name(database, empty, tmp_path):
    missing = tmp_path / "missing" / "all.backup"
    with pytest.raises(StoreError, match=r"cannot write .*missing/all\.backup: No such file"):
        await backup(database, missing)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for taken in (tmp_path, pipe, tmp_path / ".."):
        with pytest.raises(StoreError, match=r"is not a regular file; choose another path"):
            await backup(database, taken)
    assert list(tmp_path.iterdir()) == [pipe]
    assert pipe.is_fifo()
    for unreadable in (missing, tmp_path):
        with pytest.raises(
            StoreError, match=r"cannot read .*use a file written by `steersman backup`"
        ):
            await restore(empty, unreadable)
    stranger = tmp_path / "notes.yaml"
    stranger.write_text("no backup")
    with pytest.raises(StoreError, match=r"notes\.yaml is not a readable backup: .*use a file"):
        await restore(empty, stranger)
