"""What evaluations come to is counted: by how they end, what they find, and nobody's name."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import pytest

from steersman.platform.telemetry.exposition import render
from steersman_systems.rag_tuner.service.evaluation import Found
from steersman_systems.rag_tuner.service.messages import (
    AskedAnswers,
    AskedConfiguration,
    AskedQuestion,
    EvaluatedConfiguration,
    EvaluateRequest,
    Evaluation,
    ShownEstimate,
)
from steersman_systems.rag_tuner.service.metrics import RESULTS, TunerCounts
from tests.api.test_health import values
from tests.systems.rag_tuner.service.test_tuner_judging import Model, settings
from tests.systems.rag_tuner.service.test_tuner_judging import evaluate as evaluate_answers
from tests.systems.rag_tuner.service.test_tuner_judging import model as model  # noqa: PLC0414 (a fixture)
from tests.systems.rag_tuner.service.test_tuning import (
    BOTH,
    QUESTIONS,
    WORDS,
    Failing,
    evaluate,
    fill,
)

RERANKED = {**WORDS, "rerank": True}


async def counted(s):
    """Return the series of the tuner by name and labels, but the process."""
    found = values((await s.ask("GET", "/metrics", key=None)).body)
    return {
        (name.removeprefix("steersman_tuner_"), *(it for it in labels if it != "process=0")): value
        for (name, *labels), value in found.items()
        if name.startswith("steersman_tuner_")
    }


def ends(found):
    """Return how many evaluations ended how, those that none did left out."""
    every = {result: found["evaluations_total", f"result={result}"] for result in RESULTS}
    return {result: count for result, count in every.items() if count}


async def test_everything_is_told_as_nothing_before_the_first(serving):
    async with serving() as s:
        found = await counted(s)
        assert ends(found) == {}
        assert found["evaluations_total", "result=done"] == 0
        kind = ("gates=broken", "judged=answers", "rerank=true", "variant=rrf")
        assert found["configurations_total", *kind] == 0
        assert found["breaches_total", "gate=p95_latency_ms"] == 0
        assert found["line", "state=waiting"] == found["line", "state=running"] == 0


async def test_what_an_evaluation_finds_is_counted_by_configuration(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        told = (await evaluate(s, configurations=[WORDS, BOTH, RERANKED])).body["configurations"]
        answer = await s.ask("GET", "/metrics", key=None)
        found = await counted(s)
        assert ends(found) == {"done": 1}
        for one in told:
            parts = one["configuration"]
            rerank = f"rerank={str(parts['rerank']).lower()}"
            kind = ("judged=passages", rerank, f"variant={parts['variant']}")
            gained, lost = (found[f"reward_{way}_total", *kind] for way in ("gained", "lost"))
            assert gained - lost == pytest.approx(one["reward"]["value"])
            assert found["rewards_total", *kind] == 1
        assert sum(v for k, v in found.items() if k[0] == "configurations_total") == 3
        broken = sum(len(one["breaches"]) for one in told)
        assert sum(v for k, v in found.items() if k[0] == "breaches_total") == broken
        assert found["questions_total", "result=counted"] == 6
        assert found["query_seconds_count", "judged=passages"] == 6
        assert found["query_seconds_sum", "judged=passages"] > 0
        assert found["evaluation_seconds_count", "judged=passages"] == 1
        assert found["wait_seconds_count",] == 1
        text = answer.body.decode()
        for word in (str(tenant.id), tenant.name, "manuals", "pumps", "bearing"):
            assert word not in text


async def test_rewards_by_weights_of_ones_own_are_not_mixed_with_the_others(
    serving, database, tenant
):
    async with serving() as s:
        await fill(database, tenant, s)
        assert (await evaluate(s, weights={"alpha": 100.0})).status == 200
        found = await counted(s)
        assert sum(v for k, v in found.items() if k[0] == "rewards_total") == 0
        assert sum(v for k, v in found.items() if k[0] == "configurations_total") == 2


async def test_how_evaluations_end_is_told_apart(serving, database, tenant, monkeypatch):
    async with serving() as s:
        embedder = Failing()
        await fill(database, tenant, s, embedder)
        assert (await evaluate(s, corpus="nobodys")).status == 404
        assert (await evaluate(s, configurations=[])).status == 422
        assert ends(await counted(s)) == {"refused": 2}
        embedder.away = True
        assert (await evaluate(s, questions=[{**QUESTIONS[0], "text": "hum"}])).status == 503
        # For a while it is not asked again; words need none.
        words = partial(evaluate, s, configurations=[WORDS])
        assert ends(await counted(s)) == {"refused": 2, "away": 1}
        many = [{"text": f"worn bearing {n}", "gold": ["pumps.md"]} for n in range(900)]
        assert (await words(questions=many, deadline_ms=20)).status == 503
        assert ends(await counted(s)) == {"refused": 2, "away": 1, "late": 1}
        answers = await asyncio.gather(*(words(questions=many) for _ in range(6)))
        busy = sum(answer.status == 503 for answer in answers)
        assert busy
        found = await counted(s)
        assert ends(found) == {"refused": 2, "away": 1, "late": 1, "busy": busy, "done": 6 - busy}
        assert found["wait_seconds_sum",] > 0
        monkeypatch.setattr(s.service.systems["rag_tuner"], "_work", None)
        assert (await words()).status == 500
        assert ends(await counted(s))["failed"] == 1


async def test_what_runs_and_what_waits_is_told(serving, database, tenant):
    async with serving() as s:
        await fill(database, tenant, s)
        assert (await evaluate(s)).status == 200
        many = [{"text": f"worn bearing {n}", "gold": ["pumps.md"]} for n in range(1000)]
        asked = [asyncio.create_task(evaluate(s, questions=many)) for _ in range(3)]
        seen = set()
        async with asyncio.timeout(20):
            while (1.0, 2.0) not in seen:
                found = await counted(s)
                seen.add((found["line", "state=running"], found["line", "state=waiting"]))
        assert [one.status for one in await asyncio.gather(*asked)] == [200] * 3
        assert max(running for running, _ in seen) == 1.0  # of one tenant one runs at a time
        found = await counted(s)
        assert found["line", "state=waiting"] == 0


async def test_a_budget_that_ends_is_no_evaluation_that_is_done(serving, database, tenant, model):
    async with serving(settings=settings(model, day_calls=5)) as s:
        await fill(database, tenant, s)
        assert (await evaluate_answers(s, answers={"max_calls": 5})).status == 200
        assert (await evaluate_answers(s, questions=QUESTIONS[1:])).status == 429
        found = await counted(s)
        assert ends(found) == {"budget": 2}
        assert found["questions_total", "result=unjudged"] > 0
        assert found["model_calls_total",] == 5
        assert isinstance(model.answer, Model)
        kinds = [k for k, v in found.items() if k[0] == "configurations_total" and v]
        assert kinds
        assert all("judged=answers" in labels for labels in kinds)


def configured(reward, **more):
    configuration = AskedConfiguration("rrf", rerank=True)
    told = {"questions": 3, "breaches": [], "reward": reward and ShownEstimate(reward), **more}
    return EvaluatedConfiguration(configuration=configuration, **told)


def test_what_is_lost_is_counted_beside_what_is_gained_and_processes_are_told_apart():
    counts = [TunerCounts(), TunerCounts()]
    question = [AskedQuestion("why", ["a"])]
    asked = EvaluateRequest("c", [AskedConfiguration()], question, answers=AskedAnswers())
    each = [
        configured(-0.75, breaches=["relevancy"], failed=1, degraded=2),
        configured(0.5),
        configured(None, questions=0, unjudged={"judge": 4}),
    ]
    found = Found(Evaluation("c", 1, [], each, 3, [], []), took_ms=[np.array([1.0, 20_000.0])])
    counts[1].answered(asked, found, 3.0)
    counts[1].waited(0.02)
    told = values(render({str(n): list(one.families()) for n, one in enumerate(counts)}))
    kind = ("judged=answers", "process=1", "rerank=true", "variant=rrf")
    assert told["steersman_tuner_reward_lost_total", *kind] == 0.75
    assert told["steersman_tuner_reward_gained_total", *kind] == 0.5
    assert told["steersman_tuner_rewards_total", *kind] == 2
    for state in ("held", "broken", "unknown"):
        labels = (f"gates={state}", *kind)
        assert told["steersman_tuner_configurations_total", *labels] == 1
    assert told["steersman_tuner_breaches_total", "gate=relevancy", "process=1"] == 1
    for result, count in (("counted", 5), ("failed", 1), ("degraded", 2), ("unjudged", 4)):
        labels = ("process=1", f"result={result}")
        assert told["steersman_tuner_questions_total", *labels] == count
    by = ("judged=answers", "process=1")
    assert told["steersman_tuner_query_seconds_count", *by] == 2
    assert told["steersman_tuner_query_seconds_sum", *by] == pytest.approx(20.001)
    assert told["steersman_tuner_query_seconds_bucket", by[0], "le=10.0", by[1]] == 1
    assert told["steersman_tuner_evaluations_total", "process=0", "result=done"] == 0
    assert told["steersman_tuner_evaluations_total", "process=1", "result=done"] == 1
