"""Revisions in memory: bounded, loaded once, and replaced without a stop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from steersman.errors import DataError
from steersman.serving.corpus_cache import CorpusCache, Key

TENANT = UUID(int=1)


def place(corpus, revision, *, snapshot=None, erasures=0, hnsw=None):
    row = SimpleNamespace(id=corpus, erasures=erasures)
    return SimpleNamespace(corpus=row, revision=revision, snapshot=snapshot, hnsw=hnsw)


class Loads:
    """Loads what has a size; keeps in mind what was asked for."""

    def __init__(self, size=10):
        self.size = size
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None

    async def __call__(self, tenant, where):
        self.asked.append((tenant, where.corpus.id, where.revision))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return SimpleNamespace(loaded=SimpleNamespace(bytes=self.size, place=where))


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_was_used_longest_ago_goes_first():
    loads = Loads()
    cache = CorpusCache(loads, max_bytes=30)
    a, b, c, d = (uuid4() for _ in range(4))
    for one in (a, b, c):
        await cache.get(TENANT, place(one, 1))
    await cache.get(TENANT, place(a, 1))
    await cache.get(TENANT, place(d, 1))
    assert (len(cache), cache.bytes, cache.counts.evicted) == (3, 30, 1)
    await cache.get(TENANT, place(a, 1))
    assert len(loads.asked) == 4
    await cache.get(TENANT, place(b, 1))  # it went
    assert len(loads.asked) == 5
    await cache.close()


async def test_what_a_newer_revision_replaced_goes_before_others():
    cache = CorpusCache(Loads(), max_bytes=25)
    a, b = uuid4(), uuid4()
    await cache.get(TENANT, place(b, 1))
    await cache.get(TENANT, place(a, 1))
    await cache.get(TENANT, place(a, 2))
    await settled()
    assert {(key.corpus, key.revision) for key in cache._held} == {(b, 1), (a, 2)}
    await cache.close()


async def test_the_old_revision_serves_while_the_new_one_is_loaded():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    old = await cache.get(TENANT, place(corpus, 1))
    loads.gate.clear()
    for _ in range(3):
        assert await cache.get(TENANT, place(corpus, 2)) is old
    await settled()
    assert len(loads.asked) == 2  # once for all three
    loads.gate.set()
    await settled()
    assert (await cache.get(TENANT, place(corpus, 2))).loaded.place.revision == 2
    await cache.close()


async def test_a_snapshot_and_what_was_erased_are_never_answered_by_an_older_one():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    named = await cache.get(TENANT, place(corpus, 1, snapshot="v1"))
    assert named.loaded.place.revision == 1
    # What a snapshot named months ago does not stand in for the newest revision.
    assert (await cache.get(TENANT, place(corpus, 2))).loaded.place.revision == 2
    assert (await cache.get(TENANT, place(corpus, 3, snapshot="v3"))).loaded.place.revision == 3
    other = await cache.get(UUID(int=2), place(corpus, 4))
    assert other.loaded.place.revision == 4
    assert len(cache) == 4
    erased = await cache.get(TENANT, place(corpus, 5, erasures=1))
    assert erased.loaded.place.revision == 5
    # What holds what was erased is held no longer, and the other tenant's is.
    assert {(key.tenant, key.revision) for key in cache._held} == {(TENANT, 5), (UUID(int=2), 4)}
    await cache.close()


async def test_what_a_snapshot_named_first_serves_as_the_newest_once_it_was_asked_for_so():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    named = await cache.get(TENANT, place(corpus, 1, snapshot="v1"))
    assert await cache.get(TENANT, place(corpus, 1)) is named
    loads.gate.clear()
    assert await cache.get(TENANT, place(corpus, 2)) is named
    await settled()
    loads.gate.set()
    await settled()
    assert (await cache.get(TENANT, place(corpus, 2))).loaded.place.revision == 2
    await cache.close()


async def test_what_a_snapshot_names_stays_when_a_newer_revision_comes():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    old = await cache.get(TENANT, place(corpus, 1))
    assert await cache.get(TENANT, place(corpus, 1, snapshot="v1")) is old
    for revision in (2, 3):
        await cache.get(TENANT, place(corpus, revision))
        await settled()
    assert {key.revision for key in cache._held} == {1, 3}
    assert await cache.get(TENANT, place(corpus, 1, snapshot="v1")) is old
    assert len(loads.asked) == 3
    await cache.close()


async def test_what_is_indexed_otherwise_is_another_and_one_whose_index_is_gone_does_not_stand_in():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    exact = await cache.get(TENANT, place(corpus, 1))
    assert await cache.get(TENANT, place(corpus, 1, hnsw=7)) is exact
    await settled()
    indexed = await cache.get(TENANT, place(corpus, 1, hnsw=7))
    assert (indexed.loaded.place.hnsw, len(cache)) == (7, 1)
    again = await cache.get(TENANT, place(corpus, 2))
    assert (again.loaded.place.hnsw, again.loaded.place.revision) == (None, 2)
    await cache.close()


async def test_what_is_held_of_corpora_that_are_gone_is_let_go_of():
    now = [0.0]
    cache = CorpusCache(Loads(), clock=lambda: now[0])
    gone, there = uuid4(), uuid4()
    assert not cache.wants_look(TENANT)
    for one in (gone, there):
        await cache.get(TENANT, place(one, 1))
    await cache.get(UUID(int=2), place(gone, 1))
    assert not cache.wants_look(TENANT)
    now[0] = 60.0
    assert cache.wants_look(TENANT)
    cache.keep_only(TENANT, {there})
    assert not cache.wants_look(TENANT)
    assert [(key.tenant, key.corpus) for key in cache._held] == [
        (TENANT, there),
        (UUID(int=2), gone),
    ]
    await cache.close()


async def test_many_that_ask_at_once_load_it_once_and_one_may_go_away():
    loads = Loads()
    loads.gate.clear()
    cache = CorpusCache(loads)
    where = place(uuid4(), 1)
    asked = [asyncio.create_task(cache.get(TENANT, where)) for _ in range(5)]
    await settled()
    asked[0].cancel()
    await settled()
    loads.gate.set()
    answers = await asyncio.gather(*asked[1:])
    assert len({id(answer) for answer in answers}) == 1
    assert len(loads.asked) == 1
    await cache.close()


async def test_a_failure_is_told_to_who_asked_and_tried_again():
    now = [0.0]
    loads = Loads()
    cache = CorpusCache(loads, clock=lambda: now[0])
    corpus = uuid4()
    old = await cache.get(TENANT, place(corpus, 1))
    loads.error = DataError("no")
    assert await cache.get(TENANT, place(corpus, 2)) is old
    await settled()
    assert cache.counts.failures == 1
    for _ in range(3):  # not again at once
        assert await cache.get(TENANT, place(corpus, 2)) is old
        await settled()
    assert cache.counts.failures == 1
    now[0] = 6.0
    loads.error = None
    await cache.get(TENANT, place(corpus, 2))
    await settled()
    assert (await cache.get(TENANT, place(corpus, 2))).loaded.place.revision == 2
    loads.error = DataError("no")
    with pytest.raises(DataError):
        await cache.get(TENANT, place(corpus := uuid4(), 1))
    count = len(loads.asked)
    with pytest.raises(DataError):  # told again, and not asked for
        await cache.get(TENANT, place(corpus, 1))
    assert len(loads.asked) == count
    loads.error = None
    now[0] = 11.0
    assert (await cache.get(TENANT, place(corpus, 1))).loaded.place.revision == 1
    await cache.close()


async def test_who_found_its_place_before_a_commit_does_not_bring_an_older_revision_back():
    loads = Loads()
    cache = CorpusCache(loads)
    corpus = uuid4()
    loads.gate.clear()
    late = asyncio.create_task(cache.get(TENANT, place(corpus, 1)))
    await settled()
    newest = asyncio.create_task(cache.get(TENANT, place(corpus, 2)))
    await settled()
    loads.gate.set()
    assert [(await one).loaded.place.revision for one in (late, newest)] == [1, 2]
    assert await cache.get(TENANT, place(corpus, 1)) is await newest
    assert len(loads.asked) == 2
    # One that ends to be loaded after a newer one.
    opened = await cache._loaded(Key(TENANT, corpus, 0, 1), place(corpus, 1))
    assert opened.loaded.place.revision == 1
    assert [key.revision for key in cache._held] == [2]
    assert await cache.get(TENANT, place(corpus, 2)) is await newest
    await cache.close()


async def test_what_is_larger_than_the_cache_is_kept_until_another_comes():
    cache = CorpusCache(Loads(size=100), max_bytes=30)
    a, b = uuid4(), uuid4()
    await cache.get(TENANT, place(a, 1))
    assert len(cache) == 1
    await cache.get(TENANT, place(b, 1))
    assert [key.corpus for key in cache._held] == [b]
    await cache.close()
