"""Corpora are searched over HTTP: by their tenant, within limits, and by words if need be."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

import pytest

from steersman.db.tenants import create_tenant
from steersman.errors import BackendUnavailableError, CorpusError, DataError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.documents.document import Document
from steersman.serving.load_guard import GuardianState
from tests.db.corpora import owned
from tests.retrieval.corpora import PUMPS, SMALL, corpora, texts
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")


class Failing(HashedWords):
    """An embedder whose server goes away and comes back."""

    away = False

    def encode(self, texts):
        if self.away:
            raise BackendUnavailableError("the embedder is away")
        return super().encode(texts)


async def fill(database, tenant, **options):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="hashed", chunking=SMALL, **options)
    return corpus


def knows(s, embedder=None):
    """Let a service know the embedder of the tests."""
    s.service.embedders._made["hashed"] = embedder or HashedWords()


def later(s, seconds=5.0):
    """Let a service think that time passed, so that it loads again what it could not."""
    s.service.corpora.clock = lambda: time.monotonic() + seconds


async def search(s, query="worn bearing", **more):
    body = {"corpus": "manuals", "query": query, "deadline_ms": 60_000, **more}
    return await s.ask("POST", "/v1/search", {k: v for k, v in body.items() if v is not None})


async def test_a_corpus_is_searched_and_its_hits_can_be_checked(serving, database, tenant):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        answer = await search(s, k=2)
        assert answer.status == 200
        assert (answer.body["corpus"], answer.body["revision"]) == ("manuals", 1)
        assert answer.body["degraded"] == []
        assert set(answer.body["timings_ms"]) >= {"bm25", "embed", "dense"}
        first, second = answer.body["hits"]
        assert first["score"] >= second["score"]
        assert (first["doc_id"], first["title"]) == ("pumps.md", "Pumps")
        assert (first["source"], first["meta"]) == ("/docs/pumps.md", {"year": 2026})
        assert first["ranks"]["bm25"] == 1
        where = first["lineage"]
        span = {"start": where["start"], "end": where["end"]}
        body = {"corpus": "manuals", "doc_id": first["doc_id"]}
        cited = (await s.ask("POST", "/v1/documents", {**body, **span})).body
        assert cited["text"] == first["text"]
        whole = (await s.ask("POST", "/v1/documents", body)).body
        assert whole["text"] == PUMPS
        assert whole["text"][where["start"] : where["end"]] == first["text"]
        assert sha256(PUMPS.encode()).hexdigest() == where["sha256"] == whole["sha256"]
        beyond = await s.ask("POST", "/v1/documents", {**body, "start": 10**9, "end": 3})
        assert (beyond.status, beyond.body["text"]) == (200, "")


@pytest.mark.parametrize(
    "settings",
    [
        {"variant": "bm25"},
        {"variant": "dense"},
        {"variant": "hybrid", "fusion": "rrf", "fusion_weight": 0.2},
        {"rerank": "cosine"},
        {"expansion": True},
    ],
)
async def test_every_setting_is_taken(serving, database, tenant, settings):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        answer = await search(s, "forty amperes", **settings)
        assert answer.status == 200
        assert answer.body["hits"][0]["doc_id"] == "cables.txt"
        assert answer.body["degraded"] == []


async def test_bad_requests_are_told(serving, database, tenant, subtests):
    bad = [
        ({"k": 0}, ">= 1"),
        ({"k": 101}, "<= 100"),
        ({"k": 1.5}, "int"),
        ({"fusion_weight": 1.01}, "<= 1"),
        ({"variant": "magic"}, "magic"),
        ({"fusion": "magic"}, "magic"),
        ({"rerank": "oracle"}, "rerank is 'oracle'"),
        ({"query": ""}, "length >= 1"),
        ({"query": "  "}, "white space"),
        ({"query": "x" * 20_001}, "length <= 20000"),
        ({"deadline_ms": 0}, ">= 1"),
        ({"corpus": ""}, "length >= 1"),
        ({"corpus": "x" * 65}, "length <= 64"),
        ({"more": 1}, "more"),
        ({"query": None}, "query"),
    ]
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        for wrong, what in bad:
            with subtests.test(str(wrong)[:80]):
                answer = await search(s, **{"query": "pump", **wrong})
                assert answer.status == 422, answer
                assert what in str(answer.body)


async def test_nul_is_no_part_of_a_name(serving, database, tenant):
    async with serving() as s:
        for body in ({"corpus": "a\0", "query": "x"}, {"corpus": "a", "query": "\0"}):
            answer = await s.ask("POST", "/v1/search", body)
            assert answer.status == 400
            assert answer.headers["content-type"] == "application/problem+json"


async def test_a_newer_revision_takes_over_without_a_stop(serving, database, tenant):
    corpus = await fill(database, tenant)
    async with serving() as s:
        knows(s)
        assert (await search(s)).body["revision"] == 1
        await corpus.add("manuals", [Document("new", "Entirely new words.")])
        async with asyncio.timeout(30):
            while (answer := await search(s, "entirely new", deadline_ms=2_000)).body[
                "revision"
            ] == 1:
                assert answer.status == 200
                await asyncio.sleep(0.02)
        assert answer.body["hits"][0]["doc_id"] == "new"


async def test_a_snapshot_is_searched_as_it_was_until_it_expires(serving, database, tenant):
    corpus = await fill(database, tenant)
    early = corpora(database, tenant.id, clock=lambda: datetime.now(UTC) - timedelta(days=2))
    await corpus.snapshot("manuals", "v1")
    await early.snapshot("manuals", "old", ttl_days=1)
    await corpus.keep_only("manuals", ["valves.md"])
    async with serving() as s:
        knows(s)
        answer = await search(s, snapshot="v1")
        assert (answer.status, answer.body["revision"]) == (200, 1)
        assert answer.body["hits"][0]["doc_id"] == "pumps.md"
        now = await search(s)
        assert {hit["doc_id"] for hit in now.body["hits"]} == {"valves.md"}
        for name in ("old", "v2", "V 2"):
            assert (await search(s, snapshot=name)).status == 404


async def test_a_corpus_that_is_deleted_is_gone_and_a_search_under_way_ends(
    serving, database, tenant
):
    corpus = await fill(database, tenant)
    async with serving() as s:
        knows(s)
        await search(s)
        asked = [asyncio.create_task(search(s)) for _ in range(20)]
        await asyncio.sleep(0.01)
        await corpus.drop("manuals")
        answers = await asyncio.gather(*asked)
        assert {answer.status for answer in answers} <= {200, 404}
        gone = await search(s)
        assert gone.status == 404
        assert gone.body["code"] == "not_found"
        # One that is made again under the name is another.
        await corpus.add("manuals", [Document("x", "Other text.")], embedder="none")
        again = await search(s, "text")
        assert [hit["doc_id"] for hit in again.body["hits"]] == ["x"]


async def test_a_corpus_that_is_deleted_while_it_is_loaded_is_gone(serving, database, tenant):
    corpus = await fill(database, tenant)
    async with serving() as s:
        knows(s)
        load = s.service.corpora.load
        reached = asyncio.Event()

        async def slow(*place):
            reached.set()
            await asyncio.sleep(0.2)
            return await load(*place)

        s.service.corpora.load = slow
        asked = asyncio.create_task(search(s))
        await reached.wait()
        await corpus.drop("manuals")
        assert (await asked).status == 404


async def test_an_embedder_that_is_away_leaves_words(serving, database, tenant, monkeypatch):
    monkeypatch.setattr("steersman.retrieval.embedders._REST_S", 0.2)
    await fill(database, tenant)
    async with serving() as s:
        embedder = Failing()
        knows(s, embedder)
        assert (await search(s)).body["degraded"] == []
        embedder.away = True
        for variant in ("hybrid", "dense"):
            answer = await search(s, variant=variant)
            assert (answer.status, answer.body["degraded"]) == (200, ["dense"])
            assert answer.body["hits"][0]["doc_id"] == "pumps.md"
        assert (await search(s, variant="bm25")).body["degraded"] == []
        text = (await s.ask("GET", "/metrics")).body.decode()
        assert 'steersman_search_degraded_total{part="dense",process="0"} 2.0' in text
        assert 'steersman_searches_total{process="0",result="ok"} 4.0' in text
        assert "steersman_corpora_bytes" in text
        assert str(tenant.id) not in text
        assert "manuals" not in text
        embedder.away = False
        await asyncio.sleep(0.25)
        assert (await search(s)).body["degraded"] == []


@pytest.mark.parametrize("other", [None, HashedWords(size=8), HashedWords(name="newer")])
async def test_another_embedder_than_the_corpus_has_leaves_words(serving, database, tenant, other):
    await fill(database, tenant)
    async with serving() as s:
        if other is not None:
            knows(s, other)
        answer = await search(s)
        assert (answer.status, answer.body["degraded"]) == (200, ["dense"])
        assert answer.body["hits"][0]["doc_id"] == "pumps.md"


async def test_a_corpus_that_lost_a_vector_is_searched_by_words(serving, database, tenant):
    corpus = await fill(database, tenant)
    async with owned(database, tenant.id) as connection:
        await connection.execute(
            "DELETE FROM corpus_vector WHERE hash = (SELECT min(hash) FROM corpus_vector)"
        )
    with pytest.raises(CorpusError, match="have no vector"):
        await corpus.open("manuals")
    async with serving() as s:
        knows(s)
        answer = await search(s)
        assert (answer.status, answer.body["degraded"]) == (200, ["dense"])
        assert answer.body["hits"][0]["doc_id"] == "pumps.md"


async def test_a_corpus_without_vectors_is_searched_by_words(serving, database, tenant):
    corpus = corpora(database, tenant.id)
    await corpus.add("manuals", texts(), embedder="none")
    async with serving() as s:
        answer = await search(s)
        assert (answer.status, answer.body["degraded"]) == (200, [])
        refused = await search(s, variant="dense")
        assert (refused.status, refused.body["code"]) == (422, "invalid")


async def test_an_empty_corpus_answers_nothing(serving, database, tenant):
    await corpora(database, tenant.id).create("manuals", embedder="none")
    async with serving() as s:
        answer = await search(s)
        assert (answer.status, answer.body["hits"]) == (200, [])


async def test_without_the_extra_it_is_said_what_to_install(serving, database, tenant, monkeypatch):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        monkeypatch.setitem(sys.modules, "bm25s", None)
        answer = await search(s)
        assert (answer.status, answer.body["code"]) == (503, "unavailable")
        assert how_to_install("rag") in answer.body["detail"]
        assert (await s.ask("GET", "/readyz")).status == 200
        monkeypatch.undo()
        later(s)
        assert (await search(s)).status == 200


async def test_who_waits_too_long_is_told_and_the_corpus_is_there_next_time(
    serving, database, tenant
):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        load = s.service.corpora.load

        async def slow(*place):
            await asyncio.sleep(0.3)
            return await load(*place)

        s.service.corpora.load = slow
        late = await search(s, deadline_ms=50)
        assert (late.status, late.body["code"]) == (503, "unavailable")
        assert late.headers["retry-after"] == "1"
        assert (await search(s)).status == 200
        assert s.service.corpora.counts.loads == 1


async def test_a_busy_service_sheds_searches_before_decisions(serving, database, tenant):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        s.service.guard.state = GuardianState.BROWNOUT
        answer = await search(s)
        s.service.guard.state = GuardianState.NORMAL
        assert (answer.status, answer.body["code"]) == (503, "unavailable")


async def test_a_key_needs_its_scope(serving, database, tenant):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        _, reads = await s.new_key(database, tenant, role="observer")
        _, applies = await s.new_key(database, tenant, role="application")
        body = {"corpus": "manuals", "query": "pump"}
        assert (await s.ask("POST", "/v1/search", body, key=reads)).status == 403
        assert (await s.ask("POST", "/v1/search", body, key=applies)).status == 200
        assert (await s.ask("POST", "/v1/search", body, key=None)).status == 401


async def test_anothers_corpus_is_as_absent_as_one_that_nobody_has(serving, database, tenant):
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    theirs = corpora(database, other.id)
    await theirs.add("secret", [Document("s", "Their secret.")], embedder="hashed")
    await theirs.add("manuals", [Document("s", "Their secret.")], embedder="hashed")
    await theirs.snapshot("manuals", "v1")
    await fill(database, tenant)
    async with serving() as s:
        knows(s)
        _, key = await s.new_key(database, other)
        for path, body in (
            ("/v1/search", {"query": "secret"}),
            ("/v1/documents", {"doc_id": "s"}),
        ):
            said = [
                str((await s.ask("POST", path, {**body, "corpus": name})).body).replace(name, "N")
                for name in ("secret", "absent")
            ]
            assert said[0] == said[1]
            assert "'status': 404" in said[0]
        # A name that both have is each one's own, in the cache as well.
        for _ in range(2):
            mine = await search(s, "secret")
            answer = await s.ask(
                "POST", "/v1/search", {"corpus": "manuals", "query": "secret"}, key=key
            )
            assert "s" not in {hit["doc_id"] for hit in mine.body["hits"]}
            assert [hit["text"] for hit in answer.body["hits"]] == ["Their secret."]
        assert (await search(s, snapshot="v1")).status == 404


@pytest.mark.slow
async def test_the_time_of_an_answer_does_not_tell_whether_a_name_is_anothers(
    serving, database, tenant
):
    """Medians of 150 alternating pairs within a fifth; three attempts, on a busy machine."""
    other = await create_tenant(database, f"t-{uuid4().hex}", actor="test")
    theirs = corpora(database, other.id)
    for number in range(5):
        await theirs.add(f"secret{number}", texts(), embedder="none")
    async with serving() as s:
        for _ in range(3):
            times = {"secret": [], "absent": []}
            for place in range(150):
                for kind in sorted(times, reverse=place % 2 == 0):
                    begun = time.perf_counter()
                    answer = await search(s, corpus=f"{kind}{place % 5}")
                    times[kind].append(time.perf_counter() - begun)
                    assert answer.status == 404
            low, high = sorted(statistics.median(values) for values in times.values())
            if high - low < 0.2 * low:
                return
        pytest.fail(f"medians differ: {low} and {high}")


async def test_what_is_erased_is_not_in_memory_any_more(serving, database, tenant):
    corpus = await fill(database, tenant)
    await corpus.snapshot("manuals", "v1")
    async with serving() as s:
        knows(s)
        for snapshot in (None, "v1"):
            found = (await search(s, snapshot=snapshot)).body["hits"]
            assert "pumps.md" in {hit["doc_id"] for hit in found}
        await corpus.erase("manuals", ["pumps.md"], reason="asked for")
        for snapshot in (None, "v1"):
            found = (await search(s, snapshot=snapshot)).body["hits"]
            assert "pumps.md" not in {hit["doc_id"] for hit in found}


async def test_a_damaged_corpus_is_told_and_not_asked_for_again_at_once(serving, database, tenant):
    await fill(database, tenant)
    async with serving() as s:
        knows(s)

        async def broken(*_):
            raise DataError("the vectors are gone")

        load, s.service.corpora.load = s.service.corpora.load, broken
        for _ in range(3):
            answer = await search(s)
            assert (answer.status, answer.body["detail"]) == (503, "the vectors are gone")
        assert s.service.corpora.counts.failures == 1
        later(s)
        assert (await search(s)).status == 503
        assert s.service.corpora.counts.failures == 2
        s.service.corpora.load = load
        later(s, 10.0)
        assert (await search(s)).status == 200
