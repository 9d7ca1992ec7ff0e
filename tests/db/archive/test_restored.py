"""Unregistered files after restoring an old backup: no row is lost."""

from __future__ import annotations

from datetime import date
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steersman.db.archive.compaction import compact, sorted_out
from steersman.db.archive.ledger import Export
from steersman.db.backup import backup, restore
from steersman.db.erasure import erase
from steersman.db.migrate import migrate
from steersman.db.tenants import create_tenant
from steersman.errors import StoreError
from tests.db.archive.test_compaction import stored_keys
from tests.db.rows import connected, counts
from tests.db.test_backup import execute, on

KINDS = ("decision", "event", "reward")
DAY = date(2026, 3, 1)


async def run(past, place, days):
    return await compact(past.database, place, tenants=[past.tenant], until=days[-1])


async def named(past):
    """Return the tenant's rows of `cold_export`."""
    async with connected(past.database, "owner", past.tenant) as connection:
        return await connection.fetch("SELECT * FROM cold_export")


async def rewind(past, rows):
    """Reset `cold_export` to an earlier state and drop the rows that were hot."""
    async with connected(past.database, "owner", past.tenant) as connection:
        await connection.execute("DELETE FROM cold_export")
        await connection.executemany(
            "INSERT INTO cold_export VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            [tuple(row) for row in rows],
        )
    for day in {event.received_at.date() for event in past.events}:
        await past.forget(day)


def parts(past, place):
    """Return a tenant's file names by dataset."""
    return {
        kind: [path.rpartition("/")[2] for path in place.paths(f"{kind}/tenant={past.tenant}")]
        for kind in KINDS
    }


def copied(place, source, target):
    """Copy a file to another path, as a run would."""
    draft = place.scratch() / "copy"
    draft.write_bytes(place.fetch(source, place.scratch()).read_bytes())
    place.publish(draft, target)


async def settled(past, place, days, generation):
    """Check that each row exists once, and that a repeat does nothing."""
    assert await stored_keys(past, place) == past.keys()
    assert parts(past, place) == {kind: [f"part-{generation}.parquet"] for kind in KINDS}
    again = await run(past, place, days)
    assert (again.written, again.removed) == ((), 0)


async def test_files_of_days_that_nothing_is_named_of_are_taken_in(past, place, days):
    await past.add(days[0], 6)
    await run(past, place, days)
    await rewind(past, [])
    done = await run(past, place, days)
    assert [(e.generation, e.rows) for e in done.written] == [(2, 6)] * 3
    assert done.removed == 3
    await settled(past, place, days, 2)


async def test_a_newer_generation_is_taken_in_where_the_one_named_is_gone(past, place, days):
    await past.add(days[0], 5)
    await run(past, place, days)
    before = await named(past)
    await past.add(days[0], 3)
    await run(past, place, days)
    await rewind(past, before)
    done = await run(past, place, days)
    assert [(e.generation, e.rows) for e in done.written] == [(3, 8)] * 3
    await settled(past, place, days, 3)


async def test_hot_named_and_newer_rows_become_one_file(past, place, days):
    await past.add(days[0], 4)
    done = await run(past, place, days)
    before = await named(past)
    for export in done.written:
        copied(place, export.path, f"kept/{export.dataset}")
    await past.add(days[0], 3)
    await run(past, place, days)
    for export in done.written:  # a reader was at it: it was not removed
        copied(place, f"kept/{export.dataset}", export.path)
    await rewind(past, before)
    await past.add(days[0], 2)
    done = await run(past, place, days)
    assert [(e.generation, e.rows) for e in done.written] == [(3, 9)] * 3
    await settled(past, place, days, 3)


async def test_what_was_erased_does_not_come_back_from_an_unnamed_file(past, place, days):
    rows = await past.add(days[0], 25)
    await run(past, place, days)
    whole = {event.episode for event in past.events if event.decision is None}
    gone = [row for row in rows if row.episode in whole][:1]
    gone += [row for row in rows if row.episode not in whole][:2]
    assert len(gone) == 3
    await rewind(past, [])
    await past.erase(gone, named=False)  # only the file knows the episode
    done = await run(past, place, days)
    assert [e.rows for e in done.written] == [22] * 3
    await settled(past, place, days, 2)


async def test_what_a_killed_run_left_is_removed_once_all_its_rows_count(past, place, days):
    await past.add(days[0], 4)
    done = await run(past, place, days)
    path = done.written[0].path
    copied(place, path, path.replace("part-1", "part-2"))
    assert await stored_keys(past, place) == past.keys()
    done = await run(past, place, days)
    assert (done.written, done.unchanged, done.removed) == ((), 3, 1)
    await settled(past, place, days, 1)


