"""SQL over cold and hot rows: each row once, one tenant only, no other access."""

from __future__ import annotations

import asyncio
import builtins
import os
import re
import tempfile
from datetime import datetime, timedelta

import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.query import query
from steersman.db.tenants import create_tenant
from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install

OUT = tempfile.gettempdir()


async def ask(past, cold, sql, **options):
    return (await query(past.database, cold, past.tenant, sql, **options)).to_pylist()


@pytest.fixture
def columns():
    """Return the columns of each table without the tenant."""

    async def read(database):
        connection = await database.connect("app")
        rows = await connection.fetch(
            "SELECT table_name AS t, column_name AS c FROM information_schema.columns "
            "WHERE table_name IN ('decision', 'event', 'reward', 'outcome') "
            "AND column_name <> 'tenant' ORDER BY ordinal_position"
        )
        await connection.close()
        found = {}
        for row in rows:
            found.setdefault(row["t"], []).append(row["c"])
        return found

    return read


async def test_the_views_have_the_columns_of_the_tables(past, cold, columns):
    for name, expected in (await columns(past.database)).items():
        table = await query(past.database, cold, past.tenant, f"SELECT * FROM {name}")
        assert table.column_names == expected, name


async def test_hot_and_cold_rows_give_the_same_answers(past, cold, days):
    for day in days:
        await past.add(day, 20)
    asked = (
        'SELECT d.action, sum(o.value) AS v, avg(r.value) AS r, min(d."at") AS first, '
        "count(*) AS n, sum(d.x[2]) AS x FROM decision d "
        "JOIN outcome o ON o.decision = d.id JOIN reward r ON r.decision = d.id "
        "WHERE o.name = 'latency_ms' GROUP BY ALL ORDER BY ALL"
    )
    hot = await ask(past, cold, asked)
    assert sum(row["n"] for row in hot) > 30
    await compact(past.database, cold, tenants=[past.tenant], until=days[0])
    mixed = await ask(past, cold, asked)
    await compact(past.database, cold, tenants=[past.tenant], until=days[-1])
    all_cold = await ask(past, cold, asked)
    for other in (mixed, all_cold):
        assert [(r["action"], r["n"], r["first"], r["r"]) for r in other] == [
            (r["action"], r["n"], r["first"], r["r"]) for r in hot
        ]
        assert [r["v"] for r in other] == pytest.approx([r["v"] for r in hot])
        assert [r["x"] for r in other] == pytest.approx([r["x"] for r in hot])


async def test_times_are_in_utc_whatever_the_machine_thinks(past, cold, days, monkeypatch):
    rows = await past.add(days[0], 5)
    await compact(past.database, cold, tenants=[past.tenant], until=days[0])
    sql = 'SELECT id, "at", "at"::DATE AS day, date_trunc(\'hour\', "at") AS hour FROM decision'
    found = await ask(past, cold, sql)
    assert {r["id"]: r["at"] for r in found} == {
        str(row.id): row.at.replace(tzinfo=None) for row in rows
    }
    assert {r["day"] for r in found} == {days[0]}
    assert isinstance(found[0]["hour"], datetime)


async def test_contexts_and_bodies_are_read_as_json(past, cold, days):
    rows = await past.add(days[0], 3)
    sql = (
        "SELECT d.id, d.context->>'$.question' AS q, e.body->>'$.note' AS note "
        "FROM decision d JOIN event e ON e.decision = d.id"
    )
    found = {row["id"]: row for row in await ask(past, cold, sql)}
    assert found
    for row in rows:
        if str(row.id) in found:
            assert found[str(row.id)]["q"] == row.context["question"]
            assert found[str(row.id)]["note"] == f"of {row.id}"


async def test_no_other_tenants_rows_can_be_named(past, past_of, cold, days):
    other = past_of((await create_tenant(past.database, f"o-{past.tenant}", actor="test")).id)
    await past.add(days[0], 3)
    await other.add(days[0], 4)
    both = [past.tenant, other.tenant]
    await compact(past.database, cold, tenants=both, until=days[0])
    await other.add(days[1], 5)
    sql = "SELECT count(*) AS n, (SELECT count(*) FROM reward) AS r FROM decision"
    assert await ask(past, cold, sql) == [{"n": 3, "r": 3}]
    path = next(cold.root.rglob(f"decision/tenant={other.tenant}/*/*.parquet"))
    for sql in (f"SELECT * FROM '{path}'", f"SELECT * FROM read_parquet('{path}')"):
        with pytest.raises(InputError):
            await ask(past, cold, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('http://127.0.0.1:9/')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        f"SELECT * FROM query('COPY decision TO ''{OUT}/x''')",
        "SELECT getenv('HOME')",
        "SELECT * FROM loaded",
        "SELECT * FROM settings",
        "SELECT * FROM tenant",
        "SELECT * FROM steersman.api_key",
        "SELECT no_such_column FROM decision",
        f"COPY decision TO '{OUT}/x.csv'",
        f"COPY (SELECT 1) TO '{OUT}/x.csv'",
        f"ATTACH '{OUT}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW decision",
        "DELETE FROM decision",
        "CALL pragma_version()",
        f"EXPORT DATABASE '{OUT}/x'",
        "SELECT 1; SELECT 2",
        f"SELECT 1; COPY decision TO '{OUT}/x.csv'",
        "SELEC 1",
        "",
        "-- nothing",
    ],
)
async def test_only_a_select_over_the_views_is_answered(past, cold, sql):
    before = set(os.listdir(OUT))  # noqa: PTH208
    with pytest.raises(InputError):
        await ask(past, cold, sql)
    assert not {"x", "x.csv", "x.db"} & (set(os.listdir(OUT)) - before)  # noqa: PTH208


