"""A running service follows its corpora: how they are indexed, and which of them are gone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest

from steersman.api.routes.search import load_corpus
from steersman.db.tenants import create_tenant
from steersman.errors import CorpusError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.embedders import Embedders
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.loaded_corpus import find_place, load, one_view
from steersman.retrieval.pgvector_index import PgvectorIndex
from steersman.retrieval.results import SearchSettings
from steersman.serving.corpus_cache import CorpusCache
from tests.api.test_searching import fill, knows, later, search
from tests.db.corpora import owned
from tests.retrieval.corpora import corpora
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")


class Held:
    """A corpus of twenty documents, and what a service holds of it."""

    def __init__(self, database, tenant):
        self.database, self.tenant = database, tenant
        self.corpora = corpora(database, tenant.id)
        load = partial(load_corpus, database, Embedders(own={"hashed": HashedWords()}))
        self.cache = CorpusCache(load)

    async def searched(self):
        """Return what the vectors are searched by, and what a search did without."""
        connection = await self.database.connect("app")
        try:
            async with one_view(connection, self.tenant.id):
                place = await find_place(connection, self.tenant.id, "large", None)
        finally:
            await connection.close()
        opened = await self.cache.get(self.tenant.id, place)
        if isinstance(opened.loaded.vectors, PgvectorIndex):
            opened.loaded.vectors._timeout_s = 30.0  # the machine may be busy
        find = partial(opened.searcher.search, "Text number 3", SearchSettings(k=1))
        found = await asyncio.to_thread(find)
        return type(opened.loaded.vectors), found.degraded

    async def settled(self):
        """Wait until nothing is being loaded."""
        await asyncio.gather(*self.cache._loading.values())


@asynccontextmanager
async def holding(database):
    tenant = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    made = Held(database, tenant)
    documents = [Document(f"d{number}", f"Text number {number}.") for number in range(20)]
    await made.corpora.add("large", documents, embedder="hashed")
    try:
        yield made
    finally:
        await made.cache.close()


async def test_what_is_held_is_searched_as_it_is_indexed_now(database_alone):
    async with holding(database_alone) as held:
        assert await held.searched() == (ExactIndex, ())
        await held.corpora.index("large", hnsw=True)
        assert await held.searched() == (ExactIndex, ())  # while the other is loaded
        await held.settled()
        assert await held.searched() == (PgvectorIndex, ())
        await held.corpora.index("large", hnsw=True)  # another table under the same name
        assert await held.searched() == (PgvectorIndex, ())
        await held.settled()
        await held.corpora.index("large", hnsw=False)
        # What is held cannot be searched by meaning any more, so it does not stand in.
        assert await held.searched() == (ExactIndex, ())
        assert len(held.cache) == 1


@pytest.mark.parametrize("when", ["before it is found", "after it is found", "before it is read"])
async def test_an_index_made_anew_while_it_is_read_loses_nothing(database_alone, when):
    async with holding(database_alone) as held:
        at = held.database, held.tenant.id
        await held.corpora.index("large", hnsw=True)
        connection = await held.database.connect("app")
        try:
            async with one_view(connection, held.tenant.id):
                await connection.fetchval("SELECT count(*) FROM corpus")  # what is seen is settled
                if when == "before it is found":
                    await held.corpora.index("large", hnsw=True)
                place = await find_place(connection, held.tenant.id, "large", None)
                if when == "after it is found":
                    await held.corpora.index("large", hnsw=True)
                if when != "before it is read":
                    loaded = await load(connection, *at, place)
                    # The new one is empty in this view, so all are compared.
                    assert isinstance(loaded.vectors, ExactIndex)
                    assert len(loaded.vectors) == 20
            if when == "before it is read":
                await held.corpora.index("large", hnsw=True)
                async with one_view(connection, held.tenant.id):
                    loaded = await load(connection, *at, place)
                assert isinstance(loaded.vectors, PgvectorIndex)
        finally:
            await connection.close()


async def test_passages_without_a_vector_are_told_whatever_the_index(database_alone):
    async with holding(database_alone) as held:
        async with owned(held.database, held.tenant.id) as connection:
            await connection.execute(
                "DELETE FROM corpus_vector WHERE tenant = $1 AND hash IN (SELECT hash "
                "FROM corpus_passage WHERE tenant = $1 AND doc_id IN ('d3', 'd4'))",
                held.tenant.id,
            )
        assert await held.corpora.index("large", hnsw=True) == 18
        assert (await held.searched())[1] == ("dense",)
        with pytest.raises(
            CorpusError, match="2 of 20 passages have no vector in its index"
        ) as told:
            await held.corpora.open("large")
        assert "--hnsw`, which deletes no data" in str(told.value)


async def test_what_was_dropped_is_held_a_minute_at_most(serving, database, tenant):
    corpus = await fill(database, tenant)
    await corpus.add("other", [Document("a", "Another text.")], embedder="hashed")
    async with serving() as s:
        knows(s)
        assert (await search(s)).status == 200
        assert (await search(s, corpus="other")).status == 200
        await corpus.drop("manuals")
        assert len(s.service.corpora) == 2
        later(s, 61.0)
        assert (await search(s, corpus="other")).status == 200
        assert len(s.service.corpora) == 1
        assert (await search(s)).status == 404
