"""Feedback is logged with exact propensities, looks at no gold, and betters a selector."""

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import DataError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer, scorer_state
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.experts import GoldExpert
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.raft_training import (
    bettered,
    exploring,
    feedback,
    from_feedback,
    improved,
    raft,
    telling_share,
)
from steersman_systems.evidence_selection.reward import RewardTerms, completeness, containment
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings, clone
from steersman_systems.evidence_selection.training.raft import TreesOnTop
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

pytest.importorskip("lightgbm", reason="needs the extra evidence")

NAMES = ["Abel", "Bruno", "Carla", "Doris", "Edgar", "Fiona", "Gerda", "Hanna", "Ivana", "Jakob"]
RULES = Environment(Limits(picks=2, may_stop=False, expanding="always"))


@pytest.fixture(scope="module")
def tasks():
    """Every question asks about a work; its page names the maker; the maker's has the answer."""
    rows = []
    for number, name in enumerate(NAMES):
        rows += [
            (f"work{number}", f"Work {name}", f"The painting Work {name} is by {name} Stone."),
            (f"maker{number}", f"{name} Stone", f"Born in town{number}, lived long."),
            (f"noise{number}", f"Notes {number}", f"The painting of a work, work of {name}."),
            (f"more{number}", f"More {number}", f"Born painting work: {name}, a name."),
        ]
    collection = Collection.of_texts(rows)
    found = []
    for number, name in enumerate(NAMES):
        question = Question(
            f"q{number}", f"Where was the maker of Work {name} born?",
            answers=(f"town{number}",), gold=(f"work{number}", f"maker{number}"),
        )  # fmt: skip
        found.append(EvidenceTask(collection.pool(question, size=8), RULES))
    return found


def test_logged_selections_have_their_propensities_and_rewards(tasks):
    log = feedback(tasks[:3], picks=2, each=5)
    assert len(log) == 15
    for one in log:
        assert one.propensity == pytest.approx(np.prod([t.step.p for t in one.taken]))
        assert len(one.taken) <= 2
        assert 0.0 <= one.reward <= 1.0


@pytest.mark.slow
def test_no_gold_is_looked_at(tasks):
    """Without gold, and with wrong gold, the same is logged and learned."""
    blind = [
        replace(task, pool=replace(task.pool, question=replace(task.pool.question, gold=("x",))))
        for task in tasks
    ]
    one, other = feedback(tasks, each=8), feedback(blind, each=8)
    assert [a.reward for a in one] == [b.reward for b in other]
    assert [a.propensity for a in one] == [b.propensity for b in other]
    learned, same = (scorer_state(from_feedback(some, exploring(), 0)) for some in (tasks, blind))
    assert {name: array.tobytes() for name, array in learned.items()} == {
        name: array.tobytes() for name, array in same.items()
    }
    assert learned.keys() != scorer_state(exploring()).keys(), "something was learned"


@pytest.mark.slow
def test_containment_alone_judges_rounds_by_containment_alone(tasks):
    """Whatever the questions' own terms are: what is logged and what is judged by are one."""
    small = TreesOnTop(TreeSettings(trees=2, learning_rate=0.1, least=3))
    start = NetworkScorer.linear(-np.eye(len(FEATURES))[FEATURES.index("fused")])
    both_terms = RewardTerms(finals=((0.7, containment), (0.3, completeness)))
    mixed = [replace(task, terms=both_terms) for task in tasks]
    tenths = {count / 10 for count in range(11)}

    def learned(some, terms):
        log = feedback(some, each=8, terms=terms)
        return improved(some, start, log=log, terms=terms, tune=small)

    alone, other = learned(mixed, RewardTerms()), learned(tasks, RewardTerms())
    assert (alone.before, alone.rounds) == (other.before, other.rounds)
    assert alone.before in tenths, "of ten questions, which are right or wrong"
    both, own = learned(mixed, both_terms), learned(tasks, both_terms)
    assert (both.before, both.rounds) == (own.before, own.rounds)
    assert both.before not in tenths


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["a long answer in words of its own that no page has", "No."])
def test_who_gets_no_feedback_is_refused_with_the_share(tasks, answer):
    def answered(task, right):
        question = replace(task.pool.question, answers=(right,))
        return replace(task, pool=replace(task.pool, question=question))

    mute = [task if place == 0 else answered(task, answer) for place, task in enumerate(tasks)]
    assert telling_share(tasks, feedback(tasks, each=20)) == (10, 10)
    assert telling_share(mute, feedback(mute, each=20)) == (1, 10)
    for learn in (raft, from_feedback):
        with pytest.raises(DataError, match=r"feedback varies for 1 of 10 questions \(10%\); it"):
            learn(mute, exploring(), 0)


def test_a_selector_gets_better_by_feedback_alone(tasks):
    weights = np.zeros(len(FEATURES))
    weights[FEATURES.index("fused")] = 1.0
    start = NetworkScorer.linear(weights)
    log = feedback(tasks, each=40, terms=RewardTerms())
    tune = TreesOnTop(TreeSettings(trees=30, learning_rate=0.3, least=3, ridge=1.0))
    found = improved(tasks, start, log=log, tune=tune)

    assert _all_gold(tasks, found.scorer) > _all_gold(tasks, start) + 0.3


def _all_gold(tasks, scorer):
    picked = [
        ScoredSelector("s", scorer, RULES).select(t.pool, rng=np.random.default_rng(0)).picked
        for t in tasks
    ]
    return np.mean(
        [set(t.pool.question.gold) <= set(p) for t, p in zip(tasks, picked, strict=True)]
    )


GOLD = CloneSettings(rounds=2, trees=TreeSettings(trees=20, learning_rate=0.3, least=2))


def test_a_start_that_is_bettered_is_built_upon(tasks):
    start = NetworkScorer.linear(-np.eye(len(FEATURES))[FEATURES.index("fused")])
    found = bettered(tasks, start, log=feedback(tasks, each=40))
    assert found.rounds[0].held_out > found.before
    assert isinstance(found.scorer, SummedScorer)
    assert found.scorer.parts[0] is start
    assert _all_gold(tasks, found.scorer) > _all_gold(tasks, start)


def test_a_clone_of_gold_stays_where_feedback_says_next_to_nothing(tasks):
    """It tells of two questions alone; of the others the clone knows what it knew."""
    start = clone(tasks, GoldExpert(), GOLD)
    log = [
        replace(one, reward=one.reward * (one.task in {"q0", "q1"}))
        for one in feedback(tasks, each=40)
    ]
    found = bettered(tasks, start, log=log)
    assert _all_gold(tasks, start) == 1.0
    assert len(found.rounds) == 1
    assert found.scorer is start, "no worse is not enough"


def test_a_clone_of_gold_stays_where_feedback_misleads(tasks):
    """What came back is turned round: a round that follows it selects worse, and goes."""
    start = clone(tasks, GoldExpert(), GOLD)
    log = [replace(one, reward=1.0 - one.reward) for one in feedback(tasks, each=40)]
    found = bettered(tasks, start, log=log)
    assert len(found.rounds) == 1
    assert found.scorer is start


@pytest.mark.slow
def test_a_question_without_candidates_is_learned_past(tasks):
    pool = tasks[0].pool.collection.pool(Question("none", "Zzyzx?", answers=("q",)), size=8)
    empty = EvidenceTask(pool, RULES)
    assert not pool.candidates
    learned = from_feedback([*tasks, empty], exploring(), 0)
    picked = ScoredSelector("s", learned, RULES).select(pool, rng=np.random.default_rng(0)).picked
    assert picked == ()
