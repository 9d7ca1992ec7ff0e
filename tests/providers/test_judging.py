"""Many answers at once: in order, within the budget, and going on where the budget ended."""

import threading

import numpy as np
import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import InputError
from steersman.providers.judges.faithfulness import Faithfulness
from steersman.providers.judges.judge import judge_all
from steersman.providers.judges.relevancy import Relevancy
from steersman.providers.judges.scores import Case, Score, coverage
from steersman.providers.spending_limit import Budget
from tests.providers.scripted import Script, judge_at
from tests.retrieval.hashed_words import HashedWords

COUNT = 12
CASES = [Case(f"question {n}?", f"answer {n}", ("a context",)) for n in range(COUNT)]


@pytest.fixture
def script():
    """Answer n makes 4 statements of which n % 5 are supported; the last answer makes none."""
    statements = {c.answer: [f"{c.answer}: {part}" for part in range(4)] for c in CASES[:-1]}
    supported = [text for n, texts in enumerate(statements.values()) for text in texts[: n % 5]]
    questions = {case.answer: [case.question] for case in CASES}
    return Script(statements | {CASES[-1].answer: []}, supported, questions)


def _measures(judge):
    return [Faithfulness(judge), Relevancy(judge, HashedWords(), questions=1)]


def test_scores_come_in_order_with_their_coverage(chat, script):
    chat.answer = script
    judge = judge_at(chat)
    found = judge_all(judge, _measures(judge), CASES, workers=4)
    expected = [(n % 5) / 4 for n in range(COUNT - 1)]
    assert [one.value for one in found.scores["faithfulness"]] == [*expected, None]
    assert found.quality.shape == (COUNT, 2)
    np.testing.assert_allclose(found.quality[:, 0], [*expected, np.nan])
    np.testing.assert_allclose(found.quality[:, 1], 1.0, atol=1e-6)
    told = found.coverage
    assert str(told["faithfulness"]) == "11 of 12 defined (no_statements 1)"
    assert (told["relevancy"].share, told["relevancy"].reasons) == (1.0, {})
    assert found.calls == len(chat.asked) == 2 * COUNT - 1 + COUNT
    assert found.judge.endswith("#judge")


def test_what_the_budget_left_out_is_undefined_and_judged_later_without_paying_twice(
    chat, script, tmp_path
):
    chat.answer = script
    cache = JudgeCache(tmp_path / "judgements.sqlite")
    poor = judge_at(chat, cache=cache, budget=Budget(max_calls=15))
    first = judge_all(poor, _measures(poor), CASES, workers=3)
    assert len(chat.asked) == first.calls == 15
    left_out = [one for row in first.scores.values() for one in row if one.reason == "budget"]
    assert left_out
    assert all(one.value is None and "raise max_calls" in one.detail for one in left_out)
    rich = judge_at(chat, cache=cache)
    whole = judge_all(rich, _measures(rich), CASES, workers=3)
    assert whole.calls == 2 * COUNT - 1 + COUNT - 15
    assert whole.cached == 15
    assert whole.coverage["faithfulness"].reasons == {"no_statements": 1}
    assert judge_all(rich, _measures(rich), CASES).calls == 0


def test_as_many_are_judged_at_once_as_there_are_workers(chat):
    together, most = threading.Barrier(3), []

    def answer(prompt):
        most.append(together.wait(20))
        return '{"noncommittal": true, "questions": []}'

    chat.answer = answer
    judge = judge_at(chat)
    found = judge_all(judge, [Relevancy(judge, HashedWords())], CASES[:6], workers=3)
    assert [one.value for one in found.scores["relevancy"]] == [0.0] * 6
    assert sorted(most) == [0, 0, 1, 1, 2, 2]


class Broken:
    name = "broken"

    def __init__(self, judge):
        self.judge = judge

    def __call__(self, case):
        if case is CASES[1]:
            raise RuntimeError("a bug")
        return Faithfulness(self.judge)(case)


def test_a_bug_ends_it_and_spends_no_more(chat, script):
    chat.answer = script
    judge = judge_at(chat)
    with pytest.raises(RuntimeError, match="a bug"):
        judge_all(judge, [Broken(judge)], CASES, workers=1)
    asked = len(chat.asked)
    assert asked < 2 * COUNT - 1
    assert Faithfulness(judge)(CASES[5]).reason == "budget"
    assert len(chat.asked) == asked


def test_nothing_to_judge_is_fine_and_no_measure_is_not(chat):
    judge = judge_at(chat)
    found = judge_all(judge, [Faithfulness(judge)], [])
    assert (found.quality.shape, found.coverage["faithfulness"].total) == ((0, 1), 0)
    assert np.isnan(found.coverage["faithfulness"].share)
    for measures, workers in [([], 1), ([Faithfulness(judge)] * 2, 1), ([Faithfulness(judge)], 0)]:
        with pytest.raises(InputError):
            judge_all(judge, measures, CASES, workers=workers)


@pytest.mark.parametrize(
    ("value", "reason"), [(None, ""), (0.5, "budget"), (float("nan"), ""), (1.1, ""), (-0.1, "")]
)
def test_a_score_has_a_value_or_a_reason(value, reason):
    with pytest.raises(InputError):
        Score(value, reason)


def test_coverage_counts_reasons():
    found = coverage([Score(1.0), Score(None, "budget"), Score(None, "budget")])
    assert (found.total, found.defined, found.reasons) == (3, 1, {"budget": 2})
