"""Group commit when the server, a row or a connection fails: each row once, each waiter told."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from steersman.db.decisions import DecisionRow, IdempotencyConflict, log_decisions
from steersman.db.erasure import erase
from steersman.db.group_commit import GroupCommit
from steersman.db.tenants import create_tenant
from steersman.db.write_batches import WriteTimeout
from steersman.wire import new_id
from tests.db.rows import connected, decision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from uuid import UUID

    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database


async def _write(connection: Any, rows: Sequence[DecisionRow]) -> dict[UUID, IdempotencyConflict]:
    return await log_decisions(connection, rows)


@asynccontextmanager
async def _flusher(
    database: Database,
    write: Callable[
        [Any, Sequence[DecisionRow]], Awaitable[dict[UUID, IdempotencyConflict]]
    ] = _write,
    **options: Any,
) -> AsyncIterator[GroupCommit[DecisionRow, IdempotencyConflict]]:
    commits = GroupCommit(lambda: database.connect("app"), write, lambda row: row.id, **options)
    commits.start()
    try:
        yield commits
    finally:
        assert await commits.close() == 0


async def _ids(database: Database, tenant: UUID) -> list[UUID]:
    async with connected(database, tenant=tenant) as connection:
        return [row[0] for row in await connection.fetch("SELECT id FROM decision")]


@pytest.mark.parametrize("bad", [{"action": "a\0b"}, {"context": {"a": "\0"}}, {"p": 2.0}])
async def test_a_row_that_cannot_be_written_pays_alone(
    database: Database, tenant: Tenant, bad: dict[str, Any]
) -> None:
    other = await create_tenant(database, f"o-{new_id().hex}", actor="test")
    rows = [decision([tenant.id, other.id][n % 2]) for n in range(40)]
    rows[17] = replace(rows[17], **bad)
    async with _flusher(database) as commits:
        results = await asyncio.gather(*(commits.submit([row]) for row in rows))
    assert isinstance(results.pop(17)[rows[17].id], Exception)
    assert results == [{}] * 39
    stored = await _ids(database, tenant.id) + await _ids(database, other.id)
    assert sorted(stored) == sorted(row.id for n, row in enumerate(rows) if n != 17)


async def test_an_error_nobody_thought_of_does_not_end_the_flusher(
    database: Database, tenant: Tenant
) -> None:
    failures = iter([LookupError("a bug"), RuntimeError("another")])

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        if error := next(failures, None):
            raise error
        return await log_decisions(connection, rows)

    rows = [decision(tenant.id) for _ in range(3)]
    async with _flusher(database, write) as commits:
        assert await asyncio.gather(*(commits.submit([row]) for row in rows)) == [{}] * 3
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_what_was_committed_before_its_answer_got_lost_is_written_once(
    database: Database, tenant: Tenant
) -> None:
    lost = iter([True, True])

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        refused = await log_decisions(connection, rows)
        if next(lost, False):
            raise ConnectionResetError
        return refused

    rows = [decision(tenant.id, idempotency_key=f"k{n}", body_hash=b"h" * 16) for n in range(5)]
    async with _flusher(database, write) as commits:
        assert await asyncio.gather(*(commits.submit([row]) for row in rows)) == [{}] * 5
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


@pytest.mark.parametrize("options", [{}, {"lanes": 3, "max_rows": 16}])
async def test_connections_that_are_cut_lose_and_double_nothing(
    database: Database, tenant: Tenant, options: dict[str, int]
) -> None:
    rng = random.Random(5)
    cutter = await database.connect(None)
    rows = [decision(tenant.id) for _ in range(600)]
    written: list[Any] = []
    cuts = 0

    async with _flusher(database, **options) as commits:
        for place in range(0, len(rows), 60):
            waiting = [commits.submit([row]) for row in rows[place : place + 60]]
            await asyncio.sleep(rng.uniform(0, 0.01))
            cuts += await cutter.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND query LIKE '%log_decisions(%'"
            )
            written += await asyncio.gather(*waiting)
    await cutter.close()
    assert cuts >= 5
    assert written == [{}] * len(rows)
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_crossing_keys_of_two_processes_get_one_decision_each(
    database: Database, tenant: Tenant
) -> None:
    keys = [f"k{n}" for n in range(100)]
    one = [decision(tenant.id, idempotency_key=key, body_hash=b"h" * 16) for key in keys]
    two = [decision(tenant.id, idempotency_key=key, body_hash=b"h" * 16) for key in reversed(keys)]
    rows, waiting = [], []
    async with _flusher(database) as left, _flusher(database) as right:
        for first, second in zip(one, two, strict=True):
            rows += [first, second]
            waiting += [left.submit([first]), right.submit([second])]
        verdicts = await asyncio.gather(*waiting)
    named: dict[str, set[UUID]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        winner = verdict[row.id].earlier if verdict else row.id
        named.setdefault(row.idempotency_key, set()).add(winner)
    assert {len(ids) for ids in named.values()} == {1}
    stored = await _ids(database, tenant.id)
    assert sorted(stored) == sorted(identifier for ids in named.values() for identifier in ids)


async def test_ids_are_taken_in_one_order_however_a_batch_is_handed_over(
    database_alone: Database,
) -> None:
    """Clients may bring the same ids twice: two batches that cross would wait for each other."""
    tenants = [await create_tenant(database_alone, f"o-{new_id().hex}", actor="test") for _ in "ab"]
    now = datetime.now(UTC).timestamp()
    ids = sorted((new_id(now) for _ in range(20)), reverse=True)
    rows = [decision(tenants[n % 2].id, id=identifier) for n, identifier in enumerate(ids)]
    connection = await database_alone.connect("app")
    assert await log_decisions(connection, rows) == {}
    await connection.close()
    async with connected(database_alone, None) as all_seeing:
        # Of one day, so in one table, where nothing was before.
        found = await all_seeing.fetch("SELECT tenant, id FROM steersman.decision ORDER BY ctid")
    assert [tuple(row) for row in found] == sorted((row.tenant, row.id) for row in rows)


async def test_a_second_flush_begins_only_when_much_is_waiting(
    database: Database, tenant: Tenant
) -> None:
    begun: asyncio.Queue[int] = asyncio.Queue()
    go = asyncio.Event()

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        if rows:
            begun.put_nowait(len(rows))
            await go.wait()
        return await log_decisions(connection, rows)

    rows = [decision(tenant.id) for _ in range(40)]
    async with _flusher(database, write, lanes=2, max_rows=16) as commits:
        waiting = [commits.submit([rows[0]])]
        assert await begun.get() == 1
        waiting += [commits.submit([row]) for row in rows[1:8]]
        await asyncio.sleep(0.1)
        assert begun.empty()
        waiting.append(commits.submit([rows[8]]))
        assert await begun.get() == 8
        waiting += [commits.submit([row]) for row in rows[9:]]
        assert commits.depth == len(rows)
        go.set()
        assert await asyncio.gather(*waiting) == [{}] * len(rows)
    assert commits.depth == 0
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_no_flush_holds_more_rows_than_it_may(database: Database, tenant: Tenant) -> None:
    sizes: list[int] = []

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        sizes.append(len(rows))
        return await log_decisions(connection, rows)

    rows = [decision(tenant.id) for _ in range(70)]
    async with _flusher(database, write, max_rows=16) as commits:
        parts = [rows[:1], rows[1:41], rows[41:50], rows[50:60], *([row] for row in rows[60:])]
        assert await asyncio.gather(*(commits.submit(part) for part in parts)) == [{}] * len(parts)
    assert max(sizes) <= 16
    assert sum(sizes) == len(rows)
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_what_is_too_much_at_once_is_written_in_smaller_parts(
    database: Database, tenant: Tenant
) -> None:
    """A server ends the connection over a message that is too large for it, and says no more."""
    sizes: list[int] = []

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        sizes.append(len(rows))
        if len(rows) > 5:
            raise ConnectionResetError
        return await log_decisions(connection, rows)

    rows = [decision(tenant.id) for _ in range(80)]
    async with _flusher(database, write, max_rows=16) as commits:
        whole = commits.submit(rows[:16])
        parts = [commits.submit([row]) for row in rows[16:]]
        assert await asyncio.wait_for(asyncio.gather(whole, *parts), 20) == [{}] * 65
    assert sizes[:5] == [0, 16, 8, 4, 4]
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_a_row_that_ends_every_connection_holds_up_no_others(
    database: Database, tenant: Tenant
) -> None:
    rows = [decision(tenant.id) for _ in range(6)]
    ill = True

    async def write(
        connection: Any, batch: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        if ill and any(row.id == rows[0].id for row in batch):
            raise ConnectionResetError
        return await log_decisions(connection, batch)

    async with _flusher(database, write, max_rows=4) as commits:
        first, *others = [commits.submit([row]) for row in rows]
        assert await asyncio.wait_for(asyncio.gather(*others), 20) == [{}] * 5
        assert not first.done()
        ill = False
        assert await first == {}
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_lane_that_cannot_connect_holds_no_rows(
    database: Database, tenant: Tenant, *, hangs: bool
) -> None:
    connected, flushes = 0, []

    async def connect() -> Any:
        nonlocal connected
        connected += 1
        if connected == 1:
            return await database.connect("app")
        if hangs:
            await asyncio.Event().wait()
        raise OSError("too many connections")

    def on_flush(_rows: int, _seconds: float, answered: bool) -> None:
        flushes.append(answered)

    rows = [decision(tenant.id) for _ in range(100)]
    commits = GroupCommit(
        connect, _write, lambda row: row.id, lanes=2, max_rows=16, on_flush=on_flush
    )
    commits.start()
    waiting = [commits.submit([row]) for row in rows]
    assert await asyncio.wait_for(asyncio.gather(*waiting), 8) == [{}] * len(rows)
    assert commits.available
    assert set(flushes) == {True}
    assert connected > 1
    assert await asyncio.wait_for(commits.close(), 5) == 0
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_what_another_lane_could_not_write_is_written_before_the_end(
    database: Database, tenant: Tenant
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    cuts = iter([True])

    async def write(
        connection: Any, rows: Sequence[DecisionRow]
    ) -> dict[UUID, IdempotencyConflict]:
        if len(rows) == 1 and not go.is_set():
            await begun.wait()
        elif len(rows) == 8:
            begun.set()
            await go.wait()
            raise ValueError("halves")
        elif len(rows) == 4 and rows[0].id == ours[5].id and next(cuts, False):
            raise ConnectionResetError
        return await log_decisions(connection, rows)

    ours = [decision(tenant.id) for _ in range(9)]
    commits = GroupCommit(
        lambda: database.connect("app"), write, lambda row: row.id, lanes=2, max_rows=16
    )
    commits.start()
    first = commits.submit([ours[0]])
    await asyncio.sleep(0.05)
    rest = [commits.submit([row]) for row in ours[1:]]
    assert await first == {}
    closing = asyncio.create_task(commits.close())
    await asyncio.sleep(0.1)
    go.set()
    assert await closing == 0
    assert await asyncio.gather(*rest) == [{}] * 8
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in ours)


async def test_a_row_whose_waiter_left_is_still_written(database: Database, tenant: Tenant) -> None:
    lock = await database.connect(None)
    row = decision(tenant.id)
    async with _flusher(database) as commits:
        transaction = lock.transaction()
        await transaction.start()
        await lock.execute("LOCK TABLE steersman.decision IN ACCESS EXCLUSIVE MODE")
        assert isinstance(await commits.submit([row], within_s=0.05), WriteTimeout)
        await transaction.rollback()
    await lock.close()
    assert await _ids(database, tenant.id) == [row.id]


async def test_a_connection_whose_peer_vanished_is_given_up(
    database: Database, tenant: Tenant
) -> None:
    watcher = await database.connect(None)
    rows = [decision(tenant.id) for _ in range(2)]
    async with _flusher(database, limit_s=0.5) as commits:
        assert await commits.submit([rows[0]]) == {}
        hung = await watcher.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND query LIKE '%log_decisions(%'"
        )
        os.kill(hung, signal.SIGSTOP)
        try:
            assert await asyncio.wait_for(commits.submit([rows[1]]), 10) == {}
        finally:
            os.kill(hung, signal.SIGCONT)
    await watcher.close()
    assert sorted(await _ids(database, tenant.id)) == sorted(row.id for row in rows)


async def test_a_lock_that_is_held_longer_than_a_flush_may_take_leaves_nothing_behind(
    database: Database, tenant: Tenant
) -> None:
    lock = await database.connect(None)
    row = decision(tenant.id)
    async with _flusher(database, limit_s=0.2) as commits:
        transaction = lock.transaction()
        await transaction.start()
        await lock.execute("LOCK TABLE steersman.decision IN ACCESS EXCLUSIVE MODE")
        waiting = commits.submit([row])
        await asyncio.sleep(1.5)
        assert not commits.available
        others = await lock.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%log_decisions(%' "
            "AND state = 'active' AND pid <> pg_backend_pid()"
        )
        assert others <= 2
        await transaction.rollback()
        assert await waiting == {}
    await lock.close()
    assert await _ids(database, tenant.id) == [row.id]


async def test_a_record_that_comes_late_does_not_bring_back_what_was_erased(
    database: Database, tenant: Tenant
) -> None:
    then = datetime.now(UTC) - timedelta(hours=1)
    erased, kept = (decision(tenant.id, id=new_id(then.timestamp()), at=then) for _ in range(2))
    connection = await database.connect("app")
    await log_decisions(connection, [erased])
    await erase(database, tenant.id, reason="asked for", actor="test", decisions=[erased.id])
    await log_decisions(connection, [erased, kept])
    await connection.close()
    assert await _ids(database, tenant.id) == [kept.id]
