"""Parallel sampling gives byte-identical selections."""

import numpy as np
import pytest

from lab.evidence_worlds import COLUMNS, made_up
from steersman.errors import InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.raft import RaftSettings, raft
from steersman_systems.evidence_selection.training.rounds import walks_over
from steersman_systems.evidence_selection.training.task import walks

RULE = StepRule(4, 1.0, 0.2)
LIKES = NetworkScorer.linear(np.linspace(1.0, -1.0, len(COLUMNS)))


def bare(log):
    return [
        (one.task, one.reward, one.propensity, one.potentials.tobytes(),
         [(t.step, t.rows.tobytes(), t.chosen, t.place) for t in one.taken])
        for one in log
    ]  # fmt: skip


@pytest.mark.parametrize("questions", [1, 3, 20])
def test_how_many_at_a_time_changes_nothing(questions):
    tasks = made_up(7, seed=1)
    sample = walks_over(questions=questions)
    assert bare(sample(tasks, LIKES, RULE, each=4, seed=5)) == bare(
        walks(tasks, LIKES, RULE, each=4, seed=5)
    )


@pytest.mark.slow
def test_processes_draw_the_same_and_raft_learns_the_same_from_it():
    pytest.importorskip("lightgbm", reason="the extra evidence")
    tasks, how = made_up(12, seed=1), RaftSettings(rounds=1, each=4)
    found = [raft(tasks, LIKES, how, sample=sample, seed=2)
             for sample in (walks, walks_over(processes=2, questions=4))]  # fmt: skip
    assert found[0].rounds == found[1].rounds
    rows = np.random.default_rng(0).normal(size=(50, len(COLUMNS)))
    scores = [one.scorer.scores(rows) for one in found]
    assert (scores[0] == scores[1]).all()


def test_no_questions_at_a_time_are_refused():
    with pytest.raises(InputError, match="questions is 0"):
        walks_over(questions=0)
