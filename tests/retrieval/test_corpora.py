"""What goes into a corpus comes out of a search, as the span of its document that it is."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from steersman.db.audit import history
from steersman.db.tenants import create_tenant
from steersman.errors import CorpusError, DataError, InputError, MissingCorpusError
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.documents.chunks import Chunking
from steersman.retrieval.documents.document import Document
from steersman.retrieval.embedders import Embedders
from steersman.retrieval.results import SearchSettings
from tests.kept import run
from tests.retrieval.corpora import PUMPS, SMALL, VALVES, corpora, texts
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")


@pytest.fixture
def other(database):
    """A second tenant."""
    return run(create_tenant(database, f"t-{uuid4().hex}", actor="test"))


EVERY = [
    SearchSettings("bm25"),
    SearchSettings("dense"),
    SearchSettings("hybrid"),
    SearchSettings("hybrid", fusion="rrf", fusion_weight=0.2),
    SearchSettings("hybrid", rerank="cosine"),
    SearchSettings("hybrid", expansion=True),
]


async def test_every_hit_is_the_span_that_it_says(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    opened = await corpus.open("manuals")
    checked = 0
    for settings in EVERY:
        for hit in opened.searcher.search("worn bearing of the pump", settings).hits:
            where = hit.passage.lineage
            document = await corpus.document("manuals", hit.passage.doc_id)
            assert hit.passage.text == document.text[where.start : where.end]
            assert hit.passage.text.strip()
            assert hashlib.sha256(document.text.encode()).hexdigest() == where.sha256
            assert where.sha256 == document.sha256.hex()
            checked += 1
    assert checked > 20
    first = opened.searcher.search("worn bearing").hits[0].passage
    assert (first.doc_id, first.title, first.source) == ("pumps.md", "Pumps", "/docs/pumps.md")
    assert first.meta == {"year": 2026}
    assert first.lineage.headings == ("Hum",)
    assert first.lineage.chunker == SMALL.name


async def test_adding_the_same_again_costs_and_embeds_nothing(database, tenant):
    embedder = HashedWords()
    corpus = corpora(database, tenant.id, embedder)
    first = await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    assert (first.revision, first.documents, first.written) == (1, 3, 3)
    assert first.embedded == len(set(embedder.asked)) == len(embedder.asked) == first.passages
    embedder.asked.clear()
    again = await corpus.add("manuals", texts())
    assert (again.revision, again.unchanged, again.written, again.embedded) == (1, 3, 0, 0)
    assert embedder.asked == []


async def test_what_changed_is_embedded_and_no_more(database, tenant):
    embedder = HashedWords()
    corpus = corpora(database, tenant.id, embedder)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    embedder.asked.clear()
    changed = [replace(one, text=one.text + " New words.") for one in texts()[1:2]]
    done = await corpus.add("manuals", changed)
    assert (done.revision, done.written) == (2, 1)
    assert done.known + done.embedded == done.passages
    assert 1 <= done.embedded == len(embedder.asked) <= 2  # the last passage, cut anew
    opened = await corpus.open("manuals")
    assert opened.searcher.search("new words").hits[0].passage.doc_id == "valves.md"


async def test_a_text_is_embedded_once_for_all_corpora_of_a_tenant(database, tenant):
    embedder = HashedWords()
    corpus = corpora(database, tenant.id, embedder)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    embedder.asked.clear()
    done = await corpus.add("copies", texts(), embedder="hashed", chunking=SMALL)
    assert (done.embedded, done.known, embedder.asked) == (0, done.passages, [])


async def test_documents_that_are_gone_are_removed_when_asked(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    made = await corpus.snapshot("manuals", "before")
    assert await corpus.keep_only("manuals", ["pumps.md"]) == 2
    assert await corpus.keep_only("manuals", ["pumps.md"]) == 0
    assert (await corpus.show("manuals")).size.documents == 1
    now, then = await corpus.open("manuals"), await corpus.open("manuals", snapshot="before")
    assert {one.doc_id for one in now.loaded.passages} == {"pumps.md"}
    assert len(then.loaded.passages) == made.passages
    assert then.searcher.search("forty amperes").hits[0].passage.doc_id == "cables.txt"


async def test_what_is_open_stays_when_the_corpus_is_dropped(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    opened = await corpus.open("manuals")
    rows = await corpus.drop("manuals")
    assert rows["corpus_document"] == 3
    assert opened.searcher.search("forty amperes").hits[0].passage.doc_id == "cables.txt"
    with pytest.raises(MissingCorpusError, match="none exist"):
        await corpus.open("manuals")


async def test_passages_that_say_the_same_are_found_once(database, tenant):
    corpus = corpora(database, tenant.id)
    same = [Document(name, PUMPS) for name in ("b", "a", "c")]
    await corpus.add("manuals", [*same, Document("v", VALVES)], embedder="none")
    opened = await corpus.open("manuals")
    assert [one.id for one in opened.loaded.passages] == ["a#0", "v#0"]
    assert opened.loaded.also == {"a#0": ("b#0", "c#0")}


async def test_passages_that_say_nearly_the_same_are_found_once_where_asked(database, tenant):
    corpus = corpora(database, tenant.id)
    long = " ".join(f"word{number}" for number in range(200))
    pair = [Document("a", long), Document("b", long + " more"), Document("c", long)]
    await corpus.add("apart", pair, embedder="hashed", chunking=Chunking(5_000, 0))
    await corpus.add("near", pair, embedder="hashed", chunking=Chunking(5_000, 0), near=0.9)
    assert len((await corpus.open("apart")).loaded.passages) == 2
    opened = await corpus.open("near")
    assert [one.id for one in opened.loaded.passages] == ["a#0"]
    assert set(opened.loaded.also["a#0"]) == {"b#0", "c#0"}
    assert len(opened.loaded.vectors) == 1
    # Adding again with the same setting is no contradiction.
    assert (await corpus.add("near", pair, near=0.9)).unchanged == 3


async def test_links_are_kept_and_followed(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed")
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        kept = await connection.fetchval("SELECT count(*) FROM corpus_links WHERE revision = 1")
    await connection.close()
    assert kept == 1
    opened = await corpus.open("manuals")
    settings = SearchSettings("bm25", k=3, expansion=True)
    found = opened.searcher.search("relief opens ten bar", settings)
    by_id = {hit.passage.doc_id: hit for hit in found.hits}
    assert by_id["pumps.md"].score > 0
    assert len(opened.loaded.links.targets) >= 1


async def test_a_corpus_without_vectors_is_searched_by_words(database, tenant):
    corpus = corpora(database, tenant.id)
    done = await corpus.add("manuals", texts(), embedder="none")
    assert (done.embedded, done.known) == (0, 0)
    opened = await corpus.open("manuals")
    found = opened.searcher.search("relief valve", SearchSettings("bm25"))
    assert found.hits[0].passage.doc_id == "valves.md"
    with pytest.raises(InputError, match="no vectors"):
        opened.searcher.search("x", SearchSettings("dense"))


async def test_an_empty_corpus_finds_nothing(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.create("manuals", embedder="hashed")
    opened = await corpus.open("manuals")
    for settings in EVERY[:3]:
        assert opened.searcher.search("anything", settings).hits == ()
    assert (await corpus.add("manuals", [])).revision == 0
    assert (await corpus.add("manuals", [Document("e", "")])).revision == 1
    assert (await corpus.open("manuals")).loaded.passages == ()
    with pytest.raises(CorpusError, match="no passages"):
        await corpus.snapshot("manuals")


async def test_another_embedder_or_chunking_is_refused(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    with pytest.raises(CorpusError, match="has the embedder 'hashed', not 'none'"):
        await corpus.add("manuals", texts(), embedder="none")
    with pytest.raises(CorpusError, match="has the chunking"):
        await corpus.add("manuals", texts(), chunking=Chunking(128, 0))
    with pytest.raises(CorpusError, match="has the near"):
        await corpus.add("manuals", texts(), near=0.5)
    for other in (HashedWords(size=16), HashedWords(name="other")):
        changed = corpora(database, tenant.id, other)
        with pytest.raises(CorpusError, match="was embedded with hashed-words"):
            await changed.add("manuals", texts())
        with pytest.raises(DataError, match="was embedded with hashed-words"):
            await changed.open("manuals")
        by_words = await changed.open("manuals", by_words=True)
        assert by_words.searcher.search("relief valve", SearchSettings("bm25")).hits
    gone = corpora(database, tenant.id)
    gone._embedders = Embedders()
    with pytest.raises(DataError, match="vector search of the corpus is not possible"):
        await gone.open("manuals")


async def test_bad_arguments_are_told(database, tenant):
    corpus = corpora(database, tenant.id)
    with pytest.raises(InputError, match="the embedder is 'glove'"):
        await corpus.add("manuals", texts(), embedder="glove")
    with pytest.raises(InputError, match="the corpus name is 'A b'"):
        await corpus.add("A b", texts(), embedder="none")
    with pytest.raises(InputError, match="occurs twice"):
        await corpus.add("manuals", [*texts(), texts()[0]], embedder="none")
    await corpus.add("manuals", texts())
    for days in (0, -1, float("nan"), 1e9):
        with pytest.raises(InputError, match="ttl_days"):
            await corpus.snapshot("manuals", ttl_days=days)
    await corpus.snapshot("manuals", "v1")
    with pytest.raises(CorpusError, match="already"):
        await corpus.snapshot("manuals", "v1")
    for snapshot in ("v2", "a\0b", "V1", ""):
        with pytest.raises(MissingCorpusError, match="no snapshot"):
            await corpus.open("manuals", snapshot=snapshot)
    for name in ("none", "a\0", "", "x" * 500):
        with pytest.raises(MissingCorpusError, match="corpus not found"):
            await corpus.show(name)
    with pytest.raises(MissingCorpusError, match="no document"):
        await corpus.document("manuals", "a\0")
    with pytest.raises(InputError, match="the reason has 0"):
        await corpus.erase("manuals", ["pumps.md"], reason="")


async def test_a_snapshot_expires(database, tenant):
    now = [datetime.now(UTC)]
    corpus = corpora(database, tenant.id, clock=lambda: now[0])
    await corpus.add("manuals", texts(), embedder="none")
    made = await corpus.snapshot("manuals", ttl_days=1)
    assert made.name == "r1"
    assert (await corpus.open("manuals", snapshot="r1")).loaded.place.revision == 1
    now[0] += timedelta(days=1)
    with pytest.raises(MissingCorpusError, match="or the snapshot expired"):
        await corpus.open("manuals", snapshot="r1")
    assert (await corpus.show("manuals")).snapshots == ()


async def test_what_is_erased_is_found_in_no_snapshot(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL)
    await corpus.snapshot("manuals", "v1")
    rows = await corpus.erase("manuals", ["pumps.md"], reason="asked by the author")
    assert rows["corpus_document"] == 1
    for snapshot in (None, "v1"):
        opened = await corpus.open("manuals", snapshot=snapshot)
        assert "pumps.md" not in {one.doc_id for one in opened.loaded.passages}


async def test_changes_are_written_into_the_audit(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed")
    await corpus.add("manuals", texts())  # changes nothing
    await corpus.snapshot("manuals", "v1")
    await corpus.drop("manuals", snapshot="v1")
    await corpus.remove("manuals", ["pumps.md"])
    await corpus.drop("manuals")
    assert [row.action for row in await acts(database, tenant)] == [
        *("corpus.create", "corpus.add", "corpus.snapshot", "corpus.drop", "corpus.remove"),
        "corpus.drop",
    ]


async def acts(database, tenant):
    connection = await database.connect("app")
    async with as_tenant(connection, tenant.id):
        rows = await history(connection, limit=20)
    await connection.close()
    return [row for row in reversed(rows) if row.action.startswith("corpus.")]


async def test_two_that_add_to_a_new_corpus_at_once_both_do(database, tenant):
    async def add(number):
        some = [Document(f"d{number}", f"Text number {number}.")]
        return await corpora(database, tenant.id).add("manuals", some, embedder="hashed")

    done = await asyncio.gather(*map(add, range(4)))
    assert sorted(one.revision for one in done) == [1, 2, 3, 4]
    assert (await corpora(database, tenant.id).show("manuals")).size.documents == 4


async def test_ids_that_no_document_can_have_are_passed_over(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="none")
    for strange in ("pumps.md\0", "\ud83d"):
        assert await corpus.remove("manuals", [strange]) == 1
        assert not any((await corpus.erase("manuals", [strange], reason="asked")).values())
        with pytest.raises(MissingCorpusError, match="no document"):
            await corpus.document("manuals", strange)
        with pytest.raises(MissingCorpusError, match="no snapshot"):
            await corpus.open("manuals", snapshot=strange)
        with pytest.raises(InputError, match="the reason holds"):
            await corpus.erase("manuals", ["pumps.md"], reason=strange)
    assert (await corpus.show("manuals")).size.documents == 3


async def test_one_text_is_not_taken_for_a_list_of_letters(database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", [Document("a", "One."), Document("b", "Two.")], embedder="none")
    for work in (
        lambda: corpus.remove("manuals", "ab"),
        lambda: corpus.erase("manuals", "ab", reason="asked"),
        lambda: corpus.keep_only("manuals", "ab"),
    ):
        with pytest.raises(InputError, match="doc_ids is the string 'ab'"):
            await work()
    assert (await corpus.show("manuals")).size.documents == 2


async def test_a_failing_document_leaves_what_was_committed(database, tenant):
    corpus = corpora(database, tenant.id)

    def some():
        for number in range(250):
            yield Document(f"d{number}", f"Text number {number}.")
        raise DataError("the disk not found")

    with pytest.raises(DataError, match="the disk not found"):
        await corpus.add("manuals", some(), embedder="hashed")
    shown = await corpus.show("manuals")
    assert (shown.corpus.revision, shown.size.documents) == (1, 200)
    [added] = [row for row in await acts(database, tenant) if row.action == "corpus.add"]
    assert (added.actor, added.subject) == ("test", "manuals")
    assert added.detail == {"revision": 1, "written": 200, "passages": 200}
    done = await corpus.add("manuals", [Document(f"d{n}", f"Text number {n}.") for n in range(250)])
    assert (done.unchanged, done.written, done.embedded) == (200, 50, 50)


async def test_no_tenant_notices_the_other(database, tenant, other):
    mine, theirs = corpora(database, tenant.id), corpora(database, other.id)
    await theirs.add("secret", [Document("s", "Their secret recipe.")], embedder="hashed")
    await theirs.snapshot("secret", "v1")
    await mine.add("manuals", texts(), embedder="hashed")
    with pytest.raises(MissingCorpusError) as foreign:
        await mine.open("secret")
    with pytest.raises(MissingCorpusError) as unknown:
        await mine.open("absent")
    assert str(foreign.value).replace("secret", "NAME") == str(unknown.value).replace(
        "absent", "NAME"
    )
    for work in (
        lambda: mine.show("secret"),
        lambda: mine.drop("secret"),
        lambda: mine.snapshot("secret"),
        lambda: mine.remove("secret", ["s"]),
        lambda: mine.erase("secret", ["s"], reason="x"),
        lambda: mine.document("secret", "s"),
        lambda: mine.index("secret", hnsw=False),
        lambda: mine.keep_only("secret", []),
    ):
        with pytest.raises(MissingCorpusError):
            await work()
    assert [row.name for row in await mine.all()] == ["manuals"]
    # The same name is each one's own.
    await mine.add("secret", [Document("s", "My own text.")], embedder="hashed")
    for corpus, text in ((mine, "My own text."), (theirs, "Their secret recipe.")):
        opened = await corpus.open("secret")
        assert [one.text for one in opened.loaded.passages] == [text]
    # What the other embedded is embedded again: nothing tells that it is known.
    again = await mine.add("copy", [Document("x", "Their secret recipe.")], embedder="hashed")
    assert (again.known, again.embedded) == (0, 1)


class Meanwhile(HashedWords):
    """An embedder that lets something happen once it embedded a text."""

    def __init__(self, work, when):
        super().__init__()
        self.work, self.when = work, when

    def encode(self, texts):
        rows = super().encode(texts)
        if self.when in texts:
            self.when = None
            asyncio.run(self.work())
        return rows


async def test_vectors_that_go_while_documents_are_added_are_made_again(database, tenant):
    """The corpus that had them is dropped when it was seen that they are known."""
    mine = corpora(database, tenant.id)
    await mine.add("old", [Document("a", "Shared text.")], embedder="hashed")
    other = Meanwhile(lambda: mine.drop("old"), "Another text.")
    adding = corpora(database, tenant.id, other)
    some = [Document("a", "Shared text."), Document("b", "Another text.")]
    done = await adding.add("new", some, embedder="hashed")
    assert (done.known, done.embedded, done.revision) == (1, 2, 1)
    opened = await mine.open("new")
    assert len(opened.loaded.vectors) == 2
    found = await asyncio.to_thread(opened.searcher.search, "shared")
    assert (found.hits[0].passage.doc_id, found.degraded) == ("a", ())
