"""Terms of the reward that take an answer, each against a count; what is not known is no reward."""

import pytest

from steersman.errors import BackendUnavailableError
from steersman.providers.judges.judge import Judge
from steersman.providers.spending_limit import Budget
from steersman_systems.evidence_selection.answer_model import Answerer
from steersman_systems.evidence_selection.answer_stability import AnswerStability
from steersman_systems.evidence_selection.answered_terms import AnsweredTerms
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.reward import RewardTerms, completeness
from steersman_systems.evidence_selection.tasks import EvidenceTask
from tests.systems.evidence_selection.bands import bands
from tests.systems.evidence_selection.test_sureness import Reads, picked_state


class Half:
    """A judge that bears every answer out by half; or gives no verdict."""

    def __init__(self, value):
        self.value = value

    def __call__(self, case):
        assert case.contexts
        return self


class SaysNo:
    """A model that says no to everything."""

    name = "no"

    def complete(self, prompt, *, max_tokens, timeout_s):
        return "No."


@pytest.fixture(scope="module")
def pool():
    return bands().pools[0]


def test_each_term_is_what_it_says(pool):
    terms = AnsweredTerms(Answerer(Judge(Reads())))
    right, wrong = picked_state(pool, "b0", "t0"), picked_state(pool, "b0")
    assert [term(right) for term in (terms.match, terms.attribution, terms.faithfulness)] == [1] * 3
    assert [term(wrong) for term in (terms.match, terms.attribution, terms.faithfulness)] == [0] * 3
    assert AnsweredTerms(terms.answerer, Half(0.5)).faithfulness(right) == 0.5


def test_always_saying_no_stands_in_no_passage_and_is_never_sure():
    """There is a "no" somewhere in most texts; who says nothing else must earn nothing by it."""
    pool = Collection.of_texts([("p", "Bridges", "There is no doubt about it.")]).pool(
        Question("q", "How many bridges?", answers=("seven",))
    )
    answerer = Answerer(Judge(SaysNo()))
    state, terms = picked_state(pool, "p"), AnsweredTerms(answerer)
    assert "no" in pool.candidates[0].text
    assert terms.attribution(state) == terms.faithfulness(state) == 0.0
    assert AnswerStability(answerer)(state) < 1.0


def test_they_weigh_into_a_reward_beside_others(pool):
    terms = AnsweredTerms(Answerer(Judge(Reads())), Half(0.5))
    declared = RewardTerms(
        finals=((0.4, terms.match), (0.3, terms.faithfulness), (0.3, completeness))
    )
    right = picked_state(pool, "b0", "t0")
    expected = 0.4 + 0.15 + 0.3 * completeness(right)
    assert declared.final(right) == pytest.approx(expected)
    rules = Environment(Limits(picks=2, expanding="always", may_stop=False))
    task = EvidenceTask(pool, rules, declared)
    standing = task.begin()
    for _ in range(2):
        standing = task.take(standing, 0)
    assert task.reward(standing) == pytest.approx(declared.final(standing.state))


def test_what_is_not_known_is_no_reward(pool):
    state = picked_state(pool, "b0", "t0")
    spent = AnsweredTerms(Answerer(Judge(Reads(), budget=Budget(max_calls=0))))
    with pytest.raises(BackendUnavailableError, match="what a selection for 'q0' is worth is not"):
        spent.match(state)
    silent = AnsweredTerms(Answerer(Judge(Reads())), Half(None))
    with pytest.raises(BackendUnavailableError, match="the judge gave no verdict"):
        silent.faithfulness(state)
