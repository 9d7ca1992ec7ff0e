"""Events laid out early are the rows that asyncpg's own encoding writes, and get its verdicts."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.store import (
    GroupCommit,
    connect_writer,
    create_tenant,
    log_decisions,
    log_events,
    log_packed_events,
    pack_event,
)
from steersman.wire import new_id
from tests.store.rows import connected, decision, event

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
    writer = await connect_writer(database)
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
    writer = await connect_writer(database)
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


async def test_an_id_that_two_write_at_once_is_stored_once(database, tenant):
    """The second looks before the first has committed, and finds it only when it inserts."""
    (target,) = await _decided(database, tenant)
    rows = [pack_event(event(tenant.id, target.id, id=f"e{n}")) for n in range(4)]
    left, right = [await connect_writer(database) for _ in range(2)]
    transaction = left.transaction()
    await transaction.start()
    assert await log_packed_events(left, rows[:3]) == {}
    late = asyncio.create_task(log_packed_events(right, rows[1:]))
    await asyncio.sleep(0.3)
    assert not late.done()
    await transaction.commit()
    assert await late == dict.fromkeys((row.name for row in rows[1:3]), "replayed")
    for connection in (left, right):
        await connection.close()
    assert await _count(database, tenant) == 4
    assert await _count(database, tenant, "work") == 4


async def test_lanes_that_cross_store_each_event_once_and_wait_for_nobody(database, tenant):
    """Two flushers of two lanes each get the same events in other orders, some of them twice."""
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
            lambda: connect_writer(database),
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
