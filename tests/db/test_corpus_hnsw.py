"""pgvector index of a corpus: isolation, build and removal."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

from steersman.db.backup import backup, restore
from steersman.db.corpora import corpus_of, corpus_size, create_corpus, drop_corpus, sweep_corpora
from steersman.db.corpus_documents import erase_documents
from steersman.db.corpus_hnsw import (
    build_hnsw,
    drop_hnsw,
    ensure_pgvector,
    extend_hnsw,
    has_hnsw,
    hnsw_id,
    indexed_by_hnsw,
    search_hnsw,
)
from steersman.db.corpus_vectors import write_vectors
from steersman.db.tenants import create_tenant
from steersman.errors import CorpusError, InputError, StoreError
from steersman.platform.postgres.database import Database
from tests.db.corpora import digest, document, owned, put
from tests.db.rows import connected
from tests.db.schema import SCHEMA, column
from tests.kept import run
from tests.retrieval.real_vectors import real_vectors

SIZE = 32
COUNT = 2_000


def unit(rng, count):
    rows = rng.standard_normal((count, SIZE))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


async def filled(database, *, seed=0, count=COUNT, vectors=None):
    """Return a new tenant with a corpus of vectors, its texts and the vectors."""
    tenant = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    vectors = unit(np.random.default_rng(seed), count) if vectors is None else vectors
    texts = [f"{seed:02d}-passage{number:06d}" for number in range(len(vectors))]
    async with owned(database, tenant.id) as connection:
        corpus = await create_corpus(
            *(connection, tenant.id, "large"), chunking={}, embedder=("x", "x-1", vectors.shape[1])
        )
        rows = {digest(text): row for text, row in zip(texts, vectors, strict=True)}
        await write_vectors(connection, tenant.id, "x-1", rows)
    await put(database, tenant.id, "large", *(document(text, text, width=16) for text in texts))
    return tenant, corpus, texts, vectors


async def indexed(database, tenant, corpus, **options):
    async with owned(database, tenant.id) as connection:
        held = await corpus_of(connection, tenant.id, "large", hold=True)
        return await build_hnsw(
            *(connection, tenant.id, corpus.id), dimension=held.dimension, **options
        )


async def nearest(database, tenant, corpus, revision, vector, k=10):
    async with connected(database, "app", tenant.id) as connection:
        return await search_hnsw(connection, tenant.id, corpus.id, revision, vector, k)


@pytest.fixture(scope="module")
def large(database_alone):
    run(ensure_pgvector(database_alone))
    run(ensure_pgvector(database_alone))  # twice is once
    made = run(filled(database_alone))
    assert run(indexed(database_alone, *made[:2])) == COUNT
    return database_alone, *made


async def test_what_is_found_is_what_comparing_all_finds(large):
    database, tenant, corpus, texts, vectors = large
    queries = unit(np.random.default_rng(7), 50)
    hits = 0
    for query in queries:
        found = await nearest(database, tenant, corpus, 1, query)
        assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
        exact = set(np.argsort(-(vectors @ query))[:10].tolist())
        hits += len({digest(texts[place]) for place in exact} & {key for key, _ in found})
    assert hits / 500 >= 0.95
    (key, score), *_ = await nearest(database, tenant, corpus, 1, vectors[5], 1)
    assert key == digest(texts[5])
    assert score == pytest.approx(1.0, abs=1e-3)


def random_vectors():
    rows = np.random.default_rng(4).standard_normal((1_560, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[60:], rows[:60]


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [real_vectors, random_vectors])
async def test_vectors_of_384_numbers_are_found(database_alone, vectors):
    await ensure_pgvector(database_alone)
    rows, queries = vectors()
    tenant, corpus, texts, _ = await filled(database_alone, seed=11, vectors=rows)
    await indexed(database_alone, tenant, corpus)
    hits = 0
    for query in queries:
        found = {key for key, _ in await nearest(database_alone, tenant, corpus, 1, query)}
        exact = np.argsort(-(rows @ query))[:10].tolist()
        hits += len(found & {digest(texts[place]) for place in exact})
    assert hits / (10 * len(queries)) >= 0.95


async def test_the_graph_is_walked_and_not_the_table(large):
    database, tenant, corpus, _, vectors = large
    async with connected(database, "app", tenant.id) as connection:
        await search_hnsw(connection, tenant.id, corpus.id, 1, vectors[0], 10)
        scans = await connection.fetchrow(
            "SELECT idx_scan, seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables "
            "WHERE relname = $1",
            f"corpus_hnsw_{corpus.id.hex}",
        )
    assert (scans["idx_scan"], scans["seq_scan"]) == (1, 0)
    assert scans["idx_tup_fetch"] < COUNT / 4


async def test_other_revisions_do_not_starve_results(database_alone):
    """Nine of ten passages are removed; the ten nearest remaining ones are found."""
    await ensure_pgvector(database_alone)
    tenant, corpus, texts, vectors = await filled(database_alone, seed=3)
    await indexed(database_alone, tenant, corpus)
    left = list(range(0, COUNT, 10))
    await put(
        *(database_alone, tenant.id, "large"),
        remove=[text for place, text in enumerate(texts) if place not in set(left)],
    )
    hits = 0
    for query in unit(np.random.default_rng(8), 20):
        found = [key for key, _ in await nearest(database_alone, tenant, corpus, 2, query)]
        assert len(found) == 10
        exact = [left[place] for place in np.argsort(-(vectors[left] @ query))[:10]]
        hits += len(set(found) & {digest(texts[place]) for place in exact})
        # The revision before is searched as it was.
        assert len(await nearest(database_alone, tenant, corpus, 1, query)) == 10
    assert hits / 200 >= 0.95


async def test_what_is_added_later_is_found(large):
    database, tenant, corpus, _, _ = large
    vector = unit(np.random.default_rng(99), 1)[0]
    async with owned(database, tenant.id) as connection:
        await write_vectors(connection, tenant.id, "x-1", {digest("late passage"): vector})
    revision = await put(database, tenant.id, "large", document("late", "late passage", width=16))
    async with owned(database, tenant.id) as connection:
        assert await extend_hnsw(connection, tenant.id, corpus.id) == 1
        assert await extend_hnsw(connection, tenant.id, corpus.id) == 0
    found = await nearest(database, tenant, corpus, revision, vector, 1)
    assert found[0][0] == digest("late passage")
    # A revision from before does not have it.
    assert (await nearest(database, tenant, corpus, 1, vector, 1))[0][0] != found[0][0]
    await put(database, tenant.id, "large", remove=["late"])
    async with owned(database, tenant.id) as connection:
        now = datetime.now(UTC) + timedelta(hours=2)
        assert await sweep_corpora(connection, tenant.id, now=now) >= 3
        left = await connection.fetchval(
            f"SELECT count(*) FROM corpus_hnsw_{corpus.id.hex} WHERE hash = $1",
            digest("late passage"),
        )
    assert left == 0


async def test_another_tenant_finds_nothing_in_it(large):
    database, tenant, corpus, _, vectors = large
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    async with connected(database, "app", other.id) as connection:
        assert await search_hnsw(connection, other.id, corpus.id, 1, vectors[0], 10) == []
        assert await search_hnsw(connection, tenant.id, corpus.id, 1, vectors[0], 10) == []
        count = f"SELECT count(*) FROM corpus_hnsw_{corpus.id.hex}"
        assert await connection.fetchval(count) == 0
    async with connected(database, "worker", tenant.id) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetchval(count)
    loose = await column(
        database,
        f"""SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = {SCHEMA}
        AND c.relkind = 'r' AND c.relname LIKE 'corpus_hnsw_%'
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity)""",
    )
    assert loose == []


async def test_dropping_the_corpus_drops_its_index(database_alone):
    await ensure_pgvector(database_alone)
    tenant, corpus, _, vectors = await filled(database_alone, seed=5, count=20)
    await indexed(database_alone, tenant, corpus)
    async with owned(database_alone, tenant.id) as connection:
        assert await has_hnsw(connection, corpus.id)
        await drop_corpus(connection, tenant.id, corpus.id)
        assert not await has_hnsw(connection, corpus.id)
    with pytest.raises(StoreError, match="cannot search"):
        await nearest(database_alone, tenant, corpus, 1, vectors[0])


async def test_an_index_is_made_again_and_removed(database_alone):
    await ensure_pgvector(database_alone)
    tenant, corpus, _, _ = await filled(database_alone, seed=6, count=20)
    found = []
    for _ in range(2):
        assert await indexed(database_alone, tenant, corpus) == 20
        async with owned(database_alone, tenant.id) as connection:
            found.append(await hnsw_id(connection, corpus.id))
    assert len({*found, None}) == 3
    async with owned(database_alone, tenant.id) as connection:
        hashes = [row[0] for row in await connection.fetch("SELECT hash FROM corpus_passage")]
        at = connection, tenant.id, corpus.id
        assert await indexed_by_hnsw(*at, [*hashes, b"of no text"]) == len(hashes) == 20
        await drop_hnsw(connection, corpus.id)
        await drop_hnsw(connection, corpus.id)
        assert await hnsw_id(connection, corpus.id) is None
        assert await extend_hnsw(connection, tenant.id, corpus.id) == 0


async def test_what_is_erased_is_in_no_index(database_alone):
    await ensure_pgvector(database_alone)
    tenant, corpus, texts, _ = await filled(database_alone, seed=9, count=20)
    await indexed(database_alone, tenant, corpus)
    async with owned(database_alone, tenant.id) as connection:
        await corpus_of(connection, tenant.id, "large", hold=True)
        await erase_documents(connection, tenant.id, corpus.id, [texts[0]])
        count = f"SELECT count(*) FROM corpus_hnsw_{corpus.id.hex}"
        assert await connection.fetchval(count) == 19


async def test_a_backup_holds_no_index_and_restores_without_pgvector(database_alone, tmp_path):
    await ensure_pgvector(database_alone)
    tenant, corpus, _, _ = await filled(database_alone, seed=10, count=20)
    await indexed(database_alone, tenant, corpus)
    made = await backup(database_alone, tmp_path / "all.backup")
    name = f"restored_{uuid4().hex[:12]}"
    async with connected(database_alone, None) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    try:
        restored = Database(urlsplit(database_alone.url)._replace(path=f"/{name}").geturl())
        await restore(restored, made.file)
        async with owned(restored, tenant.id) as connection:
            found = await corpus_of(connection, tenant.id, "large")
            assert found.revision == 1
            assert not await has_hnsw(connection, found.id)
            size = await corpus_size(connection, tenant.id, found.id, 1)
            assert (size.documents, size.passages) == (20, 20)
    finally:
        async with connected(database_alone, None) as connection:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_vectors_that_are_too_long_are_refused(large):
    database, tenant, corpus, _, vectors = large
    async with owned(database, tenant.id) as connection:
        with pytest.raises(InputError, match="an index allows 4,000"):
            await build_hnsw(connection, tenant.id, corpus.id, dimension=4_001)
    with pytest.raises(StoreError, match="cannot search"):
        await nearest(database, tenant, corpus, 1, vectors[0][:5])


async def test_without_pgvector_it_is_said_what_to_do(database_15):
    with pytest.raises(CorpusError, match="server lacks pgvector; install it there"):
        await ensure_pgvector(database_15)


def apart(work):
    """Return the result of a coroutine in a separate loop, within ten seconds."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(work, 10)).result()


async def test_tenants_are_made_and_the_old_index_is_searched_while_a_new_one_is_made(
    database_alone,
):
    await ensure_pgvector(database_alone)
    tenant, corpus, texts, vectors = await filled(database_alone, seed=12, count=20)
    await indexed(database_alone, tenant, corpus)
    found = []

    def meanwhile(_):
        apart(create_tenant(database_alone, f"t-{uuid4().hex}", actor="test"))
        found.extend(apart(nearest(database_alone, tenant, corpus, 1, vectors[3], 1)))

    await indexed(database_alone, tenant, corpus, on_progress=meanwhile)
    found.extend(await nearest(database_alone, tenant, corpus, 1, vectors[3], 1))
    assert [key for key, _ in found] == [digest(texts[3])] * 2
    async with connected(database_alone, "app", tenant.id) as connection:
        names = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relname ~ $1 ORDER BY 1", corpus.id.hex
        )
    table = f"corpus_hnsw_{corpus.id.hex}"
    assert [row["relname"] for row in names] == [table, f"{table}_graph", f"{table}_pkey"]
