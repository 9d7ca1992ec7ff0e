"""Days without a complete file, or with active writes, stay in PostgreSQL."""

from __future__ import annotations

import asyncio
from itertools import count
from uuid import uuid4

import asyncpg
import pytest

from steersman.db.archive.expire import OldDays
from steersman.db.archive.query import query
from steersman.db.erasure import erase
from steersman.db.tenants import create_tenant
from tests.db.rows import connected, counts


@pytest.mark.parametrize("day", [0, 5])  # with a partition of its own, and without
@pytest.mark.parametrize("dataset", ["decision", "event", "reward"])
@pytest.mark.parametrize(("harm", "said"), [("gone", "missing"), ("damaged", "damaged")])
async def test_what_no_whole_file_has_stays(days, dataset, day, harm, said):
    await days.write(day=day)
    await days.compact()
    (file,) = (days.destination.root / dataset / f"tenant={days.tenant.id}").rglob("*.parquet")
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-1])
    before = await counts(days.database, days.tenant.id)
    kept = await days.keep()
    assert any(f"{file.name} is {said}" in why for why in kept.waiting.values())
    after = await counts(days.database, days.tenant.id)
    kind = "event" if dataset == "event" else "decision"
    assert after[kind] == before[kind]
    file.write_bytes(content)
    kept = await days.keep()
    assert not [name for name in kept.waiting if str(days.tenant.id) in name]
    assert "decision" not in await counts(days.database, days.tenant.id)


REVISED = (
    "INSERT INTO reward (tenant, decision, revision, spec_hash, value, status, terms, final) "
    "VALUES ($1, $2, $4, $3, 0, 'scored', '{}', true)"
)


@pytest.mark.parametrize("day", [0, 5])
async def test_a_reward_on_its_way_is_not_lost_with_its_day(days, day):
    row = await days.write(day=day)
    await days.compact()
    async with connected(days.database, "worker", days.tenant.id) as connection:
        await connection.execute(REVISED, days.tenant.id, row.id, bytes(32), 2)
        await days.keep()  # it waits for nobody, and nobody for it
        assert "decision" not in await counts(days.database, days.tenant.id)
    for left in ({"reward": 1}, {}):
        stored = await query(days.database, days.destination, days.tenant.id, "FROM reward")
        assert sorted(stored["revision"].to_pylist()) == [1, 2]
        await days.compact()
        found = await counts(days.database, days.tenant.id)
        assert {name: found[name] for name in found if name == "reward"} == left
        await days.keep()


async def test_a_reward_that_comes_between_looking_and_deleting_keeps_its_day(days, monkeypatch):
    row = await days.write()
    await days.compact()
    looked = OldDays._why_not

    async def meanwhile(self, tenant, table, day):
        why = await looked(self, tenant, table, day)
        if table == "decision" and tenant == days.tenant.id and not why:
            async with connected(days.database, "worker", tenant) as connection:
                await connection.execute(REVISED, tenant, row.id, bytes(32), 2)
            monkeypatch.undo()
        return why

    monkeypatch.setattr(OldDays, "_why_not", meanwhile)
    kept = await days.keep()
    assert "rows of reward that are not in the cold store" in kept.waiting[days.names(0)[1]]
    assert (await counts(days.database, days.tenant.id))["reward"] == 2
    await days.compact()
    assert days.names(0)[1] in (await days.keep()).dropped


async def test_days_leave_while_a_learner_works(days):
    other = await days.write(day=40)
    for day in (0, 1, 2):
        await days.write(day=day)
    await days.compact()
    stop = asyncio.Event()

    async def learn():
        for revision in count(2):
            if stop.is_set():
                return
            async with connected(days.database, "worker", days.tenant.id) as connection:
                await connection.fetch("SELECT id FROM decision WHERE id = $1", other.id)
                await asyncio.sleep(0.03)
                await connection.execute(*(REVISED, days.tenant.id, other.id, bytes(32), revision))

    learners = asyncio.create_task(learn())
    for _ in range(10):
        await days.keep()
        if not await days.existing():
            break
    stop.set()
    await learners
    assert await days.existing() == []


async def test_a_learner_that_finishes_while_its_work_is_looked_at_keeps_nothing(days, monkeypatch):
    row = await days.write()
    await days.compact()
    await days.queue(row, days.at(0))

    def then_done(asked):
        async def ask(self, query, *args):
            found = await asked(self, query, *args)
            if "FROM work" in query:
                await days.learn()
            return found

        return ask

    for name in ("fetchval", "fetchrow"):
        monkeypatch.setattr(asyncpg.Connection, name, then_done(getattr(asyncpg.Connection, name)))
    kept = await days.keep()
    assert set(days.names(0)) <= set(kept.dropped)


async def test_files_are_looked_at_once_for_all_tenants(days):
    others = [
        await create_tenant(days.database, f"t-{uuid4().hex}", actor="test") for _ in range(5)
    ]
    for tenant in (days.tenant, *others):
        await days.write(tenant, day=0)
    await days.compact(days.tenant, *others)
    tried = []
    drop = OldDays._drop

    async def counted(self, tenants, table, name, day):
        tried.append(name)
        return await drop(self, tenants, table, name, day)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OldDays, "_drop", counted)
        kept = await days.keep()
    for name in days.names(0):
        assert name in kept.dropped
        assert tried.count(name) == 2


async def test_an_erasure_after_the_export_keeps_the_day_until_its_file_is_made_anew(days):
    row = await days.write()
    await days.write()
    await days.compact()
    await erase(days.database, days.tenant.id, decisions=[row.id], reason="r", actor="me")
    await days.keep()
    assert await days.existing() == days.names(0)
    await days.compact()
    await days.keep()
    assert await days.existing() == []
