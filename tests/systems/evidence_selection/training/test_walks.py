"""Walks follow the rules of a task and log their propensities."""

import numpy as np
import pytest

from lab.evidence_worlds import COLUMNS, made_up
from steersman.policies import SequenceLinear
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.offered import Offered
from steersman.policies.sequence import StepRule
from steersman.policies.sequential import weigh_whole
from steersman_systems.evidence_selection.training.task import choose, stream, walk, walks

RULE = StepRule(4, 1.0, 0.2)
LIKES = NetworkScorer.linear(np.array([2.0, 1.0, 0.5, 0, 0, 0, 0.3]))


def test_only_leading_candidates_and_stop_are_eligible():
    task = made_up(1, seed=0)[0]
    one = choose(task.options(task.begin()), LIKES, RULE, rng=np.random.default_rng(0))
    assert len(one.step.eligible) == 5
    assert one.step.eligible[-1] == "stop"
    assert (one.rows == task.options(task.begin()).rows[[*_best(task), 10]]).all()


def _best(task):
    return np.argsort(-LIKES.scores(task.options(task.begin()).rows[:10]), kind="stable")[:4]


def test_walks_are_what_choosing_step_by_step_gives():
    """Without the cache of states the draws are identical."""
    for task in made_up(4, seed=0):
        rng = np.random.default_rng(3)
        state, said = task.begin(), []
        while (options := task.options(state)) is not None:
            one = choose(options, LIKES, RULE, rng=rng)
            said.append(one.step)
            state = task.take(state, one.place)
        found = walk(task, LIKES, RULE, rng=np.random.default_rng(3))
        assert [one.step for one in found.taken] == said
        assert found.reward == task.reward(state)
        assert found.propensity == pytest.approx(np.prod([one.p for one in said]))
        assert len(found.potentials) == len(said) + 1


@pytest.mark.slow
def test_frequencies_of_whole_selections_are_their_propensities():
    task = made_up(1, seed=1, candidates=4)[0]
    found = walks([task], LIKES, StepRule(2, 1.0, 0.3), each=4000, seed=0)
    counts, said = {}, {}
    for one in found:
        key = tuple(taken.step.action for taken in one.taken)
        counts[key] = counts.get(key, 0) + 1
        said[key] = one.propensity
    likely = [key for key, p in said.items() if p > 0.02]
    assert len(likely) > 5
    for key in likely:
        p = said[key]
        assert abs(counts[key] / 4000 - p) < 4.5 * np.sqrt(p * (1 - p) / 4000)


def test_streams_differ_by_question_and_seed():
    drawn = {stream(seed, name).random() for seed in (0, 1) for name in ("a", "b")}
    assert len(drawn) == 4
    assert len(COLUMNS) == 7


def test_what_is_shorter_than_the_log_still_says_what_the_log_lacks():
    """The target takes one of four; the log could draw three, and then one more."""
    policy = SequenceLinear(features=["score"], max_steps=1, stop=False)
    offered = Offered.of(["a", "b", "c", "d"], None, np.zeros((4, 1)))
    first = {"eligible": ["a", "b", "c"], "action": "a", "p": 1 / 3}
    then = {"eligible": ["b", "c"], "action": "b", "p": 0.5}
    found = weigh_whole(policy, offered, [first, then])
    assert (found.mass, found.missing) == (0.0, pytest.approx(0.25))