LONG = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
LARGE = "SELECT list(a.range) FROM range(200000000) a GROUP BY a.range % 2"
UNQUOTED = "SELECT id FROM decision WHERE unit = 'u' AND at < '2026-11-01'"
TABLES = "the tables are decision, event, reward and outcome"


@pytest.mark.parametrize(
    ("sql", "limits", "says"),
    [
        (LONG, {"timeout_s": 0.2}, r"timeout of 0\.2 s"),
        (LARGE, {"memory_mb": 64}, r"(?i)memory"),
        (UNQUOTED, {}, 'quote the column "at"'),
        ("SELECT * FROM decisions", {}, TABLES),
    ],
)
async def test_query_over_its_limits_or_mistyped_says_why(past, cold, sql, limits, says):
    with pytest.raises(InputError, match=says):
        await ask(past, cold, sql, **limits)


async def test_a_file_that_is_gone_is_told(past, cold, days):
    await past.add(days[0], 2)
    done = await compact(past.database, cold, tenants=[past.tenant], until=days[0])
    (cold.root / done.written[0].path).unlink()
    with pytest.raises(DataError, match=r"is missing: .*part-1\.parquet"):
        await ask(past, cold, "SELECT * FROM decision")
    assert len(await ask(past, cold, "SELECT * FROM reward")) == 2


@pytest.mark.parametrize("damage", [lambda _: b"not parquet", lambda whole: whole[:-1], "swapped"])
async def test_a_damaged_file_is_told(past, cold, days, damage):
    """Also a readable file: another day's file in its place."""
    late = days[0] + timedelta(days=1)
    await past.add(days[0], 2)
    await past.add(late, 3)
    done = await compact(past.database, cold, tenants=[past.tenant], until=late)
    first, other = (
        cold.root / one.path for one in done.written if one.dataset == done.written[0].dataset
    )
    whole = first.read_bytes()
    first.write_bytes(other.read_bytes() if damage == "swapped" else damage(whole))
    with pytest.raises(DataError, match=r"part-1\.parquet is damaged: .* compact again"):
        await ask(past, cold, "SELECT count(*) AS n FROM decision")
    first.write_bytes(whole)
    assert await ask(past, cold, "SELECT count(*) AS n FROM decision") == [{"n": 5}]


async def test_without_the_extra_it_says_how_to_get_it(past, cold, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("duckdb"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("steersman.errors.install_hint.import_module", without)
    with pytest.raises(DataError, match=re.escape(how_to_install("data"))):
        await ask(past, cold, "SELECT 1")


async def test_the_same_query_twice_at_once(past, cold, days):
    await past.add(days[0], 5)
    late = days[0] + timedelta(days=1)
    await compact(past.database, cold, tenants=[past.tenant], until=late)
    answers = await asyncio.gather(
        *(ask(past, cold, "SELECT count(*) AS n FROM decision") for _ in range(4))
    )
    assert answers == [[{"n": 5}]] * 4


async def test_what_the_views_are_made_of_cannot_be_named(past, cold, days):
    rows = await past.add(days[0], 6)
    await compact(past.database, cold, tenants=[past.tenant], until=days[-1])
    await past.erase(rows[:2])  # still in the file, until the next compaction
    assert [row["n"] for row in await ask(past, cold, "SELECT count(*) AS n FROM decision")] == [4]
    for name in ("cold_decision", "hot_decision", "erased_decision_decision"):
        with pytest.raises(InputError, match="does not exist"):
            await ask(past, cold, f"SELECT * FROM {name}, decision")
    seen = "(SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'cold%')"
    for sql in (f"SELECT * FROM query_table({seen}), decision", f"FROM decision, query({seen})"):
        with pytest.raises(InputError):
            await ask(past, cold, sql)
