"""Behaviour cloning, also in states that the expert never visits."""

import numpy as np
import pytest

from lab.evidence_worlds import made_up
from steersman.errors import InputError
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.behaviour_cloning import (
    CloneSettings,
    clone,
    visit,
)
from steersman_systems.evidence_selection.training.task import walks
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

pytest.importorskip("lightgbm", reason="needs the extra evidence")

GREEDY = StepRule(20, 0.0, 0.0)


class Knowing:
    """Expert: bridge first, then target, then stop."""

    def labels(self, task, state, options):
        picked, _ = state
        wanted = next((one for one in (task.bridge, task.target) if one not in picked), None)
        right = np.zeros(len(options.names))
        name = "stop" if wanted is None else f"c{wanted}"
        right[list(options.names).index(name)] = 1.0
        return right


def test_a_clone_selects_as_its_expert_would():
    how = CloneSettings(rounds=2, trees=TreeSettings(trees=40, learning_rate=0.2, least=5))
    scorer = clone(made_up(80, seed=1), Knowing(), how)
    fresh = walks(made_up(80, seed=2), scorer, GREEDY, each=1, seed=0)
    assert np.mean([one.reward for one in fresh]) > 0.97


def test_the_same_seed_gives_the_same_bytes():
    how = CloneSettings(rounds=2, trees=TreeSettings(trees=5))
    one, other = (clone(made_up(15, seed=1), Knowing(), how, seed=3).state() for _ in range(2))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_states_of_its_own_making_are_labelled_by_the_expert():
    class Stubborn:
        """Scorer that always takes the last candidate, which is wrong."""

        def scores(self, rows):
            return np.arange(len(rows), dtype=float) * (rows[:, -1] == 0)

    task = made_up(1, seed=0)[0]
    steps = visit(task, Knowing(), Stubborn(), 40, rng=np.random.default_rng(0))
    assert len(steps) == task.picks
    assert all(one.targets.sum() == 1.0 for one in steps)


def test_wrong_actions_that_are_left_out_are_stood_for():
    task = made_up(1, seed=0, candidates=60)[0]
    steps = visit(task, Knowing(), None, 10, rng=np.random.default_rng(0))
    first = steps[0]
    assert first.weights.sum() == pytest.approx(61)
    assert len(first.rows) == 10 + 5 + 1 + 1


def test_nothing_to_learn_is_refused():
    class Silent:
        def labels(self, task, state, options):
            return np.zeros(len(options.names))

    with pytest.raises(InputError, match=r"none of .* has a step"):
        clone(made_up(3, seed=0), Silent())
    with pytest.raises(InputError, match=r"none of .* has a step"):
        clone([], Knowing())
    for wrong in ({"rounds": 0}, {"others": 1}):
        with pytest.raises(InputError):
            CloneSettings(**wrong)
