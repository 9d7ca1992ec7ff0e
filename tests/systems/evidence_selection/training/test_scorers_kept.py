"""Scorers of repeated training can be stored and score the same afterwards."""

import numpy as np
import pytest

from lab.evidence_worlds import COLUMNS, made_up
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer, scorer_from_state, scorer_state
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings, clone
from steersman_systems.evidence_selection.training.raft import RaftSettings, TreesOnTop, raft
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

pytest.importorskip("lightgbm", reason="needs the extra evidence")
RULE = StepRule(20, 1.0, 0.1)


class _Knowing:
    def labels(self, task, state, options):
        wanted = [one for one in (task.bridge, task.target) if one not in state[0]]
        name = f"c{wanted[0]}" if wanted else "stop"
        return (np.array(options.names) == name).astype(float)


@pytest.mark.slow
def test_a_clone_bettered_by_raft_and_then_by_ppo_is_kept_whole(tmp_path):
    pytest.importorskip("torch", reason="needs the extra rl")
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

    tasks = made_up(20, seed=1)
    few = TreeSettings(trees=10, learning_rate=0.2)
    cloned = clone(tasks, _Knowing(), CloneSettings(rounds=1, trees=few))
    once = RaftSettings(rounds=1, each=8, rule=RULE)
    bettered = raft(tasks, cloned, once, tune=TreesOnTop(few)).scorer
    # A second run on top of the first, and checkpoints of all of it.
    again = raft(tasks, bettered, once, tune=TreesOnTop(few), folder=tmp_path / "raft").scorer
    how = PpoSettings(rounds=1, each=4, rule=RULE)
    found = ppo(tasks, again, how, folder=tmp_path / "ppo").scorer
    rows = np.random.default_rng(0).random((50, len(COLUMNS)))
    kept = scorer_from_state(scorer_state(found))
    assert np.array_equal(kept.scores(rows), found.scores(rows))
    assert not np.allclose(found.scores(rows), cloned.scores(rows))


def test_a_sum_of_sums_is_one_sum():
    one, other = NetworkScorer.linear(np.array([2.0])), NetworkScorer.linear(np.array([3.0]))
    nested = SummedScorer((SummedScorer((one, SummedScorer((other,)))), other))
    assert nested.parts == (one, other, other)
    assert nested.scores(np.array([[1.0]])).tolist() == [8.0]
