"""Configurations compared at once are worth what they are worth evaluated alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.comparison import compare, compared, estimate
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.recorded import MEASURES
from steersman_systems.rag_tuner.reward import Batch, reward_of
from steersman_systems.rag_tuner.service.fair_queue import Slices
from tests.systems.rag_tuner.test_evaluating import (
    ALL,
    QUESTIONS,
    Flaky,
    HashedWords,
    Searcher,
    evaluator,
    passages,
)

pytest.importorskip("bm25s")
TUNED = load_policy_config()
BOTH = [Configuration("bm25", k=2), Configuration("hybrid", k=4), Configuration("rrf", k=3)]


def test_the_engines_are_asked_once_and_quality_is_that_of_an_evaluation():
    embedder = Flaky()
    searcher = Searcher(passages(), embedder=embedder)
    before = embedder.calls
    found = compare(searcher, QUESTIONS, BOTH, TUNED)
    assert embedder.calls == before + len(QUESTIONS)
    alone = evaluator(HashedWords())
    for one in found:
        batch = alone.evaluate(one.configuration, ALL)
        assert one.batch.quality.tolist() == batch.quality.tolist()
        assert one.batch.cost.tolist() == batch.cost.tolist()
        assert one.worth.value == pytest.approx(reward_of(one.batch, TUNED).value)
    assert found[0].ahead is None
    assert found[1].ahead.value == pytest.approx(found[1].worth.value - found[0].worth.value)


def test_an_embedder_that_is_waited_for_keeps_no_other_from_the_core():
    share, asked = Slices().share(threading.Event()), []

    class Served(HashedWords):
        def encode(self, texts):
            if len(texts) == 1:  # a query; another evaluation has its turn meanwhile
                with share.turn():
                    asked.append(texts[0])
            return super().encode(texts)

    searcher = Searcher(passages(), embedder=Served())
    with share.turn() as turn:
        found = compare(searcher, QUESTIONS, BOTH, TUNED, beside=turn.left)
        words = compare(searcher, QUESTIONS, BOTH[:1], TUNED, beside=turn.left)
    assert asked == [one.text for one in QUESTIONS]
    same = compare(Searcher(passages(), embedder=HashedWords()), QUESTIONS, BOTH, TUNED)
    assert [one.batch.quality.tolist() for one in found] == [
        one.batch.quality.tolist() for one in same
    ]
    assert (len(words), len(asked)) == (1, len(QUESTIONS))


def test_intervals_are_those_of_t():
    values = np.random.default_rng(0).normal(0.3, 0.1, 30)
    known = ttest_1samp(values, 0).confidence_interval(0.95)
    found = estimate(values, within=(0, 1)).interval
    assert (found.low, found.high) == (pytest.approx(known.low), pytest.approx(known.high))
    assert estimate(values[:1], within=(0, 1)).interval is None


def test_questions_that_all_fare_alike_leave_a_width():
    same = given(2, np.ones(6))
    found = compared(same, TUNED, degraded=0, first=same)
    for one in (found.quality[0], found.worth, found.ahead):
        assert one.interval.low < one.value <= one.interval.high
    assert (found.quality[0].value, found.quality[0].interval.high) == (1.0, 1.0)


def given(k, quality, *, violates=False):
    count, none = len(quality), np.zeros(len(quality), bool)
    return Batch(
        configuration=Configuration("bm25", k=k),
        queries=np.arange(count),
        quality=np.stack([quality, quality], axis=1),
        latency_ms=np.full(count, 5.0),
        cost=np.zeros(count),
        failed=none,
        violations=none if not violates else np.arange(count) == 0,
        measures=MEASURES,
    )


@pytest.mark.slow
def test_of_many_that_are_no_better_none_is_ahead_more_often_than_was_said():
    rng, alone, together = np.random.default_rng(4), 0, 0
    for _ in range(60):
        level = rng.uniform(0.3, 0.6, 100)
        first, *others = (given(2, level + rng.normal(0, 0.05, 100)) for _ in range(25))
        lows = [
            [
                compared(one, TUNED, degraded=0, first=first, family=family).ahead.interval.low
                for one in others
            ]
            for family in (1, len(others))
        ]
        alone += max(lows[0]) > 0
        together += max(lows[1]) > 0
    assert alone > 9  # of 60: what each one's own interval comes to
    assert together <= 6


def test_an_answer_that_holds_what_it_must_not_is_not_ahead():
    first = given(2, np.linspace(0.4, 0.6, 40))
    better = given(3, np.linspace(0.5, 0.7, 40), violates=True)
    found = compared(better, TUNED, degraded=0, first=first)
    worth = reward_of(better, TUNED).value - reward_of(first, TUNED).value
    assert found.ahead.value == pytest.approx(worth)
    assert found.ahead.interval.high < 0


def test_degraded_questions_are_left_out_of_the_one_and_not_of_the_other():
    embedder = Flaky(away=1)
    searcher = Searcher(passages(), embedder=embedder)
    embedder.begin()
    words, hybrid = compare(searcher, QUESTIONS, BOTH[:2], TUNED)
    assert (words.degraded, hybrid.degraded) == (0, 1)
    assert hybrid.batch.queries.tolist() == [1, 2]
    ahead = reward_of(hybrid.batch, TUNED).per_query - reward_of(words.batch, TUNED).per_query[1:]
    assert hybrid.ahead.value == pytest.approx(ahead.mean())
    embedder.away = 99
    with pytest.raises(DataError, match="dense was not available for any question under hybrid"):
        compare(searcher, QUESTIONS, BOTH[:2], TUNED)


def test_it_can_be_stopped_and_wants_something_to_compare():
    searcher = Searcher(passages())
    with pytest.raises(DataError, match="stopped before all"):
        compare(searcher, QUESTIONS, BOTH[:1], TUNED, stopped=lambda: True)
    with pytest.raises(InputError, match="0 questions, 1 configurations"):
        compare(searcher, [], BOTH[:1], TUNED)
