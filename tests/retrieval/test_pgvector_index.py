"""pgvector finds what comparing all vectors finds, within one corpus of one tenant."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.audit import history
from steersman.db.tenants import create_tenant
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.documents.document import Document
from steersman.retrieval.pgvector_index import PgvectorIndex
from steersman.retrieval.results import SearchSettings
from tests.kept import run
from tests.retrieval.corpora import corpora
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")
COUNT = 1_500


def documents(count, seed=0):
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{number}" for number in range(300)]
    return [
        Document(f"d{number:05d}", " ".join(rng.choice(vocabulary, 12).tolist()))
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def built(database_alone):
    """Return a corpus as it was before it was indexed, and as it is now."""

    async def make():
        tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
        corpus = corpora(database_alone, tenant.id, HashedWords(size=48))
        await corpus.add("large", documents(COUNT), embedder="hashed")
        exact = await corpus.open("large")
        assert await corpus.index("large", hnsw=True) == COUNT
        indexed = await corpus.open("large")
        indexed.loaded.vectors._timeout_s = 30.0  # the machine may be busy
        return corpus, exact, indexed

    return run(make())


def test_it_finds_what_comparing_all_finds(built):
    _, exact, indexed = built
    assert isinstance(indexed.loaded.vectors, PgvectorIndex)
    assert len(indexed.loaded.vectors) == len(exact.loaded.vectors) == COUNT
    embedder = HashedWords(size=48)
    shared = 0
    for query in embedder.encode([one.text[:20] for one in documents(40, seed=1)]):
        right, cosines = exact.loaded.vectors.search(query, 10)
        found, scores = indexed.loaded.vectors.search(query, 10)
        assert len(found) == 10
        assert (np.diff(scores) <= 0).all()
        shared += len(set(found.tolist()) & set(right.tolist()))
        assert scores[0] == pytest.approx(cosines[0], abs=2e-3)
    assert shared / 400 >= 0.95


def test_more_than_there_are_gives_all(built):
    _, _, indexed = built
    query = HashedWords(size=48).encode(["w1 w2"])[0]
    found, _ = indexed.loaded.vectors.search(query, 100)
    assert len(set(found.tolist())) == 100


def test_bad_vectors_and_numbers_are_told(built):
    _, _, indexed = built
    index = indexed.loaded.vectors
    with pytest.raises(InputError, match="dimension 48"):
        index.search(np.ones(3, np.float32), 5)
    with pytest.raises(InputError, match="k is 0"):
        index.search(np.ones(48, np.float32), 0)
    with pytest.raises(InputError, match="breadth is 0"):
        PgvectorIndex(None, None, None, 1, size=2, hashes=[], breadth=0)


def test_several_threads_take_turns(built):
    _, _, indexed = built
    queries = HashedWords(size=48).encode([one.text for one in documents(16)])
    found = [None] * 16

    def ask(place):
        found[place] = indexed.loaded.vectors.search(queries[place], 1)[0].tolist()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[place] for place in range(16)]


async def test_a_corpus_that_is_dropped_is_searched_by_words(database_alone):
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    corpus = corpora(database_alone, tenant.id)
    await corpus.add("large", documents(30), embedder="hashed")
    await corpus.index("large", hnsw=True)
    opened = await corpus.open("large")
    text = documents(30)[3].text
    settings = SearchSettings("hybrid", k=1)
    before = await asyncio.to_thread(opened.searcher.search, text, settings)
    assert before.degraded == ()
    await corpus.drop("large")
    after = await asyncio.to_thread(opened.searcher.search, text, settings)
    assert after.degraded == ("dense",)
    assert after.hits[0].passage.doc_id == before.hits[0].passage.doc_id == "d00003"


async def test_what_is_added_is_indexed_and_near_duplicates_are_passed_over(database_alone):
    tenant = await create_tenant(database_alone, f"t-{uuid4().hex}", actor="test")
    corpus = corpora(database_alone, tenant.id)
    some = documents(40)
    await corpus.add("large", some, embedder="hashed", near=0.8)
    await corpus.index("large", hnsw=True)
    same = [Document(f"copy{n:02d}", f"{some[0].text} more{n}") for n in range(12)]
    await corpus.add("large", same)
    opened = await corpus.open("large")
    query = HashedWords().encode([some[0].text])[0]
    found, _ = await asyncio.to_thread(opened.loaded.vectors.search, query, 10)
    assert len(found) == 10
    assert len(opened.loaded.passages) < 52
    await corpus.index("large", hnsw=False)
    assert not isinstance((await corpus.open("large")).loaded.vectors, PgvectorIndex)
    await corpus.index("large", hnsw=False)  # changes nothing, and so is no act
    connection = await database_alone.connect("app")
    async with as_tenant(connection, tenant.id):
        rows = await history(connection, limit=20)
    await connection.close()
    told = [row.detail["vectors"] for row in reversed(rows) if row.action == "corpus.index"]
    assert told == [40, 0]


def test_a_store_that_is_away_is_told_and_no_thread_is_left(built):
    corpus, _, indexed = built
    index = indexed.loaded.vectors
    away = PgvectorIndex(
        *(type(corpus._database)("postgresql://x@127.0.0.1:9/x"), corpus._tenant, uuid4(), 1),
        size=2,
        hashes=[b"a"],
    )
    with pytest.raises(StoreError):
        away.search(np.array([1.0, 0.0], np.float32), 1)
    away.close()
    count = threading.active_count
    index.search(np.eye(48, dtype=np.float32)[0], 1)
    index.close()
    assert len(index.search(np.eye(48, dtype=np.float32)[0], 1)[0]) == 1
    index.close()
    del away
    gc.collect()
    assert count() < 50


def test_one_that_does_not_answer_is_left_alone_for_a_moment(built):
    _, _, indexed = built
    now = [0.0]
    right = indexed.loaded.vectors
    index = PgvectorIndex(
        *(right._database, right._tenant, uuid4(), 1),
        size=48,
        hashes=list(right._places),
        clock=lambda: now[0],
    )
    query = np.eye(48, dtype=np.float32)[0]
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot search"):
            index.search(query, 1)
        index._corpus = right._corpus  # it is there now
    now[0] = 5.0
    assert len(index.search(query, 1)[0]) == 1
    index.close()


def test_nobody_waits_long_for_a_turn(built):
    right = built[2].loaded.vectors
    index = PgvectorIndex(
        *(right._database, right._tenant, right._corpus, 1),
        size=48,
        hashes=list(right._places),
        timeout_s=0.05,
    )
    with index._turn, pytest.raises(StoreError, match="timeout after"):
        index.search(np.eye(48, dtype=np.float32)[0], 1)


def test_a_connection_that_nobody_needs_is_closed_and_opened_again(built):
    right = built[2].loaded.vectors
    index = PgvectorIndex(
        *(right._database, right._tenant, right._corpus, 1),
        size=48,
        hashes=list(right._places),
        timeout_s=30.0,
        idle_s=0.05,
    )
    for _ in range(2):
        assert len(index.search(np.eye(48, dtype=np.float32)[0], 1)[0]) == 1
        held = time.monotonic() + 30
        while index._line._connection is not None:
            assert time.monotonic() < held
            time.sleep(0.01)
    index.close()
