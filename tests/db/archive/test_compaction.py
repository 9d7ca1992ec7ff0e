"""Compaction: file content, late rows, erasures and repeats."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from steersman.db.archive.compaction import compact
from steersman.db.archive.destination import Directory
from steersman.db.archive.query import query
from steersman.db.decisions import log_decisions
from steersman.db.tenants import create_tenant
from steersman.errors import DataError, StoreError
from steersman.platform.postgres.database import as_tenant


def files(cold):
    return sorted(path.relative_to(cold.root).as_posix() for path in cold.root.rglob("*.parquet"))


async def stored_keys(past, cold):
    """Return the keys of all cold and hot rows."""
    parts = {"decision": "id", "event": "id", "reward": "decision || '/' || revision"}
    found = {}
    for name, key in parts.items():
        sql = f"SELECT {key} AS k FROM {name}"
        table = await query(past.database, cold, past.tenant, sql)
        found[name] = sorted(table["k"].to_pylist())
    return found


async def run(past, cold, day):
    return await compact(past.database, cold, tenants=[past.tenant], until=day)


async def test_every_row_is_in_the_file_of_its_day_as_it_was(past, cold, days):
    rows = [row for day in days for row in await past.add(day, 40)]
    done = await run(past, cold, days[1])
    assert [export.generation for export in done.written] == [1] * 6
    assert len(files(cold)) == 6
    for day in days[:2]:
        path = cold.root / f"decision/tenant={past.tenant}/day={day}/part-1.parquet"
        table = pq.read_table(path, partitioning=None)
        assert table["id"].to_pylist() == sorted(str(r.id) for r in rows if r.at.date() == day)
        by_id = {row["id"]: row for row in table.to_pylist()}
        for row in (row for row in rows if row.at.date() == day):
            found = by_id[str(row.id)]
            assert found["p"] == row.p
            assert found["u"] == row.u
            assert found["x"] == row.x
            assert found["eligible"] == row.eligible
            assert found["at"] == row.at
            assert found["spec_hash"] == row.spec_hash.hex()
            assert f"what is {row.update_seq}?" in found["context"]


async def test_exports_say_how_many_rows_and_which_bytes(past, cold, days):
    await past.add(days[0], 20)
    done = await run(past, cold, days[0])
    for export in done.written:
        content = (cold.root / export.path).read_bytes()
        assert hashlib.sha256(content).digest() == export.sha256
        assert pq.read_metadata(cold.root / export.path).num_rows == export.rows == 20


async def test_the_same_rows_give_the_same_bytes_at_another_place(past, cold, days, tmp_path):
    await past.add(days[0], 30)
    done = await run(past, cold, days[0])
    connection = await past.database.connect("owner")
    async with as_tenant(connection, past.tenant):
        await connection.execute("DELETE FROM cold_export")
    await connection.close()
    other = type(cold)(tmp_path / "other")
    again = await run(past, other, days[0])
    assert [e.sha256 for e in again.written] == [e.sha256 for e in done.written]


async def test_a_repeat_without_news_does_nothing(past, cold, days):
    for day in days:
        await past.add(day, 5)
    await run(past, cold, days[-1])
    before = {path: (cold.root / path).stat().st_mtime_ns for path in files(cold)}
    again = await run(past, cold, days[-1])
    assert again.written == ()
    assert again.unchanged == 9
    assert again.removed == 0
    assert before == {path: (cold.root / path).stat().st_mtime_ns for path in files(cold)}


async def test_late_rows_make_a_new_generation_that_replaces_the_older(past, cold, days):
    await past.add(days[0], 10)
    await past.add(days[1], 10)
    await run(past, cold, days[-1])
    await past.add(days[0], 3)
    assert await stored_keys(past, cold) == past.keys()  # before the next run, too
    done = await run(past, cold, days[-1])
    assert {(e.dataset, e.generation, e.rows) for e in done.written} == {
        ("decision", 2, 13),
        ("event", 2, 13),
        ("reward", 2, 13),
    }
    assert done.removed == 3
    assert sum("part-2" in path for path in files(cold)) == 3
    assert len(files(cold)) == 6
    assert await stored_keys(past, cold) == past.keys()


async def test_a_revised_reward_is_news_of_the_decisions_day(past, cold, days):
    rows = await past.add(days[0], 4)
    await run(past, cold, days[-1])
    await past.reward([rows[0].id], revision=2)
    done = await run(past, cold, days[-1])
    assert [(e.dataset, e.rows) for e in done.written] == [("reward", 5)]


async def test_rows_that_retention_dropped_stay_in_the_cold_store(past, cold, days):
    rows = await past.add(days[0], 10)
    await run(past, cold, days[-1])
    await past.forget(days[0])
    done = await run(past, cold, days[-1])
    assert done.written == ()
    assert await stored_keys(past, cold) == past.keys()
    late = await past.add(days[0], 2)
    assert await stored_keys(past, cold) == past.keys()
    done = await run(past, cold, days[-1])
    assert [e.rows for e in done.written] == [12, 12, 12]
    path = cold.root / done.written[0].path
    found = pq.read_table(path, partitioning=None)["id"].to_pylist()
    assert found == sorted(str(row.id) for row in [*rows, *late])
    assert await stored_keys(past, cold) == past.keys()


@pytest.mark.parametrize("dropped", [False, True], ids=["hot", "dropped"])
async def test_erased_decisions_leave_with_their_events_and_rewards(past, cold, days, dropped):
    await past.add(days[0], 25)
    rows = await past.add(days[1], 25)
    await run(past, cold, days[-1])
    if dropped:
        await past.forget(days[1])
    whole = {event.episode for event in past.events if event.decision is None}
    gone = [row for row in rows if row.episode in whole][:1]
    gone += [row for row in rows if row.episode not in whole][:5]
    assert len(gone) == 6
    await past.erase(gone, named=not dropped)
    if not dropped:  # else the episodes are known from the next run on
        assert await stored_keys(past, cold) == past.keys()
    done = await run(past, cold, days[-1])
    assert {(e.dataset, e.day, e.generation, e.rows) for e in done.written} == {
        (name, days[1], 2, 19) for name in ("decision", "event", "reward")
    }
    assert await stored_keys(past, cold) == past.keys()
    assert len(files(cold)) == 6
    assert (await run(past, cold, days[-1])).written == ()


async def test_what_was_erased_before_the_first_run_is_never_written(past, cold, days):
    rows = await past.add(days[0], 3)
    await past.erase(rows)
    done = await run(past, cold, days[-1])
    assert done.written == ()
    assert files(cold) == []


async def test_erasing_a_whole_day_leaves_an_empty_file(past, cold, days):
    rows = await past.add(days[0], 3)
    await run(past, cold, days[-1])
    await past.erase(rows)
    done = await run(past, cold, days[-1])
    assert [e.rows for e in done.written] == [0, 0, 0]
    assert await stored_keys(past, cold) == {"decision": [], "event": [], "reward": []}


async def test_tenants_lie_apart_and_one_may_be_done_alone(past, past_of, cold, days):
    other = past_of((await create_tenant(past.database, f"o-{past.tenant}", actor="test")).id)
    await past.add(days[0], 4)
    await other.add(days[0], 6)
    await run(past, cold, days[-1])
    assert all(f"tenant={past.tenant}/" in path for path in files(cold))
    with suppress(StoreError):  # other tests lost files of their tenants on purpose
        await compact(past.database, cold, until=days[-1])
    assert any(f"tenant={other.tenant}/" in path for path in files(cold))
    assert await stored_keys(past, cold) == past.keys()
    assert await stored_keys(other, cold) == other.keys()


async def test_two_runs_at_once_take_turns(past, cold, days):
    for day in days:
        await past.add(day, 20)
    done = await asyncio.gather(*(run(past, cold, days[-1]) for _ in range(3)))
    assert sorted(len(each.written) for each in done) == [0, 0, 9]
    assert await stored_keys(past, cold) == past.keys()


async def test_a_lost_file_is_told_and_hinders_nobody_else(past, cold, days):
    await past.add(days[0], 4)
    await past.add(days[1], 4)
    done = await run(past, cold, days[-1])
    (cold.root / done.written[0].path).unlink()
    await past.add(days[0], 1)
    await past.add(days[1], 1)
    with pytest.raises(StoreError, match="1 days not written") as caught:
        await run(past, cold, days[-1])
    assert done.written[0].path in str(caught.value)
    with pytest.raises(StoreError) as caught:
        await run(past, cold, days[-1])
    assert "1 days" in str(caught.value)  # and all others are done


async def test_a_lost_file_is_written_again_while_its_rows_are_here(past, cold, days):
    await past.add(days[0], 4)
    done = await run(past, cold, days[-1])
    for export in done.written:
        (cold.root / export.path).unlink()
    again = await run(past, cold, days[-1])
    assert [(e.dataset, e.rows, e.generation) for e in again.written] == [
        (e.dataset, e.rows, 2) for e in done.written
    ]
    assert await stored_keys(past, cold) == past.keys()
    once_more = await run(past, cold, days[-1])
    assert (once_more.written, once_more.unchanged) == ((), len(done.written))


async def test_a_lost_file_that_alone_had_the_rows_is_told_every_time(past, cold, days):
    await past.add(days[0], 4)
    done = await run(past, cold, days[-1])
    await past.forget(days[0])
    assert (await run(past, cold, days[-1])).unchanged == len(done.written)
    (cold.root / done.written[0].path).unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="1 days not written") as caught:
            await run(past, cold, days[-1])
        assert f"{done.written[0].path} is missing from the cold store" in str(caught.value)


@pytest.mark.parametrize("hot", [False, True])
async def test_what_a_changed_file_says_is_not_taken_over(past, cold, days, hot):
    """Changed bits are often readable and would be copied into the next file."""
    await past.add(days[0], 20)
    export = (await run(past, cold, days[-1])).written[0]
    file = cold.root / export.path
    whole, table = file.read_bytes(), pq.read_table(file, partitioning=None)
    place = table.schema.get_field_index("p")
    pq.write_table(table.set_column(place, table.schema.field(place), [[0.75] * 20]), file)
    if not hot:
        await past.forget(days[0])
    await past.add(days[0], 1)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"part-1\.parquet is damaged; restore it") as caught:
            await run(past, cold, days[-1])
        assert "1 days not written" in str(caught.value)
    file.write_bytes(whole)
    (written,) = (await run(past, cold, days[-1])).written
    stored = pq.read_table(cold.root / written.path, partitioning=None)
    assert dict(zip(stored["id"].to_pylist(), stored["p"].to_pylist(), strict=True)) == {
        str(row.id): row.p for row in past.decisions
    }


class KeepsAll(Directory):
    """Destination without permission to delete."""

    def remove(self, path):
        raise DataError(f"the bucket of the cold store failed at {path}: access denied")


async def test_a_file_that_cannot_be_removed_hinders_nobody_else(past, past_of, cold, days):
    other = await create_tenant(past.database, f"t-{uuid4().hex}", actor="test")
    await past.add(days[0], 4)
    await run(past, cold, days[-1])
    await past.add(days[0], 1)
    keeps = KeepsAll(cold.root)
    theirs = past_of(other.id)
    await theirs.add(days[0], 2)
    both = sorted([past.tenant, other.id])
    for _ in range(2):
        with pytest.raises(StoreError, match="obsolete files not removed") as caught:
            await compact(past.database, keeps, tenants=both, until=days[-1])
        assert "access denied" in str(caught.value)
        assert "days not written" not in str(caught.value)
        assert await stored_keys(past, cold) == past.keys()
        assert await stored_keys(theirs, cold) == theirs.keys()
    done = await compact(past.database, cold, tenants=both, until=days[-1])
    assert done.removed > 0


async def test_days_are_those_of_utc(past, cold, days):
    rows = await past.add(days[0], 1)
    midnight = rows[0].at.replace(hour=0, minute=0, second=0, microsecond=0)
    for at in (midnight - timedelta(milliseconds=1), midnight, midnight + timedelta(days=1)):
        past.rng.random()
        row = past.decision(at)
        connection = await past.database.connect("app")
        await log_decisions(connection, [row])
        await connection.close()
        past.decisions.append(row)
    done = await run(past, cold, days[0])
    assert [(e.day, e.rows) for e in done.written if e.dataset == "decision"] == [
        (days[0] - timedelta(days=1), 1),
        (days[0], 2),
    ]
    assert await stored_keys(past, cold) == past.keys()
