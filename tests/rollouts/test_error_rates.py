"""What verdicts promise, in a small simulation; `python -m benchmarks.rollout` is the large one."""

import numpy as np
import pytest

from benchmarks.rollout_worlds import Metric, default_plan, draw, metrics, rollouts

PLAN = default_plan()


def ends(world, runs, seed, plan=PLAN):
    return list(rollouts(plan, draw(world, np.random.default_rng(seed), runs)))


@pytest.mark.slow
def test_candidates_that_do_nothing_are_left_alone():
    found = ends(metrics(reward=Metric("reward", 0.5, correlation=0.2)), 150, 0)
    for end in ("promoted", "rolled_back"):
        assert np.mean([run.end == end for run in found]) <= 0.05
    assert not any(run.incidents & {"sample_ratio", "missing_values"} for run in found)


@pytest.mark.slow
def test_candidates_that_are_better_are_promoted():
    found = ends(metrics(reward=Metric("reward", 0.5, 0.03, 0.25)), 150, 1)
    assert np.mean([run.end == "promoted" for run in found]) >= 0.75


@pytest.mark.slow
def test_candidates_that_are_worse_are_rolled_back_early():
    found = ends(metrics(reward=Metric("reward", 0.5, -0.08, 0.25)), 150, 2)
    assert np.mean([run.end == "rolled_back" and run.units <= 500 for run in found]) >= 0.93
    assert all("reward is worse" in run.reasons[0] for run in found if run.end == "rolled_back")


@pytest.mark.slow
def test_units_that_get_lost_are_noticed():
    world = metrics(reward=Metric("reward", 0.5, 0.0, 0.25))
    lost = list(rollouts(PLAN, draw(world, np.random.default_rng(3), 40, lost=0.2)))
    assert np.mean(["sample_ratio" in run.incidents for run in lost]) >= 0.9
    assert not any(run.end == "promoted" for run in lost)
