"""PostgreSQL answer cache: limits, isolation and lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.answer_cache import AnswerLimits, TableCache, trim_all_answers, trim_answers
from steersman.db.retention import keep
from steersman.db.tenants import create_tenant
from steersman.errors import DataError, InputError, StoreError
from steersman.platform.postgres.database import Database
from tests.db.rows import connected
from tests.forked import call_in_a_copy
from tests.kept import run

KEY = "ab" * 32
MIB = 1 << 20


def vectors(seed=0, rows=12):
    return np.random.default_rng(seed).standard_normal((rows, 384)).astype(np.float16)


@pytest.fixture(params=["database", "database_15"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def owner(server):
    return run(create_tenant(server, f"t-{uuid4().hex}", actor="test"))


@pytest.fixture
def cache(server, owner):
    with TableCache(server, owner.id) as made:
        yield made


async def _count(database, tenant):
    async with connected(database, "owner", tenant) as connection:
        return await connection.fetchval("SELECT count(*) FROM answer_cache")


def test_what_was_kept_is_found_to_the_bit(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, vectors())
    assert cache.get(KEY).tobytes() == vectors().tobytes()
    cache.put(KEY, vectors(1, rows=1))
    assert cache.get(KEY).shape == (1, 384)
    assert cache.get(KEY[2:]) is None


def test_another_process_finds_it_over_one_connection_that_stays(database, tenant):
    with TableCache(database, tenant.id) as one:
        one.put(KEY, vectors())
    with TableCache(database, tenant.id) as other:
        assert other.get(KEY).tobytes() == vectors().tobytes()
        first = other._connection
        for _ in range(20):
            other.get(KEY)
        assert other._connection is first


def test_it_is_opened_again_after_it_was_closed(cache):
    cache.put(KEY, vectors())
    cache.close()
    cache.close()
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("key", ["", "xyz", "AB" * 32, "ab" * 65])
def test_what_is_no_key_is_refused(cache, key):
    with pytest.raises(InputError, match="hex digits"):
        cache.get(key)
    with pytest.raises(InputError, match="hex digits"):
        cache.put(key, vectors())


def test_vectors_that_are_not_finite_are_not_kept(cache):
    with pytest.raises(InputError, match="finite"):
        cache.put(KEY, np.full((1, 4), np.nan, np.float16))
    assert cache.get(KEY) is None


@pytest.mark.parametrize("value", [b"", b"short", bytes(MIB)])
async def test_what_somebody_else_wrote_is_not_believed(database, tenant, value):
    async with connected(database, "app", tenant.id) as connection:
        await connection.execute(
            "INSERT INTO answer_cache (tenant, key, value) VALUES ($1, $2, $3)",
            *(tenant.id, bytes.fromhex(KEY), value),
        )
    with TableCache(database, tenant.id) as cache:
        with pytest.raises(DataError, match="damaged"):
            await asyncio.to_thread(cache.get, KEY)
        await asyncio.to_thread(cache.put, KEY, vectors())
        assert await asyncio.to_thread(cache.get, KEY) is not None


async def test_the_table_takes_no_value_above_the_limit(database, tenant):
    async with connected(database, "app", tenant.id) as connection:
        with pytest.raises(Exception, match="answer_cache_value_check"):
            await connection.execute(
                "INSERT INTO answer_cache (tenant, key, value) VALUES ($1, $2, $3)",
                *(tenant.id, b"k", bytes(MIB + 1)),
            )


def test_several_threads_take_turns(cache):
    failed = []

    def work(seed):
        try:
            for n in range(10):
                key = f"{seed:02x}{n:02x}"
                cache.put(key, vectors(seed, rows=1))
                assert cache.get(key).tobytes() == vectors(seed, rows=1).tobytes()
        except Exception as error:  # noqa: BLE001 (told by the test's own thread)
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


async def test_it_works_within_a_running_loop(database, tenant):
    # The interrogator does not await, but whoever calls it may.
    with TableCache(database, tenant.id) as cache:
        cache.put(KEY, vectors())
        assert cache.get(KEY) is not None


def test_a_child_that_was_forked_has_a_connection_of_its_own(cache):
    cache.put(KEY, vectors())

    def looks() -> None:
        assert cache.get(KEY) is not None
        cache.close()

    assert call_in_a_copy(looks).wait() == 0
    assert cache.get(KEY) is not None


def test_a_child_closes_nothing_of_its_parent(cache):
    cache.put(KEY, vectors())
    assert call_in_a_copy(cache.close).wait() == 0
    assert cache.get(KEY) is not None


def test_a_server_that_is_gone_is_told_in_time_and_comes_back(database, tenant):
    away = Database("postgresql://nobody@127.0.0.1:9/none")
    with TableCache(away, tenant.id, timeout_s=1.0) as cache:
        begun = time.monotonic()
        with pytest.raises(StoreError, match="doctor"):
            cache.get(KEY)
        assert time.monotonic() - begun < 10
    with TableCache(database, tenant.id) as cache:
        cache.put(KEY, vectors())
        run(_end_connections(database, cache))
        # Whether the loss was noticed before the next question is a matter of time.
        with contextlib.suppress(StoreError):
            cache.get(KEY)
        assert cache.get(KEY) is not None


async def _end_connections(database, cache):
    async with connected(database, None) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend($1)", cache._connection.get_server_pid()
        )


def test_a_server_that_hangs_is_told_in_time(database, tenant):
    with TableCache(database, tenant.id, timeout_s=0.3) as cache:
        cache.put(KEY, vectors())
        run(_while_locked(database, cache))
        assert cache.get(KEY) is not None


async def _while_locked(database, cache):
    async with connected(database, "owner") as connection, connection.transaction():
        await connection.execute("LOCK TABLE answer_cache")
        with pytest.raises(StoreError, match="TimeoutError"):
            await asyncio.to_thread(cache.get, KEY)


async def test_what_nobody_asked_for_goes_and_what_was_used_stays(server, owner):
    now = datetime.now(UTC)
    with TableCache(server, owner.id) as cache:
        for key in ("aa", "bb"):
            await asyncio.to_thread(cache.put, key, vectors())
        async with connected(server, "owner", owner.id) as connection:
            await connection.execute(
                "UPDATE answer_cache SET used_at = $1", now - timedelta(days=29)
            )
        await asyncio.to_thread(cache.get, "bb")  # used now
        async with connected(server, "app", owner.id) as connection:
            later = now + timedelta(days=2)
            assert await trim_answers(connection, AnswerLimits(days=30), now=later) == 1
        assert await asyncio.to_thread(cache.get, "aa") is None
        assert await asyncio.to_thread(cache.get, "bb") is not None


@pytest.mark.slow
async def test_what_was_used_longest_ago_goes_when_there_are_too_many(server, owner):
    with TableCache(server, owner.id) as cache:
        size = len(vectors().tobytes()) + 13
        count = MIB // size + 5
        for n in range(count):
            await asyncio.to_thread(cache.put, f"{n:04x}", vectors())
        assert await trim_all_answers(server, AnswerLimits(max_bytes=MIB)) >= 5
        assert await _count(server, owner.id) == count - 5
        assert await asyncio.to_thread(cache.get, "0004") is None
        assert await asyncio.to_thread(cache.get, "0005") is not None


async def test_a_writer_bounds_its_own_tenant_without_a_keeper(database, tenant, monkeypatch):
    monkeypatch.setattr("steersman.db.answer_cache._TRIMMED_EVERY", 50)
    limits = AnswerLimits(max_bytes=MIB)
    with TableCache(database, tenant.id, limits=limits) as cache:
        for n in range(200):
            await asyncio.to_thread(cache.put, f"{n:04x}", vectors())
        # Beside the calls: nobody waited for it.
        most, until = MIB // len(vectors().tobytes()), time.monotonic() + 60
        while not 50 < await _count(database, tenant.id) <= most + 50:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)


async def test_trimming_that_waits_holds_up_nobody(database, tenant, monkeypatch, caplog):
    monkeypatch.setattr("steersman.db.answer_cache._TRIMMED_EVERY", 2)
    monkeypatch.setattr("steersman.db.answer_cache._TRIM_S", 1.0)
    with TableCache(database, tenant.id) as cache:
        await asyncio.to_thread(cache.put, "aa", vectors())
        async with connected(database, "owner", tenant.id) as other:
            await other.execute("UPDATE answer_cache SET used_at = now() - interval '40 days'")
        async with connected(database, "owner", tenant.id) as other:
            # Trimming would delete this row, and waits for it.
            await other.execute("SELECT 1 FROM answer_cache WHERE key = '\\xaa' FOR UPDATE")
            begun = time.monotonic()
            for key in ("bb", "cc", "dd"):
                await asyncio.to_thread(cache.put, key, vectors())
            assert await asyncio.to_thread(cache.get, "dd") is not None
            assert time.monotonic() - begun < 2.5
            while "cannot trim the cache" not in caplog.text:
                assert time.monotonic() - begun < 20
                await asyncio.sleep(0.05)
        await asyncio.to_thread(cache.put, "ee", vectors())


async def test_two_that_remove_do_not_wait_for_each_other(database, tenant):
    async with (
        connected(database, "app", tenant.id) as one,
        connected(database, "owner", tenant.id) as other,
    ):
        await trim_answers(one, AnswerLimits())
        assert await trim_answers(other, AnswerLimits()) == 0


async def test_retention_removes_old_answers_of_every_tenant(database_alone):
    tenants = [await create_tenant(database_alone, f"t-{n}", actor="test") for n in range(2)]
    for tenant in tenants:
        with TableCache(database_alone, tenant.id) as cache:
            await asyncio.to_thread(cache.put, KEY, vectors())
    now = datetime.now(UTC) + timedelta(days=31)
    assert (await keep(database_alone, days=7, now=now)).answers == 2
    assert (await keep(database_alone, days=7, now=now)).answers == 0


@pytest.mark.parametrize("wrong", [{"days": 0}, {"days": 3651}, {"max_bytes": MIB - 1}])
def test_limits_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match="allowed is"):
        AnswerLimits(**wrong)
