"""Live evaluation of searches: in time, at a rate, again where a part was away, kept."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import BackendUnavailableError, DataError, InputError
from steersman.retrieval.bm25 import words
from steersman.retrieval.query_words import searched_words
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner import evaluator as evaluating
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.evaluator import LiveEvaluator
from steersman_systems.rag_tuner.judged_collections import Question
from steersman_systems.rag_tuner.limits import EvaluationQueue, Limits
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.reward import reward_of
from tests.retrieval.hashed_words import HashedWords
from tests.systems.rag_tuner.live import ALL, QUESTIONS, WORDS, evaluator, passages

pytest.importorskip("bm25s")


class Flaky(HashedWords):
    """An embedder that is away for the first so many calls after the passages were embedded."""

    def __init__(self, away=0):
        super().__init__()
        self.away, self.calls = 0, 0
        self._then = away

    def begin(self):
        self.away = self._then

    def encode(self, texts):
        self.calls += 1
        if self.away > 0:
            self.away -= 1
            raise BackendUnavailableError("the embedder is away")
        return super().encode(texts)


def test_passages_are_judged_as_in_a_recording():
    batch = evaluator().evaluate(WORDS, ALL)
    assert batch.measures == ("recall", "ndcg")
    assert batch.quality.tolist() == [[1.0, 1.0]] * 3
    assert batch.cost.tolist() == [2 / 16] * 3
    assert (batch.latency_ms > 0).all()
    assert reward_of(batch, load_policy_config()).breaches == ()
    wrong = LiveEvaluator(
        Searcher(passages()), [Question("q", "pump hum", {"cables": 1.0})], revision="r"
    )
    assert wrong.evaluate(WORDS, np.arange(1)).quality.tolist() == [[0.0, 0.0]]


def test_what_was_found_is_not_asked_again(tmp_path):
    kept = JudgeCache(tmp_path / "kept.sqlite")
    embedder = Flaky()
    first = evaluator(embedder, kept=kept)
    dense = Configuration("dense", k=2)
    before = first.evaluate(dense, ALL[:2])
    calls = embedder.calls
    found = first.measure(dense, ALL)
    assert (found.paid_before, embedder.calls) == (2, calls + 1)
    assert found.batch.latency_ms[:2].tolist() == before.latency_ms.tolist()
    # Another configuration, revision or judgement is another evaluation.
    for other in (
        evaluator(kept=kept).measure(Configuration("dense", k=3), ALL),
        LiveEvaluator(Searcher(passages()), QUESTIONS, revision="manuals@2", kept=kept).measure(
            WORDS, ALL
        ),
    ):
        assert other.paid_before == 0


def test_what_was_found_by_the_words_of_before_is_not_told_again(tmp_path, monkeypatch):
    # "javascript" was "java" and "script" alone: kept so, nothing was found.
    pump = passages()[0]
    text = "JavaScript pumps hum."
    first = replace(pump, text=text, lineage=replace(pump.lineage, end=len(text)))
    questions = [Question("q", "javascript", {"pumps": 1.0})]
    kept = JudgeCache(tmp_path / "kept.sqlite")

    def measured(split):
        searcher = Searcher([first, *passages()[1:]], split=split)
        live = LiveEvaluator(searcher, questions, revision="manuals@1", kept=kept)
        return live.measure(WORDS, np.arange(1))

    with monkeypatch.context() as before:
        before.setattr(evaluating, "_TOLD", 3)  # as it was written until then
        assert measured(words).batch.quality.tolist() == [[0.0, 0.0]]
    now = measured(searched_words)
    assert (now.batch.quality.tolist(), now.paid_before) == ([[1.0, 1.0]], 0)
    assert measured(searched_words).paid_before == 1


def test_answers_of_before_are_still_paid():
    assert evaluating._ANSWER == 3


def test_a_search_without_its_embedder_is_tried_again_then_marked_and_no_evidence(tmp_path):
    hybrid = Configuration("hybrid", k=2)
    waited = []
    patient = evaluator(
        Flaky(away=2), limits=Limits(workers=1, tries=3, pause_s=0.25), sleep=waited.append
    )
    assert patient.evaluate(hybrid, ALL).quality.shape == (3, 2)
    assert waited == [0.25, 0.25]
    kept = JudgeCache(tmp_path / "kept.sqlite")
    embedder = Flaky(away=3)
    away = evaluator(embedder, kept=kept, limits=Limits(workers=1, tries=3, pause_s=0.0))
    found = away.measure(hybrid, ALL)
    assert found.degraded == (0,)
    assert found.told[0].degraded == ("dense",)
    assert found.batch.queries.tolist() == [1, 2]
    embedder.away = 3
    with pytest.raises(DataError, match="dense was not available for 1 of 3 queries"):
        away.evaluate(hybrid, ALL)
    embedder.away = 0
    calls = embedder.calls
    assert away.evaluate(hybrid, ALL).queries.tolist() == [0, 1, 2]
    assert embedder.calls == calls + 1


def test_all_degraded_is_no_batch_at_all():
    found = evaluator(Flaky(away=99), limits=Limits(pause_s=0.0)).measure(
        Configuration("dense", k=2), ALL
    )
    assert found.batch is None
    assert found.degraded == (0, 1, 2)


class SlowReranker:
    """A reranker that hangs until it is let go."""

    def __init__(self):
        self.let_go, self.asked = threading.Event(), 0

    def scores(self, query, passages):
        self.asked += 1
        self.let_go.wait(30)
        return np.zeros(len(passages))


def reranked(slow, **limits):
    searcher = Searcher(passages(), rerankers={"slow": slow})
    wanted = {"timeout_s": 0.4, "tries": 1, "pause_s": 0.0, "workers": 1, **limits}
    return LiveEvaluator(
        searcher, QUESTIONS, revision="r", reranker="slow", limits=Limits(**wanted)
    )


def test_a_search_that_takes_too_long_has_failed():
    """The second search of each question hangs, and the least one does not."""
    let_go, seen = threading.Event(), {}

    class Slow(HashedWords):
        def encode(self, texts):
            if len(texts) == 1:
                seen[texts[0]] = seen.get(texts[0], 0) + 1
                if seen[texts[0]] <= 2:
                    let_go.wait(30)
            return super().encode(texts)

    slow = evaluator(Slow(), limits=Limits(timeout_s=0.4, tries=2, pause_s=0.0))
    batch = slow.evaluate(Configuration("dense", k=2), ALL)
    let_go.set()
    assert batch.failed.all()
    assert batch.latency_ms.tolist() == [800.0] * 3  # of both tries
    assert "error_rate" in reward_of(batch, load_policy_config()).breaches


def test_a_part_that_hangs_is_no_evidence_as_one_that_raises():
    slow = SlowReranker()
    live = reranked(slow)
    found = live.measure(replace(WORDS, rerank=True), ALL[:1])
    assert found.batch is None
    assert found.told[0].degraded == ("rerank",)
    with pytest.raises(DataError, match="rerank was not available for 1 of 1 queries"):
        live.evaluate(replace(WORDS, rerank=True), ALL[:1])
    slow.let_go.set()
    assert live.evaluate(WORDS, ALL).failed.sum() == 0


def test_what_hung_once_is_tried_again_and_its_time_counts():
    hung = []

    class Once(HashedWords):
        def encode(self, texts):
            if len(texts) == 1 and not hung:
                hung.append(texts)
                let_go.wait(30)
            return super().encode(texts)

    let_go = threading.Event()
    live = evaluator(Once(), limits=Limits(timeout_s=0.4, workers=1, pause_s=0.0))
    batch = live.evaluate(Configuration("dense", k=2), ALL)
    let_go.set()
    assert not batch.failed.any()
    assert (batch.latency_ms >= 400.0).tolist() == [True, False, False]


def test_no_more_searches_hang_than_may():
    slow = SlowReranker()
    live = reranked(slow, hanging=2, tries=3)
    found = live.measure(replace(WORDS, rerank=True), ALL)
    assert slow.asked == 2
    assert [one.degraded for one in found.told.values()] == [("search",)] * 3
    slow.let_go.set()


def test_queries_are_begun_at_a_rate():
    waited = []
    limited = evaluator(
        limits=Limits(queries_per_s=2.0, workers=1), clock=lambda: 0.0, sleep=waited.append
    )
    limited.evaluate(WORDS, ALL)
    assert waited == [0.5, 1.0]


def test_what_comes_when_the_line_is_full_is_sent_away():
    entered, let_go = threading.Event(), threading.Event()

    class Slow(HashedWords):
        def encode(self, texts):
            if len(texts) == 1:
                entered.set()
                let_go.wait(30)
            return super().encode(texts)

    busy = evaluator(Slow(), limits=Limits(running=1, waiting=0, timeout_s=60.0))
    dense = Configuration("dense", k=2)
    first = threading.Thread(target=busy.evaluate, args=(dense, ALL[:1]))
    first.start()
    assert entered.wait(30)
    with pytest.raises(BackendUnavailableError, match="1 evaluations run and 0 wait"):
        busy.evaluate(dense, ALL[:1])
    let_go.set()
    first.join()
    busy.evaluate(dense, ALL[:1])  # the place is free again
    with EvaluationQueue(1, 1).turn():
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"queries_per_s": 0.0},
        {"queries_per_s": -1.0},
        {"queries_per_s": float("nan")},
        {"max_cost_usd": -1.0},
        {"max_cost_usd": float("nan")},
        {"max_calls": -5},
    ],
)
def test_limits_that_limit_nothing_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name} is"):
        Limits(**wrong)
