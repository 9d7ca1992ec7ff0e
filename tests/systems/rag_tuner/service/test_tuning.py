"""Configurations are evaluated over HTTP: on one's own corpus, within limits, gaps told plainly."""

from __future__ import annotations

import asyncio

import pytest

from steersman.db.tenants import create_tenant
from steersman.errors import BackendUnavailableError
from tests.retrieval.corpora import SMALL, corpora, texts
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")
QUESTIONS = [
    {"text": "why does a worn bearing hum", "gold": ["pumps.md"]},
    {"text": "which cable carries forty amperes", "gold": ["cables.txt"]},
]
WORDS, BOTH = {"variant": "bm25", "k": 3}, {"variant": "hybrid", "k": 8, "fusion_weight": 0.4}


class Failing(HashedWords):
    """An embedder whose server goes away."""

    away = False

    def encode(self, texts):
        if self.away:
            raise BackendUnavailableError("the embedder is away")
        return super().encode(texts)


async def fill(database, tenant, s, embedder=None):
    s.service.embedders._made["hashed"] = embedder or HashedWords()
    await corpora(database, tenant.id).add("manuals", texts(), embedder="hashed", chunking=SMALL)


async def evaluate(s, *, key="", **more):
    body = {
        "corpus": "manuals",
        "configurations": [WORDS, BOTH],
        "questions": QUESTIONS,
        "deadline_ms": 60_000,
        **more,
    }
    return await s.ask("POST", "/tuner/evaluate", body, key=key)


