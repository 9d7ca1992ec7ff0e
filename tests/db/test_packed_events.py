"""Encoded events equal asyncpg's encoding and get the same results."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.db.decisions import log_decisions
from steersman.db.group_commit import GroupCommit
from steersman.db.packed_events import event_pipeline, log_events, log_packed_events, pack_event
from steersman.db.tenants import create_tenant
from steersman.db.write_batches import WriteTimeout
from steersman.wire import new_id
from tests.db.rows import connected, decision, event

AT = datetime(2026, 3, 1, 12, 30, 0, 123457, tzinfo=UTC)
BARE: dict[str, Any] = {"outcomes": None, "body": None, "action_taken": None, "traceparent": None}
FULL: dict[str, Any] = {
    "type": "task_result",
    "at": AT - timedelta(days=40, microseconds=1),
    "received_at": AT,
    "outcomes": {"ä": 1.5, "b": -0.0},
    "action_taken": "größer",
    "body": {"a": [1, None, {"b": "ü:\\"}]},
    "body_hash": b"\x00\xff" * 8,
    "traceparent": "00-1-2-01",
}


async def _decided(database, *tenants, **changes):
    rows = [decision(tenant.id, **changes) for tenant in tenants]
    async with connected(database) as connection:
        await log_decisions(connection, rows)
    return rows


async def _count(database, tenant, table="event"):
    async with connected(database, tenant=tenant.id) as connection:
        return await connection.fetchval(f"SELECT count(*) FROM {table}")


@pytest.mark.parametrize("columns", [BARE, FULL])
@pytest.mark.parametrize("of_episode", [False, True])
async def test_they_are_the_same_rows(database, tenant, columns, of_episode):
    (target,) = await _decided(database, tenant, episode="é")
    about = {"decision": None, "episode": "é"} if of_episode else {"decision": target.id}
    ours = event(tenant.id, target.id, id="e1", **columns)._replace(**about)
    async with connected(database) as plain:
        assert await log_events(plain, [ours._replace(id="e2")]) == {}
    writer = await event_pipeline(database).connect()
    assert await log_packed_events(writer, [pack_event(ours)]) == {}
    await writer.close()
    async with connected(database, tenant=tenant.id) as connection:
        texts = dict(await connection.fetch("SELECT t.id, t::text FROM event AS t"))
        work = await connection.fetchval("SELECT count(*) FROM work")
    assert texts["e1"].replace(",e1,", ",e2,", 1) == texts["e2"]
    assert work == (0 if of_episode or columns is BARE else 2)


async def test_each_is_told_what_became_of_it(database, tenant):
    other = await create_tenant(database, f"o-{new_id().hex}", actor="test")
    target, foreign = await _decided(database, tenant, other)
    first, second = (event(tenant.id, target.id, id=name) for name in ("a", "b"))
    theirs = event(other.id, foreign.id, id="a")
    writer = await event_pipeline(database).connect()
    assert await log_packed_events(writer, [pack_event(first)]) == {}
    changed = second._replace(body_hash=b"x" * 16)
    rows = [
        first,
        second,
        theirs,
        event(tenant.id, foreign.id, id="c"),
        event(tenant.id, new_id(), id="d"),
        event(tenant.id, None, id="f")._replace(episode="none such"),
    ]
    packed = [pack_event(row) for row in rows]
    told = await log_packed_events(writer, packed)
    assert told == {
        packed[0].name: "replayed",
        **dict.fromkeys((one.name for one in packed[3:]), "unknown"),
    }
    again = [pack_event(row) for row in (changed, theirs)]
    assert await log_packed_events(writer, again) == {
        again[0].name: "conflict",
        again[1].name: "replayed",
    }
    await writer.close()
    assert [await _count(database, one) for one in (tenant, other)] == [2, 1]


@pytest.mark.parametrize("packed", [False, True])
async def test_ids_are_taken_in_one_order_however_a_batch_is_handed_over(database_alone, packed):
    """Two batches with crossing ids would deadlock. The table is empty before."""
    names = [f"t-{new_id().hex}" for _ in range(2)]
    tenants = [await create_tenant(database_alone, name, actor="test") for name in names]
    targets = await _decided(database_alone, *tenants)
    rows = [event(t.tenant, t.id, id=f"e{n}") for n in range(9, -1, -1) for t in targets]
    if packed:
        writer = await event_pipeline(database_alone).connect()
        assert await log_packed_events(writer, [pack_event(row) for row in rows]) == {}
        await writer.close()
    else:
        async with connected(database_alone) as plain:
            assert await log_events(plain, rows) == {}
    async with connected(database_alone, None) as all_seeing:
        query = (
            "SELECT tenant, key FROM steersman.idempotency WHERE tenant = ANY ($1) ORDER BY ctid"
        )
        found = await all_seeing.fetch(query, [tenant.id for tenant in tenants])
    assert [tuple(row) for row in found] == sorted((row.tenant, row.id) for row in rows)


async def test_an_id_that_two_write_at_once_is_stored_once(database, tenant):
    """The second transaction checks before the first commits, and finds the row on insert."""
    (target,) = await _decided(database, tenant)
    made = [event(tenant.id, target.id, id=f"e{n}") for n in range(4)]
    rows = [pack_event(row) for row in made]
    right = await event_pipeline(database).connect()
    async with connected(database) as left:
        async with left.transaction():
            assert await log_events(left, made[:3]) == {}
            late = asyncio.create_task(log_packed_events(right, rows[1:]))
            await asyncio.sleep(0.3)
            assert not late.done()
        assert await late == dict.fromkeys((row.name for row in rows[1:3]), "replayed")
    await right.close()
    assert await _count(database, tenant) == 4
    assert await _count(database, tenant, "work") == 4


async def test_what_somebody_has_locked_keeps_nobody_else_waiting(database, tenant):
    """A locked id of one tenant delays only its own event."""
    other = await create_tenant(database, f"o-{new_id().hex}", actor="test")
    mine, theirs = await _decided(database, tenant, other)
    made = event(tenant.id, mine.id, id="locked")
    commits = GroupCommit(
        event_pipeline(database).connect, log_packed_events, lambda row: row.name, lanes=2
    )
    commits.start()
    async with connected(database) as left:
        async with left.transaction():
            assert await log_events(left, [made]) == {}
            rows = [event(other.id, theirs.id, id=f"e{n}") for n in range(600)]
            locked = commits.submit([pack_event(made)])
            told = await asyncio.gather(*(commits.submit([pack_event(row)]) for row in rows))
            impatient = commits.submit([pack_event(made._replace(id="late"))], within_s=30)
            hurried = commits.submit([pack_event(made)], within_s=1.5)
            assert await impatient == {}
            assert isinstance(await hurried, WriteTimeout)
            assert not locked.done()
            assert commits.available
        assert list((await locked).values()) == ["replayed"]
    assert told == [{}] * 600
    assert await commits.close() == 0
    assert await _count(database, other) == 600


async def test_lanes_that_cross_store_each_event_once_and_wait_for_nobody(database, tenant):
    """Two flushers of two lanes get the same events in different orders, some twice."""
    other = await create_tenant(database, f"o-{new_id().hex}", actor="test")
    targets = await _decided(database, tenant, other)
    rows = [
        pack_event(event(target.tenant, target.id, id=f"e{n:03}"))
        for n in range(200)
        for target in targets
    ]
    rng = random.Random(8)

    async def flush():
        commits = GroupCommit(
            event_pipeline(database).connect,
            log_packed_events,
            lambda row: row.name,
            max_rows=16,
            lanes=2,
        )
        commits.start()
        mine = rng.sample(rows, len(rows)) + rng.sample(rows, 50)
        told = await asyncio.gather(*(commits.submit([row]) for row in mine))
        assert await commits.close() == 0
        assert commits.depth == 0
        return told

    told = [verdict for part in await asyncio.gather(flush(), flush()) for verdict in part]
    assert sum(verdict == {} for verdict in told) == len(rows)
    assert {said for verdict in told for said in verdict.values()} == {"replayed"}
    assert await _count(database, tenant) + await _count(database, other) == len(rows)
