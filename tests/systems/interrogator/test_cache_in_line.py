"""The first cache that works answers; one that dies midway costs its answers and nothing else."""

from __future__ import annotations

import logging
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.answer_cache import TableCache
from steersman.db.answer_cache_redis import RedisCache
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import Database
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.cache_chain import CacheInLine, open_answer_cache
from tests.redis_server import redis_server

KEY = "ab" * 32
VECTORS = np.arange(8, dtype=np.float16).reshape(2, 4)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Frail:
    """A cache of somebody else that works or not, as it is told."""

    def __init__(self):
        self.kept = MemoryCache()
        self.broken = None
        self.asked = 0

    def get(self, key):
        self._fail()
        return self.kept.get(key)

    def put(self, key, vectors):
        self._fail()
        self.kept.put(key, vectors)

    def _fail(self):
        self.asked += 1
        if self.broken is not None:
            raise self.broken


def test_a_miss_of_the_first_is_a_miss():
    first, second = MemoryCache(), MemoryCache()
    second.put(KEY, VECTORS)
    cache = CacheInLine({"first": first, "second": second})
    assert cache.get(KEY) is None
    cache.put(KEY, VECTORS)
    assert cache.get(KEY) is VECTORS
    assert (cache.hits, cache.misses, cache.fallbacks) == ({"first": 1}, {"first": 1}, {})
    assert len(second) == 1


def test_one_that_fails_is_left_alone_and_tried_again_later(caplog):
    clock, first = Clock(), Frail()
    cache = CacheInLine({"first": first, "memory": MemoryCache()}, retry_s=5, clock=clock)
    cache.put(KEY, VECTORS)
    first.broken = StoreError("gone")
    for _ in range(10):
        assert cache.get(KEY) is None
    assert first.asked == 2  # the put, and one look
    assert (cache.serving, cache.fallbacks) == ("memory", {"first": 10})
    for now in (5.0, 10.0):
        clock.now = now
        cache.get(KEY)
        cache.get(KEY)
    assert first.asked == 4  # a probe each time
    first.broken = None
    clock.now = 15.0
    assert cache.get(KEY) is VECTORS
    assert cache.serving == "first"
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2
    assert "left alone and tried again every 5 s: gone" in said[0]
    assert said[1] == "the answer cache first works again"


def test_one_that_refuses_some_calls_is_not_left_alone(caplog):
    pytest.importorskip("redis")
    with redis_server("--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        full = RedisCache(server.url, uuid4(), timeout_s=5)
        with CacheInLine({"redis": full, "memory": MemoryCache()}) as cache:
            for _ in range(20):
                cache.put(KEY, VECTORS)
                assert cache.get(KEY) is VECTORS  # what Redis refused lies in memory
            assert cache.get("cd" * 32) is None
            assert (cache.serving, cache.refused) == ("redis", {"redis": 20})
            assert (cache.fallbacks, cache.misses) == ({"redis": 20}, {"redis": 1})
            assert cache.hits == {"memory": 20}
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2  # the first and the tenth
    assert "refused 1 calls: Redis rejects SET" in said[0]


def test_when_none_works_nothing_is_kept_and_nothing_fails():
    first = Frail()
    first.broken = StoreError("gone")
    cache = CacheInLine({"first": first})
    cache.put(KEY, VECTORS)
    assert cache.get(KEY) is None
    assert (cache.serving, cache.fallbacks) == (None, {"first": 2})


@pytest.mark.parametrize("wrong", [InputError("no key"), KeyError("a bug")])
def test_other_errors_pass_and_close_a_probe(wrong):
    clock, first = Clock(), Frail()
    cache = CacheInLine({"first": first}, clock=clock)
    first.broken = StoreError("gone")
    cache.get(KEY)
    clock.now, first.broken = 60.0, wrong
    with pytest.raises(type(wrong)):
        cache.get(KEY)
    first.broken = None
    cache.put(KEY, VECTORS)
    assert cache.get(KEY) is VECTORS


@pytest.mark.parametrize("wrong", [({},), ({"m": MemoryCache()}, 0.0), ({"m": MemoryCache()}, -1)])
def test_no_cache_and_no_pause_are_refused(wrong):
    caches, *retry = wrong
    with pytest.raises(InputError, match="one or more caches"):
        CacheInLine(caches, **({"retry_s": retry[0]} if retry else {}))


def test_without_a_redis_named_postgresql_is_first(database, tenant, monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    with open_answer_cache(database, tenant.id) as cache:
        assert cache.names == ("postgresql", "memory")
        assert cache.get(KEY) is None
        cache.put(KEY, VECTORS)
        np.testing.assert_array_equal(cache.get(KEY), VECTORS)
        assert (cache.hits, cache.fallbacks) == ({"postgresql": 1}, {})
    with TableCache(database, tenant.id) as table:
        assert table.get(KEY) is not None


def test_redis_that_dies_midway_is_stood_in_for_and_comes_back(database, tenant, caplog):
    pytest.importorskip("redis")
    clock = Clock()
    with redis_server() as server:
        caches = {
            "redis": RedisCache(server.url, tenant.id, timeout_s=5),
            "postgresql": TableCache(database, tenant.id, timeout_s=30),
        }
        with CacheInLine(caches, clock=clock) as cache:
            cache.put(KEY, VECTORS)
            assert cache.get(KEY) is not None
            server.kill()
            assert cache.get(KEY) is None  # PostgreSQL never had it
            cache.put(KEY, VECTORS)
            assert cache.get(KEY) is not None
            assert (cache.serving, cache.fallbacks) == ("postgresql", {"redis": 3})
            server.start()
            clock.now = 6.0
            assert cache.get(KEY) is None  # Redis kept nothing on disk
            assert cache.serving == "redis"
            assert cache.hits == {"redis": 1, "postgresql": 1}
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 2


def test_a_damaged_answer_is_a_miss_that_heals(tenant, caplog):
    redis = pytest.importorskip("redis")
    with redis_server() as server, redis.Redis.from_url(server.url) as raw:
        caches = {"redis": RedisCache(server.url, tenant.id, timeout_s=5)}
        with CacheInLine(caches) as cache:
            raw.set(f"steersman:answer:{tenant.id}:{KEY}", b"nonsense")
            assert cache.get(KEY) is None
            assert (cache.damaged, cache.serving) == ({"redis": 1}, "redis")
            cache.put(KEY, VECTORS)
            assert cache.get(KEY) is not None
    assert "damaged" in caplog.text


def test_redis_is_first_where_it_is_named(database, tenant, monkeypatch):
    pytest.importorskip("redis")
    with redis_server() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        with open_answer_cache(database, tenant.id) as cache:
            assert cache.names == ("redis", "postgresql", "memory")
            cache.put(KEY, VECTORS)
        with TableCache(database, tenant.id) as table:
            assert table.get(KEY) is None


def test_a_name_that_is_no_redis_is_refused(database, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "http://localhost")
    with pytest.raises(InputError, match="REDIS_URL"):
        open_answer_cache(database, uuid4())


def test_memory_stands_in_when_no_server_answers(monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    away = Database("postgresql://nobody@127.0.0.1:9/none")
    with open_answer_cache(away, uuid4()) as cache:
        cache.put(KEY, VECTORS)
        assert cache.get(KEY) is VECTORS
        assert (cache.serving, cache.fallbacks) == ("memory", {"postgresql": 2})