async def test_every_configuration_is_told_what_it_is_worth(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        answer = await evaluate(s)
        assert answer.status == 200, answer.body
        told = answer.body
        assert (told["corpus"], told["revision"], told["questions"]) == ("manuals", 1, 2)
        assert told["measures"] == ["recall", "ndcg"]
        assert told["missing_gold"] == []
        assert told["notes"] == [
            "F and R are recall and nDCG of gold documents; no answers were written or judged"
        ]
        first, second = told["configurations"]
        assert first["configuration"]["variant"] == "bm25"
        # Two questions that both fare well are no certainty.
        proxy = first["faithfulness_proxy"]
        assert (proxy["value"], proxy["high"]) == (1.0, 1.0)
        assert proxy["low"] < 0.2
        assert first["breaches"] == []
        assert (first["cost"], second["cost"]) == (3 / 16, 8 / 16)
        assert first["latency_p50_ms"] <= first["latency_p95_ms"]
        for one in told["configurations"]:
            f, r = one["faithfulness_proxy"]["value"], one["relevancy_proxy"]["value"]
            by_hand = 0.5 * f + 0.5 * r - 0.2 * one["latency"] - 0.2 * one["cost"]
            assert one["reward"]["value"] == pytest.approx(by_hand - one["penalty"])
            assert one["reward"]["low"] <= one["reward"]["value"] <= one["reward"]["high"]
        assert "ahead_of_first" not in first
        ahead = second["reward"]["value"] - first["reward"]["value"]
        assert second["ahead_of_first"]["value"] == pytest.approx(ahead)


async def test_weights_and_slices_are_taken(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        weights = {"alpha": 1.0, "beta": 0.0, "gamma": 0.0, "delta": 0.0, "penalty": 0.0}
        one = (await evaluate(s, weights=weights)).body["configurations"][0]
        assert one["reward"]["value"] == one["faithfulness_proxy"]["value"]
        cut = (await evaluate(s, slice={"size": 1, "seed": 4})).body
        assert cut["questions"] == 1
        assert "low" not in cut["configurations"][0]["reward"]
        again = (await evaluate(s, slice={"size": 1, "seed": 4})).body
        quality = [one["configurations"][0]["relevancy_proxy"] for one in (cut, again)]
        assert quality[0] == quality[1]


async def test_gold_that_the_corpus_lacks_is_told_in_plain_words(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        asked = [
            {**QUESTIONS[0], "gold": ["pumps.md", "gone.md"]},
            {"text": "what nobody wrote down", "gold": ["never.md"]},
        ]
        told = (await evaluate(s, questions=asked)).body
        assert told["missing_gold"] == ["gone.md", "never.md"]
        assert told["questions"] == 1
        assert told["notes"][0] == (
            "1 of 2 questions have no gold document in 'manuals' and are excluded"
        )
        assert told["notes"][1].startswith("2 gold ids are not in 'manuals' ('gone.md'")
        assert told["configurations"][0]["faithfulness_proxy"]["value"] == 0.5
        none = await evaluate(s, questions=asked[1:])
        assert none.status == 422
        assert "1 of 1 questions have no gold document" in none.body["detail"]


async def test_degraded_searches_do_not_count(serving, database, tenant):
    async with serving() as s:
        embedder = Failing()
        await fill(database, tenant, s, embedder)
        assert (await evaluate(s)).status == 200
        embedder.away = True
        away = await evaluate(s, questions=[{**QUESTIONS[0], "text": "another humming bearing"}])
        assert away.status == 503
        assert "dense was not available for any question" in away.body["detail"]
        words = await evaluate(s, configurations=[WORDS])
        assert words.status == 200
        assert "degraded" not in words.body["configurations"][0]


async def test_bad_requests_are_told(serving, database, tenant, subtests):
    bad = [
        ({"configurations": []}, "length >= 1"),
        ({"configurations": [WORDS] * 51}, "length <= 50"),
        ({"configurations": [{"variant": "magic"}]}, "magic"),
        ({"configurations": [{"k": 0}]}, ">= 1"),
        ({"configurations": [{"k": True}]}, "int"),
        ({"configurations": [{"more": 1}]}, "more"),
        ({"questions": []}, "length >= 1"),
        ({"questions": [{"text": "x", "gold": []}]}, "length >= 1"),
        ({"questions": [{"text": " ", "gold": ["pumps.md"]}]}, "white space"),
        ({"questions": QUESTIONS * 50, "configurations": [WORDS] * 50}, "5,000 searches"),
        ({"slice": {"size": 0}}, ">= 1"),
        ({"weights": {"alpha": -1}}, ">= 0"),
        ({"deadline_ms": 0}, ">= 1"),
        ({"corpus": ""}, "length >= 1"),
    ]
    async with serving() as s:
        await fill(database, tenant, s)
        for wrong, what in bad:
            with subtests.test(str(wrong)[:80]):
                answer = await evaluate(s, **wrong)
                assert answer.status == 422, answer
                assert what in str(answer.body)


async def test_a_deadline_ends_it_and_nobody_waits_behind_it(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        await evaluate(s)
        many = [{"text": f"worn bearing {n}", "gold": ["pumps.md"]} for n in range(900)]
        late = await evaluate(s, questions=many, deadline_ms=20)
        assert late.status == 503
        assert "no answer within 20 ms" in late.body["detail"]
        async with asyncio.timeout(20):
            assert (await evaluate(s)).status == 200
        answers = await asyncio.gather(*(evaluate(s, questions=many) for _ in range(8)))
        statuses = {answer.status for answer in answers}
        assert statuses == {200, 503}
        refused = next(answer for answer in answers if answer.status == 503)
        assert (
            "4 evaluations of this tenant are already running or waiting" in refused.body["detail"]
        )
        assert int(refused.headers["retry-after"]) >= 1


async def test_one_tenant_keeps_no_other_waiting(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        await corpora(database, other.id).add("manuals", texts(), embedder="hashed", chunking=SMALL)
        _, key = await s.new_key(database, other)
        assert (await evaluate(s, key=key)).status == 200  # its corpus is loaded
        many = [{"text": f"worn bearing {n}", "gold": ["pumps.md"]} for n in range(1000)]
        long = [asyncio.create_task(evaluate(s, questions=many)) for _ in range(6)]
        # The fifth and sixth have no place.
        await asyncio.wait(long, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(3):
            assert (await evaluate(s, key=key)).status == 200
        left = [one for one in long if not one.done()]
        assert left  # theirs was done while others of the first were still to come
        answers = await asyncio.gather(*long)
        assert sorted(one.status for one in answers) == [200] * 4 + [503] * 2
        assert all(int(one.headers["retry-after"]) >= 1 for one in answers if one.status == 503)


async def test_another_tenants_corpus_is_not_there(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        _, key = await s.new_key(database, other)
        theirs = await evaluate(s, key=key)
        nobodys = await evaluate(s, key=key, corpus="manualx")
        assert theirs.status == nobodys.status == 404
        assert theirs.body["detail"].replace("manuals", "manualx") == nobodys.body["detail"]
        # A corpus of the same name of their own is theirs alone.
        await corpora(database, other.id).add("manuals", texts()[:1], chunking=SMALL)
        own = (await evaluate(s, key=key, configurations=[WORDS])).body
        assert own["missing_gold"]
        mine = (await evaluate(s, configurations=[WORDS])).body
        assert mine["missing_gold"] == []
        _, reads = await s.new_key(database, tenant, role="observer")
        refused = await evaluate(s, key=reads)
        assert refused.status == 403
