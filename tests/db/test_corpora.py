"""Corpus revisions: each is readable unchanged, by its tenant only."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

from steersman.db.corpora import (
    corpora_of,
    corpus_of,
    corpus_size,
    create_corpus,
    drop_corpus,
    find_corpus,
)
from steersman.db.corpus_documents import (
    StoredLinks,
    erase_documents,
    find_document,
    read_documents,
    read_links,
    write_links,
)
from steersman.db.corpus_snapshots import (
    corpus_digest,
    corpus_snapshots_of,
    drop_corpus_snapshot,
    find_corpus_snapshot,
    snapshot_corpus,
)
from steersman.db.corpus_vectors import known_vectors, read_vectors, write_vectors
from steersman.db.tenants import create_tenant
from steersman.errors import CorpusError, InputError, MissingCorpusError
from tests.db.corpora import digest, document, owned, put
from tests.db.rows import connected
from tests.kept import run

CHUNKING = {"size": 10, "overlap": 0}
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TABLES = ("corpus", "corpus_document", "corpus_links", "corpus_passage", "corpus_snapshot")


@pytest.fixture
def corpus(database, tenant):
    """Return the empty corpus ``manuals``, with embedder ``tiny`` of dimension two."""

    async def make():
        async with owned(database, tenant.id) as connection:
            return await create_corpus(
                connection,
                tenant.id,
                "manuals",
                chunking=CHUNKING,
                embedder=("tiny", "tiny-1", 2),
            )

    return run(make())


async def texts(database, tenant, corpus, revision):
    async with connected(database, "app", tenant.id) as connection:
        return {
            one.doc_id: [one.text[p.start : p.end] for p in one.passages]
            async for one in read_documents(connection, tenant.id, corpus.id, revision)
        }


async def test_every_revision_is_read_as_it_was(database, tenant, corpus):
    assert corpus.revision == 0
    first = await put(
        database, tenant.id, "manuals", document("a", "Pumps hum loudly."), document("b", "Valves.")
    )
    second = await put(database, tenant.id, "manuals", document("a", "Pumps are silent."))
    third = await put(
        database, tenant.id, "manuals", document("c", "Pipes."), remove=["b", "never there"]
    )
    assert (first, second, third) == (1, 2, 3)
    assert await texts(database, tenant, corpus, 0) == {}
    assert await texts(database, tenant, corpus, 1) == {
        "a": ["Pumps hum ", "loudly."],
        "b": ["Valves."],
    }
    assert await texts(database, tenant, corpus, 2) == {
        "a": ["Pumps are ", "silent."],
        "b": ["Valves."],
    }
    assert await texts(database, tenant, corpus, 3) == {
        "a": ["Pumps are ", "silent."],
        "c": ["Pipes."],
    }
    async with connected(database, "app", tenant.id) as connection:
        size = await corpus_size(connection, tenant.id, corpus.id, 3)
        assert (size.documents, size.passages, size.characters) == (2, 3, 23)
        found = await find_document(connection, tenant.id, corpus.id, 1, "b")
        assert found.text == "Valves."
        assert await find_document(connection, tenant.id, corpus.id, 3, "b") is None


async def test_what_is_the_same_makes_no_revision(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Pumps."), document("b", "Valves."))
    assert await put(database, tenant.id, "manuals", document("a", "Pumps.")) is None
    assert await put(database, tenant.id, "manuals", remove=["none"]) is None
    # A batch of which one changed writes that one alone.
    again = await put(
        database, tenant.id, "manuals", document("a", "Pumps!"), document("b", "Valves.")
    )
    assert again == 2
    async with connected(database, "app", tenant.id) as connection:
        rows = await connection.fetch(
            "SELECT doc_id, added FROM corpus_document WHERE removed IS NULL ORDER BY doc_id"
        )
    assert [tuple(row) for row in rows] == [("a", 2), ("b", 1)]


async def test_what_comes_back_after_it_was_removed_is_there_again(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    await put(database, tenant.id, "manuals", remove=["a"])
    assert await put(database, tenant.id, "manuals", document("a", "Pumps.")) == 3
    assert [len(await texts(database, tenant, corpus, r)) for r in range(4)] == [0, 1, 0, 1]


async def test_everything_of_a_document_comes_back_as_it_was(database, tenant, corpus):
    made = document("Ä/ö 1.md", "Überdruck 🔧 hilft.", title="T", source="/x", meta={"a": [1]})
    passages = tuple(
        one._replace(headings=("H1", "H 2")[: one.chunk + 1], page=one.chunk + 1)
        for one in made.passages
    )
    made = made._replace(passages=passages)
    await put(database, tenant.id, "manuals", made, document("b", ""))
    async with connected(database, "app", tenant.id) as connection:
        found = [one async for one in read_documents(connection, tenant.id, corpus.id, 1)]
    assert found == [document("b", ""), made]


async def test_two_that_write_at_once_take_turns(database, tenant, corpus):
    async def one(number):
        return await put(database, tenant.id, "manuals", document(f"d{number}", "Pumps."))

    revisions = await asyncio.gather(*(one(number) for number in range(8)))
    assert sorted(revisions) == list(range(1, 9))
    assert len(await texts(database, tenant, corpus, 8)) == 8


async def test_names_are_taken_once_by_each_tenant(database, tenant, corpus):
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    async with owned(database, other.id) as connection:
        await create_corpus(connection, other.id, "manuals", chunking=CHUNKING)
    with pytest.raises(CorpusError, match="already"):
        async with owned(database, tenant.id) as connection:
            await create_corpus(connection, tenant.id, "manuals", chunking=CHUNKING)


@pytest.mark.parametrize("name", ["", "A", "x" * 64, "a b", "../a", "a\0", "-a", "ä", "a\n"])
async def test_bad_names_are_refused_and_found_by_nobody(database, tenant, corpus, name):
    async with owned(database, tenant.id) as connection:
        with pytest.raises(InputError, match="allowed are 1 to 63"):
            await create_corpus(connection, tenant.id, name, chunking=CHUNKING)
        assert await find_corpus(connection, tenant.id, name) is None
        with pytest.raises(InputError, match="corpus snapshot name is"):
            await snapshot_corpus(connection, tenant.id, corpus, name, expires_at=None, now=NOW)


async def test_an_unknown_corpus_is_told_with_those_there_are(database, tenant, corpus):
    async with connected(database, "app", tenant.id) as connection:
        with pytest.raises(MissingCorpusError, match="1 exist: manuals"):
            await corpus_of(connection, tenant.id, "manual")


@pytest.mark.parametrize("near", [0.0, 1.5, float("nan"), -1.0])
async def test_a_similarity_out_of_range_is_refused(database, tenant, near):
    async with owned(database, tenant.id) as connection:
        with pytest.raises(InputError, match="to 1, or None"):
            await create_corpus(connection, tenant.id, "a", chunking=CHUNKING, near=near)


async def test_a_snapshot_is_a_revision_that_stays(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    async with owned(database, tenant.id) as connection:
        held = await corpus_of(connection, tenant.id, "manuals", hold=True)
        made = await snapshot_corpus(
            connection, tenant.id, held, "v1", expires_at=NOW + timedelta(days=1), now=NOW
        )
    assert (made.revision, made.documents, made.passages) == (1, 1, 1)
    await put(database, tenant.id, "manuals", document("a", "Pipes."))
    async with owned(database, tenant.id) as connection:
        found = await find_corpus_snapshot(connection, tenant.id, corpus.id, "v1", now=NOW)
        assert found == made
        assert await corpus_digest(connection, tenant.id, corpus.id, 1) == made.digest
        assert await corpus_digest(connection, tenant.id, corpus.id, 2) != made.digest
        later = NOW + timedelta(days=1)
        assert await find_corpus_snapshot(connection, tenant.id, corpus.id, "v1", now=later) is None
        assert await corpus_snapshots_of(connection, tenant.id, corpus.id, now=later) == []
        held = await corpus_of(connection, tenant.id, "manuals", hold=True)
        # What expired makes room for another of its name, before it is swept too.
        again = await snapshot_corpus(connection, tenant.id, held, "v1", expires_at=None, now=later)
        assert again.revision == 2
        assert await corpus_snapshots_of(connection, tenant.id, corpus.id, now=later) == [again]
        assert await drop_corpus_snapshot(connection, tenant.id, corpus.id, "v1")
        assert not await drop_corpus_snapshot(connection, tenant.id, corpus.id, "v1")


async def test_equal_passages_under_equal_ids_have_equal_digests(database, tenant, corpus):
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    async with owned(database, other.id) as connection:
        same = await create_corpus(connection, other.id, "else", chunking=CHUNKING)
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    await put(database, tenant.id, "manuals", document("b", "Pipes."))
    await put(database, other.id, "else", document("b", "Pipes."), document("a", "Pumps."))
    async with owned(database, tenant.id) as connection:
        one = await corpus_digest(connection, tenant.id, corpus.id, 2)
        # Nobody reads another's passages: the digest of nothing.
        nothing = await corpus_digest(connection, other.id, same.id, 1)
    async with owned(database, other.id) as connection:
        assert await corpus_digest(connection, other.id, same.id, 1) == one != nothing


async def test_snapshots_that_cannot_be_are_refused(database, tenant, corpus):
    async def take(name="v1", expires_at=None):
        async with owned(database, tenant.id) as connection:
            held = await corpus_of(connection, tenant.id, "manuals", hold=True)
            await snapshot_corpus(connection, tenant.id, held, name, expires_at=expires_at, now=NOW)

    with pytest.raises(CorpusError, match="no passages"):
        await take()
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    with pytest.raises(InputError, match="in the future"):
        await take(expires_at=NOW)
    await take()
    with pytest.raises(CorpusError, match="already"):
        await take()


async def test_vectors_are_kept_once_by_tenant_embedder_and_text(database, tenant, corpus):
    rows = {digest("x"): np.array([0.6, 0.8]), digest("y"): np.array([1.0, 0.0])}
    async with owned(database, tenant.id) as connection:
        await write_vectors(connection, tenant.id, "tiny-1", rows)
        # What is there already stays.
        await write_vectors(connection, tenant.id, "tiny-1", {digest("x"): np.array([0.0, 1.0])})
        known = await known_vectors(
            connection, tenant.id, "tiny-1", [digest("x"), digest("z"), digest("y")]
        )
        assert known == set(rows)
        assert await known_vectors(connection, tenant.id, "tiny-2", list(rows)) == set()
        found = await read_vectors(connection, tenant.id, "tiny-1", 2, [digest("y"), digest("x")])
        np.testing.assert_allclose(found, [[1, 0], [0.6, 0.8]], atol=1e-3)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        with pytest.raises(CorpusError, match="2 numbers and must have 3"):
            await read_vectors(connection, tenant.id, "tiny-1", 3, [digest("x")])
        with pytest.raises(CorpusError, match="1 of 2 passages have no vector"):
            await read_vectors(connection, tenant.id, "tiny-1", 2, [digest("x"), digest("z")])
        for bad in (np.nan, np.inf, 1e6):
            with pytest.raises(InputError, match="not finite"):
                await write_vectors(
                    connection, tenant.id, "tiny-1", {digest("b"): np.array([bad, 0.0])}
                )


async def test_links_belong_to_the_passages_they_were_found_between(database, tenant, corpus):
    links = StoredLinks(
        np.array([0, 1, 1], np.int64), np.array([1], np.int32), np.array([0], np.uint8)
    )
    async with owned(database, tenant.id) as connection:
        for _ in range(2):
            await write_links(connection, tenant.id, corpus.id, 1, [b"a", b"b"], links)
        found = await read_links(connection, tenant.id, corpus.id, 1, [b"a", b"b"])
        assert [one.tolist() for one in found] == [[0, 1, 1], [1], [0]]
        assert await read_links(connection, tenant.id, corpus.id, 1, [b"b", b"a"]) is None
        assert await read_links(connection, tenant.id, corpus.id, 2, [b"a", b"b"]) is None
        await connection.execute(r"UPDATE corpus_links SET targets = '\x01'")
        with pytest.raises(CorpusError, match="damaged"):
            await read_links(connection, tenant.id, corpus.id, 1, [b"a", b"b"])


async def test_dropping_leaves_nothing_but_what_others_need(database, tenant, corpus):
    async with owned(database, tenant.id) as connection:
        await create_corpus(connection, tenant.id, "second", chunking=CHUNKING)
    await put(database, tenant.id, "manuals", document("a", "Pumps."), document("b", "Valves."))
    await put(database, tenant.id, "second", document("a", "Pumps."))
    rows = {digest(text): np.array([1.0, 0.0]) for text in ("Pumps.", "Valves.")}
    async with owned(database, tenant.id) as connection:
        await write_vectors(connection, tenant.id, "tiny-1", rows)
        held = await corpus_of(connection, tenant.id, "manuals", hold=True)
        await snapshot_corpus(connection, tenant.id, held, "v1", expires_at=None, now=NOW)
        deleted = await drop_corpus(connection, tenant.id, corpus.id)
        assert deleted == {
            "corpus_document": 2,
            "corpus_passage": 2,
            "corpus_snapshot": 1,
            "corpus_vector": 1,
            "corpus_links": 0,
        }
        assert [one.name for one in await corpora_of(connection, tenant.id)] == ["second"]
        assert await known_vectors(connection, tenant.id, "tiny-1", list(rows)) == {
            digest("Pumps.")
        }


async def test_what_is_erased_is_in_no_revision(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Secret."), document("b", "Valves."))
    await put(database, tenant.id, "manuals", document("a", "Redacted."))
    rows = {digest(text): np.array([1.0, 0.0]) for text in ("Secret.", "Redacted.", "Valves.")}
    async with owned(database, tenant.id) as connection:
        await write_vectors(connection, tenant.id, "tiny-1", rows)
        held = await corpus_of(connection, tenant.id, "manuals", hold=True)
        erased = await erase_documents(connection, tenant.id, held.id, ["a", "none"])
        assert erased == {"corpus_document": 2, "corpus_passage": 2, "corpus_vector": 2}
        after = await corpus_of(connection, tenant.id, "manuals")
        assert (after.revision, after.erasures) == (3, 1)
        assert not any((await erase_documents(connection, tenant.id, held.id, ["a"])).values())
        assert (await corpus_of(connection, tenant.id, "manuals")).revision == 3
    for revision in (1, 2, 3):
        assert await texts(database, tenant, corpus, revision) == {"b": ["Valves."]}


async def test_a_tenant_that_goes_takes_its_corpora_along(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    async with connected(database, None) as connection:
        await connection.execute("ALTER TABLE audit DISABLE TRIGGER USER")
        try:
            await connection.execute("DELETE FROM audit WHERE tenant = $1", tenant.id)
            await connection.execute("DELETE FROM tenant WHERE id = $1", tenant.id)
        finally:
            await connection.execute("ALTER TABLE audit ENABLE TRIGGER USER")
        for table in TABLES:
            count = await connection.fetchval(
                f"SELECT count(*) FROM {table} WHERE tenant = $1", tenant.id
            )
            assert count == 0, table


async def test_the_service_reads_and_changes_nothing(database, tenant, corpus):
    await put(database, tenant.id, "manuals", document("a", "Pumps."))
    for table in (*TABLES, "corpus_vector"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET tenant = tenant"):
            async with connected(database, "app") as connection:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
