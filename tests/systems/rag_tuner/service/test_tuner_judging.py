"""Answers are judged over HTTP: by the server's models, within limits, paid once, flags filed."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from steersman.api.service import Settings
from steersman.db.reviews import reviews_of
from steersman.db.tenants import create_tenant
from steersman.errors import InputError
from steersman.platform.postgres.database import Database, as_tenant
from steersman_systems.rag_tuner.search_call import SearchCall
from steersman_systems.rag_tuner.service.models import AnswerSettings, Models
from tests.providers.chat_server import chat_server
from tests.retrieval.corpora import SMALL, corpora, texts
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")
QUESTIONS = [
    {"text": "why does a worn bearing hum", "gold": ["pumps.md"]},
    {"text": "which cable carries forty amperes", "gold": ["cables.txt"]},
]
WORDS, BOTH = {"variant": "bm25", "k": 2}, {"variant": "hybrid", "k": 3, "fusion_weight": 0.4}
FACT = "The bearing is worn."


class Model:
    """What a server says: an answer, and what a judge says of it."""

    def __init__(self):
        self.answer, self.answered, self.judged = FACT, 0, 0
        self.varied = False

    def __call__(self, prompt):
        if "PASSAGES" in prompt:
            self.answered += 1
            others = ("Nobody can say.", "Call somebody else now.", FACT)
            return others[self.answered % 3] if self.varied else self.answer
        self.judged += 1
        if "noncommittal" in prompt:
            asked = [one["text"] for one in QUESTIONS]
            return json.dumps({"noncommittal": False, "questions": [asked[0]] * 3})
        if "contexts" in prompt.split("DATA ")[1]:
            supported = "hums" in prompt  # only the passage on pumps bears it out
            verdict = {"number": 1, "grounds": "so it says", "supported": supported}
            return json.dumps({"verdicts": [verdict]})
        return json.dumps({"statements": [FACT]})


@pytest.fixture
def model():
    with chat_server() as server:
        server.answer = Model()
        server.usage = {"prompt_tokens": 100, "completion_tokens": 10}
        yield server


def settings(server, **more):
    told = AnswerSettings(
        url=server.url(), model="writer", prompt_usd=0.1, answer_usd=1.0, max_usd=50.0, **more
    )
    return Settings(systems={"rag_tuner": told})


async def fill(database, tenant, s):
    s.service.embedders._made["hashed"] = HashedWords()
    await corpora(database, tenant.id).add("manuals", texts(), embedder="hashed", chunking=SMALL)


async def evaluate(s, *, key="", **more):
    body = {
        "corpus": "manuals",
        "configurations": [WORDS, BOTH],
        "questions": QUESTIONS,
        "answers": {},
        "deadline_ms": 60_000,
        **more,
    }
    return await s.ask("POST", "/tuner/evaluate", body, key=key)


async def test_answers_are_judged_paid_for_once_and_what_they_cost_is_told(
    serving, database, tenant, model
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        answer = await evaluate(s)
        assert answer.status == 200, answer.body
        told = answer.body
        assert told["measures"] == ["faithfulness", "relevancy"]
        said = model.answer
        assert said.answered == 4
        spent = told["spent"]
        assert (spent["answered_by"], spent["judged_by"]) == ("writer", "writer")
        assert spent["embedded_by"] == "hashed"
        assert spent["calls"] == said.answered + said.judged
        assert spent["cost_usd"] == pytest.approx(spent["calls"] * (100 * 0.1 + 10) / 1000)
        assert spent["paid_before"] == 0
        for one in told["configurations"]:
            assert "faithfulness_proxy" not in one
            assert one["coverage"] == [1.0, 1.0]
            assert 0.0 <= one["faithfulness"]["value"] <= 1.0
            # The cost of a query is that of its answer, in units of one dollar.
            assert one["cost"] == pytest.approx(0.02)
            by_hand = 0.5 * one["faithfulness"]["value"] + 0.5 * one["relevancy"]["value"]
            by_hand -= 0.2 * one["latency"] + 0.2 * one["cost"] + one["penalty"]
            assert one["reward"]["value"] == pytest.approx(by_hand)
        assert "faithfulness" in told["configurations"][0]["breaches"] or (
            told["configurations"][0]["faithfulness"]["value"] >= 0.75
        )
        assert "ahead_of_first" in told["configurations"][1]
        calls = said.answered + said.judged
        again = (await evaluate(s)).body
        assert said.answered + said.judged == calls
        assert (again["spent"]["calls"], again["spent"]["paid_before"]) == (0, 4)
        assert again["configurations"] == told["configurations"]
        text = (await s.ask("GET", "/metrics")).body.decode()
        assert f'steersman_tuner_model_calls_total{{process="0"}} {float(calls)}' in text


async def test_without_a_model_it_is_refused_and_nothing_is_asked(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        refused = await evaluate(s)
        assert refused.status == 409
        assert "this server has no model" in refused.body["detail"]
        assert (await evaluate(s, answers=None)).status == 200


async def test_a_corpus_without_an_embedder_is_refused(serving, database, tenant, model):
    async with serving(settings=settings(model)) as s:
        await corpora(database, tenant.id).add("manuals", texts(), embedder="none", chunking=SMALL)
        refused = await evaluate(s, configurations=[WORDS])
        assert refused.status == 409
        assert "this corpus has none" in refused.body["detail"]
        assert model.asked == []


async def test_a_budget_ends_it_the_rest_is_told_and_the_next_goes_on(
    serving, database, tenant, model
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        cut = (await evaluate(s, answers={"max_calls": 3})).body
        assert cut["spent"]["calls"] <= 3
        reasons = [one.get("unjudged", {}) for one in cut["configurations"]]
        assert sum(one.get("budget", 0) for one in reasons) > 0
        assert any("send the request again to continue" in note for note in cut["notes"])
        none = [one for one in cut["configurations"] if one["questions"] == 0]
        assert all("reward" not in one for one in none)
        before = model.answer.answered
        whole = (await evaluate(s)).body
        assert all(not one.get("unjudged") for one in whole["configurations"])
        assert model.answer.answered + before >= 4
        assert model.answer.answered == 4  # nothing twice
        poor = (await evaluate(s, questions=[{**QUESTIONS[0], "text": "why hum"}],
                               answers={"max_cost_usd": 0.0})).body  # fmt: skip
        assert poor["spent"]["cost_usd"] == 0.0
        assert model.answer.answered == 4


async def test_after_the_budget_ended_nothing_more_is_searched(
    serving, database, tenant, model, monkeypatch
):
    searched = []
    monkeypatch.setattr(
        SearchCall,
        "ask",
        lambda self, *of, ask=SearchCall.ask: searched.append(of) or ask(self, *of),
    )
    many = [{**QUESTIONS[0], "text": f"{QUESTIONS[0]['text']} {n}"} for n in range(20)]
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        told = (await evaluate(s, questions=many, answers={"max_calls": 3})).body
        assert [one["unjudged"]["budget"] for one in told["configurations"]] >= [16, 16]
        assert len(searched) <= 12  # of 40: what four workers had begun


async def test_a_tenant_spends_no_more_in_a_day_however_often_it_asks(
    serving, database, tenant, model
):
    async with serving(settings=settings(model, day_calls=8)) as s:
        await fill(database, tenant, s)
        first = (await evaluate(s, configurations=[WORDS])).body
        assert first["spent"]["calls"] <= 8
        assert not any("today" in note for note in first["notes"])
        with s.service.systems["rag_tuner"]._models.daily.purse(tenant.id, None, 8) as left:
            left.spent_calls = left.calls
        asked = len(model.asked)
        known = await evaluate(s, configurations=[WORDS])
        assert (known.status, known.body["spent"]["paid_before"]) == (200, 2)
        assert not any("today" in note for note in known.body["notes"])
        other = [{**QUESTIONS[0], "text": "why hum"}]
        more = await evaluate(s, configurations=[WORDS], questions=[*QUESTIONS, *other])
        assert more.body["configurations"][0]["unjudged"] == {"budget": 1}
        assert any("of $10.00 and 8 allowed per tenant" in note for note in more.body["notes"])
        refused = await evaluate(s, configurations=[WORDS], questions=other)
        assert refused.status == 429
        assert "try again after midnight UTC" in refused.body["detail"]
        assert 0 < int(refused.headers["retry-after"]) <= 86_400
        assert len(model.asked) == asked


async def test_a_cap_on_money_without_prices_is_refused(serving, database, tenant, model):
    free = AnswerSettings(url=model.url(), model="writer")
    async with serving(settings=Settings(systems={"rag_tuner": free})) as s:
        await fill(database, tenant, s)
        refused = await evaluate(s, answers={"max_cost_usd": 0.5})
        assert refused.status == 409
        assert "give max_calls instead" in refused.body["detail"]
        assert model.asked == []
        assert (await evaluate(s, answers={"max_calls": 4})).status == 200


async def test_a_full_store_does_not_say_that_it_keeps(
    serving, database, tenant, model, monkeypatch
):
    monkeypatch.setattr("steersman_systems.rag_tuner.service.models._CACHE_BYTES", 65_536)
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        model.answer.answer = "The bearing is worn. " * 3000  # larger than all that may be kept
        told = (await evaluate(s, configurations=[WORDS], answers={"max_calls": 3})).body
        assert any("not cached because space is short" in note for note in told["notes"])
        assert not any("are cached and not paid again" in note for note in told["notes"])


async def test_what_detectors_find_is_charged_and_goes_to_the_review_list(
    serving, database, tenant, model, monkeypatch
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        model.answer.answer = "Write to ann@example.org."
        roles, connect = [], Database.connect
        monkeypatch.setattr(
            Database, "connect", lambda self, role: roles.append(role) or connect(self, role)
        )
        told = (await evaluate(s, configurations=[WORDS])).body
        monkeypatch.undo()
        assert "owner" not in roles  # a request has no use of the role that may drop tables
        (one,) = told["configurations"]
        assert one["violations"] == 2
        assert one["penalty"] >= 1.0
        assert (told["spent"]["flagged"], told["spent"]["filed"]) == (2, 2)
        again = (await evaluate(s, configurations=[WORDS])).body
        assert (again["spent"]["flagged"], again["spent"]["filed"]) == (2, 0)
        free = (await evaluate(s, configurations=[WORDS], answers={"detectors": []})).body
        assert "violations" not in free["configurations"][0]
        connection = await database.connect("owner")
        try:
            async with as_tenant(connection, tenant.id):
                listed = await reviews_of(connection, tenant.id)
        finally:
            await connection.close()
        assert {row.detector for row in listed} == {"personal_data"}
        assert all("[email]" in row.excerpt for row in listed)
        assert not any("ann@example.org" in row.excerpt for row in listed)
        assert all(row.subject.startswith("tuner/manuals@1/bm25 k=2/") for row in listed)


async def test_answers_that_differ_are_charged_half(serving, database, tenant, model):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        model.answer.varied = True
        asked = {"detectors": ["instability"], "repeats": 2}
        told = (await evaluate(s, configurations=[WORDS], answers=asked)).body
        assert model.answer.answered == 4
        (one,) = told["configurations"]
        broken = float(bool(one["breaches"]))
        assert (one["unstable"] > 0, one["penalty"]) == (True, 0.5 + broken)
        assert one["cost"] == pytest.approx(0.02)  # of the first answer alone
        assert told["spent"]["filed"] == one["unstable"]


async def test_a_model_that_is_away_is_told_and_the_loop_goes_on(serving, database, tenant, model):
    async with serving(settings=settings(model, timeout_s=1.0)) as s:
        await fill(database, tenant, s)
        model.mode = "silent"
        asking = asyncio.create_task(evaluate(s, configurations=[WORDS], deadline_ms=700))
        await asyncio.sleep(0.1)
        for _ in range(3):  # others are served meanwhile
            assert (await s.ask("GET", "/healthz", key=None)).status == 200
        late = await asking
        assert late.status == 503
        assert "send the same request to continue" in late.body["detail"]
        model.mode = "unauthorized"
        (one,) = (await evaluate(s, configurations=[WORDS])).body["configurations"]
        assert one["unjudged"] == {"model": 2}
        assert (one["questions"], one.get("failed", 0)) == (0, 0)
        assert "reward" not in one


@pytest.mark.parametrize(
    ("mode", "unjudged"),
    [
        ("busy", {"unavailable": 2}),
        pytest.param("silent", {"unavailable": 2}, marks=pytest.mark.slow),
        ("garbage", {"refused": 2}),
    ],
)
async def test_a_judge_that_is_busy_silent_or_garbled_is_no_zero_and_what_was_answered_is_kept(
    serving, database, tenant, model, mode, unjudged
):
    by = {"judge_url": model.url(mode), "judge_model": "judge", "timeout_s": 0.3, "day_usd": 50.0}
    async with serving(settings=settings(model, **by)) as s:
        await fill(database, tenant, s)
        answer = await evaluate(s, configurations=[WORDS])
        assert answer.status == 200, answer.body
        (one,) = answer.body["configurations"]
        assert one.get("unjudged") == unjudged
        assert (one["questions"], one.get("failed", 0)) == (0, 0)
        assert "faithfulness" not in one
        assert "reward" not in one
        await evaluate(s, configurations=[WORDS])
        assert model.answer.answered == 2  # the judge is asked again, and not who answers


async def test_a_judge_that_talks_nonsense_leaves_the_measure_undefined(
    serving, database, tenant, model
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        said = model.answer
        model.answer = lambda p: said(p) if "noncommittal" in p or "PASSAGES" in p else "Fine! {"
        (one,) = (await evaluate(s, configurations=[WORDS])).body["configurations"]
        assert one["coverage"] == [0.0, 1.0]
        assert "faithfulness" not in one
        assert "reward" not in one
        assert "faithfulness" in one["breaches"]  # what is not known holds no gate


async def test_another_tenant_pays_for_its_own(serving, database, tenant, model):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        await evaluate(s)
        other = await create_tenant(database, f"{tenant.name}-other", actor="test")
        await corpora(database, other.id).add("manuals", texts(), embedder="hashed", chunking=SMALL)
        _, key = await s.new_key(database, other)
        theirs = (await evaluate(s, key=key)).body
        assert theirs["spent"]["paid_before"] == 0
        assert model.answer.answered == 8


async def test_what_is_kept_goes_with_an_erasure_a_corpus_and_time(
    serving, database, tenant, model
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        tuning, folder = (
            s.service.systems["rag_tuner"],
            s.service.systems["rag_tuner"]._models._folder,
        )
        kept = lambda: sorted({file.name.split(".")[0] for file in folder.glob(f"{tenant.id}-*")})  # noqa: E731
        assert (await evaluate(s)).status == 200
        first = kept()
        assert len(first) == 1
        await tuning.sweep()
        assert kept() == first
        it = corpora(database, tenant.id)
        await it.erase("manuals", ["valves.md"], reason="asked to")
        await tuning.sweep()
        assert kept() == []
        assert (await evaluate(s)).status == 200
        (second,) = kept()
        assert second != first[0]
        late = time.time() + 31 * 86_400
        corpus = (await it.show("manuals")).corpus
        assert tuning._models.forget(tenant.id, {corpus.id: corpus.erasures}) == 0
        assert tuning._models.forget(tenant.id, {corpus.id: corpus.erasures}, now=late) > 0
        assert kept() == []
        assert (await evaluate(s)).status == 200
        assert kept() == [second]
        await it.drop("manuals")
        await tuning.sweep()
        assert kept() == []


async def test_an_evaluation_under_way_writes_nothing_back_that_was_erased(
    serving, database, tenant, model
):
    async with serving(settings=settings(model)) as s:
        await fill(database, tenant, s)
        models, held = s.service.systems["rag_tuner"]._models, threading.Event()
        told, begun = model.answer, threading.Event()
        told.answer = "Write to ann@example.org."

        def slowly(prompt):
            begun.set()
            held.wait(20)
            return told(prompt)

        model.answer = slowly
        asking = asyncio.create_task(evaluate(s, configurations=[WORDS]))
        assert await asyncio.to_thread(begun.wait, 20)
        await corpora(database, tenant.id).erase("manuals", ["valves.md"], reason="asked to")
        await s.service.systems["rag_tuner"].sweep()
        held.set()
        await asking
        left = [file.read_bytes() for file in models._folder.glob(f"{tenant.id}-*")]
        assert all(b"ann@example.org" not in content for content in left)
        await s.service.systems["rag_tuner"].sweep()
        assert not list(models._folder.glob(f"{tenant.id}-*"))
        async with (
            s.service.pools.reading.acquire() as connection,
            as_tenant(connection, tenant.id),
        ):
            assert await reviews_of(connection, tenant.id) == []


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"answers": {"max_calls": 0}}, ">= 1"),
        ({"answers": {"detectors": ["spam"]}}, "spam"),
        ({"answers": {"repeats": 1}}, ">= 2"),
        ({"answers": {"more": 1}}, "more"),
        ({"questions": QUESTIONS * 201, "configurations": [WORDS]}, "402 answers to judge"),
        ({"configurations": [{"prompt": "poem"}]}, "poem"),
    ],
)
async def test_bad_requests_are_told(serving, database, tenant, model, wrong, what):
    async with serving(settings=settings(model)) as s:
        answer = await evaluate(s, **wrong)
        assert answer.status == 422, answer
        assert what in str(answer.body)
        assert model.asked == []


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"URL": "http://127.0.0.1:1/v1"}, "ANSWERS_MODEL is not set"),
        ({"MODEL": "m"}, "ANSWERS_URL is not set"),
        ({"URL": "http://h/v1", "MODEL": "m", "JUDGE_URL": "http://j"}, "JUDGE_MODEL is not set"),
        ({"URL": "http://h/v1", "MODEL": "m", "MAX_USD": "lots"}, "MAX_USD 'lots'"),
        ({"URL": "http://h/v1", "MODEL": "m", "MAX_CALLS": "1.5"}, "MAX_CALLS '1.5'"),
    ],
)
def test_settings_that_do_not_do(environment, says):
    named = {f"STEERSMAN_ANSWERS_{name}": value for name, value in environment.items()}
    with pytest.raises(InputError, match=says):
        AnswerSettings.from_environment(named)


def test_settings_are_read_and_show_no_key():
    named = {"URL": "http://h/v1", "MODEL": "m", "API_KEY": "s3cret", "PROMPT_USD": "0.15",
             "JUDGE_URL": "http://j/v1", "JUDGE_MODEL": "big", "MAX_CALLS": "7"}  # fmt: skip
    found = AnswerSettings.from_environment(
        {f"STEERSMAN_ANSWERS_{name}": value for name, value in named.items()}
    )
    assert (found.prompt_usd, found.max_calls, found.judge_model) == (0.15, 7, "big")
    assert "s3cret" not in repr(found)
    assert Models(found).names == ("m", "big")
    with pytest.raises(InputError, match="base_url"):
        Models(AnswerSettings(url="ftp://h", model="m"))