async def test_the_next_generation_is_one_that_nobody_has_used(past, place, days):
    await past.add(days[0], 4)
    done = await run(past, place, days)
    for export in done.written:
        copied(place, export.path, export.path.replace("part-1", "part-7"))
    await past.add(days[0], 2)
    done = await run(past, place, days)
    assert [(e.generation, e.rows) for e in done.written] == [(8, 6)] * 3
    assert done.removed == 6
    await settled(past, place, days, 8)


@pytest.mark.parametrize("kind", ["half", "foreign", "unsorted"])
async def test_a_file_that_cannot_be_taken_in_is_kept_and_told(past, place, days, kind):
    for day in days:
        await past.add(day, 3)
    done = await run(past, place, days[:2])
    good = place.fetch(done.written[0].path, place.scratch())
    table = pq.read_table(good, partitioning=None)
    draft = place.scratch() / "left"
    if kind == "half":
        draft.write_bytes(good.read_bytes()[:-100])
    else:
        odd = pa.table({"n": [1]}) if kind == "foreign" else table.take([2, 1, 0])
        pq.write_table(odd, draft)
    left = done.written[0].path.replace("part-1", "part-4")
    place.publish(draft, left)
    await past.add(days[0], 1)
    for _ in range(2):
        with pytest.raises(StoreError, match="1 days not written") as caught:
            await run(past, place, days)
        assert left in str(caught.value)
        assert "move it out of the cold store" in str(caught.value)
        assert left in place.paths("decision")
        assert await stored_keys(past, place) == past.keys()
    place.remove(left)  # as it says
    done = await run(past, place, days)
    assert [(e.dataset, e.day, e.rows) for e in done.written] == [("decision", days[0], 4)]


def export(generation):
    path = f"decision/t/day={DAY}/part-{generation}.parquet"
    return Export(UUID(int=0), "decision", DAY, generation, path, 1, b"", "")


@pytest.mark.parametrize(
    ("there", "counts", "replaced", "ahead"),
    [
        ([1, 2], 2, [1], []),
        ([1, 2, 3], 2, [1], [3]),
        ([1, 2], None, [], [1, 2]),
        ([10, 9], None, [], [9, 10]),
        ([1], 2, [], []),  # the named one is lost: what it replaced is better than nothing
        ([1, 3], 2, [], [1, 3]),
        ([], 2, [], []),
    ],
)
def test_only_what_a_file_that_is_there_has_replaced_is_removed(there, counts, replaced, ahead):
    paths = [export(number).path for number in there]
    found = sorted_out("decision/t", paths, {DAY: export(counts)} if counts else {})
    assert found[0] == [export(number).path for number in replaced]
    assert [file.generation for file in found[1].get(DAY, [])] == ahead


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "part-0.parquet",
        "part-01.parquet",
        "part-2.parquet.old",
        f"part-{10**9}.parquet",
    ],
)
def test_files_that_are_not_ours_are_left_alone(name):
    for day in (DAY, "2026-13-01"):
        assert sorted_out("decision/t", [f"decision/t/day={day}/{name}"], {}) == ([], {})


async def test_a_restored_backup_loses_nothing_that_the_cold_store_has(
    database, past_of, cold, days, tmp_path
):
    name = f"restored_{uuid4().hex[:12]}"
    await execute(database, f"CREATE DATABASE {name}")
    alone = on(database, name)
    try:
        await migrate(alone)
        past = past_of((await create_tenant(alone, "acme", actor="test")).id)
        past.database = alone
        rows = await past.add(days[0], 8)
        await run(past, cold, days)
        await past.forget(days[0])
        await backup(alone, tmp_path / "dump")
        await past.erase(rows[:1])  # its file is written anew, and the one that counted removed
        await past.add(days[1], 5)
        await run(past, cold, days)
        await past.forget(days[1])
        await restore(alone, tmp_path / "dump", replace=True)
        assert "decision" not in await counts(alone, past.tenant)
        await run(past, cold, days)
        assert await stored_keys(past, cold) == past.keys()
        await erase(alone, past.tenant, decisions=[rows[0].id], reason="again", actor="me")
        await run(past, cold, days)
        assert await stored_keys(past, cold) == past.keys()
    finally:
        await execute(database, f"DROP DATABASE {name} WITH (FORCE)")
