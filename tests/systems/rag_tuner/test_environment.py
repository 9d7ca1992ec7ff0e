"""The simulator: what is rewarded is what is known to be true, and switching is paid for."""

import numpy as np
import pytest

pytest.importorskip("torch")

from lab.made_up_collections import made_up
from steersman.errors import InputError, StateError
from steersman_systems.rag_tuner.actions import STEPS_K, STEPS_WEIGHT
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.environment import TuningEnvironment, changed_parts, drawn_weights
from steersman_systems.rag_tuner.reward import reward_of
from tests.systems.rag_tuner.worlds import SPACE, tuned, world

WORLD, OTHER, TUNED = world(queries=60), world(queries=40, seed=1), tuned()
STILL = (0, STEPS_K.index(0), 0, STEPS_WEIGHT.index(0), 0)


def environment(recordings=(WORLD,), **kw):
    return TuningEnvironment(recordings, TUNED, **{"horizon": 8, "batch": 32, "drift": 0.0, **kw})


def mean(stage, configuration):
    every = np.arange(len(stage.recorded))
    return reward_of(stage.recorded.evaluate(configuration, every), stage.tuned).value


def test_the_reward_is_the_true_mean_less_what_switching_costs():
    simulator = environment(switching_cost=0.01)
    simulator.reset(np.random.default_rng(0))
    stage, middle = simulator.stage(), SPACE.all[len(SPACE.all) // 2]
    stayed = simulator.step(STILL)
    base = mean(stage, stayed.running) - mean(stage, middle)
    assert stayed.reward == pytest.approx(base)
    moved = simulator.step((0, STEPS_K.index(4), 1, STEPS_WEIGHT.index(0), 0))
    switched = changed_parts(stayed.running, moved.running)
    assert switched == 2
    worth = mean(stage, moved.running) - mean(stage, middle)
    assert moved.reward == pytest.approx(worth - 0.01 * switched)


def test_an_episode_ends_at_its_horizon():
    simulator = environment()
    simulator.reset(np.random.default_rng(0))
    assert [simulator.step(STILL).last for _ in range(8)] == [False] * 7 + [True]
    with pytest.raises(StateError, match="call reset first"):
        simulator.step(STILL)


def test_nothing_can_be_done_before_an_episode():
    with pytest.raises(StateError, match="call reset first"):
        environment().step(STILL)
    with pytest.raises(StateError, match="call reset first"):
        environment().stage()


def test_the_same_seed_plays_the_same_episode():
    first, second = environment(drift=1.0), environment(drift=1.0)
    for one in (first, second):
        one.reset(np.random.default_rng(7))
    for _ in range(8):
        one, other = first.step(STILL), second.step(STILL)
        assert one.state.tolist() == other.state.tolist()
        assert one.reward == other.reward


@pytest.mark.slow
def test_without_drift_nothing_changes_and_with_it_something_does_midway():
    for chance, expected in ((0.0, {False}), (1.0, {True})):
        simulator = environment((WORLD, OTHER), drift=chance)
        changed = set()
        for seed in range(12):
            simulator.reset(np.random.default_rng(seed))
            before = simulator.stage()
            stages = []
            for _ in range(8):
                simulator.step(STILL)
                stages.append(simulator.stage())
            assert stages[0] == before
            changed.add(stages[-1] != before)
        # Drawn anew, a collection may be the one that it was.
        assert changed == expected or (chance and changed == {True, False})


def test_what_is_seen_is_a_batch_and_not_the_truth():
    simulator = environment()
    before = simulator.reset(np.random.default_rng(0))
    assert np.isnan(before[:2]).all()
    state = simulator.step(STILL).state
    assert np.isfinite(state).all()
    every = np.arange(len(WORLD))
    true = WORLD.evaluate(simulator.step(STILL).running, every).quality.mean(axis=0)
    assert state[:2] != pytest.approx(true, abs=1e-9)
    assert state[:2] == pytest.approx(true, abs=0.3)


@pytest.mark.slow
def test_a_change_is_told_before_the_next_move():
    """Other weights: the batches are told again. Another collection: nothing is believed of it."""
    told = set()
    for seed in range(12):
        simulator = environment((WORLD, OTHER), drift=1.0)
        simulator.reset(np.random.default_rng(seed))
        for number in range(1, 9):
            before = simulator.stage()
            simulator.step(STILL)
            after, believed = simulator.stage(), len(simulator._episode.belief)
            if after.recorded != before.recorded:
                told.add("collection")
                assert believed == 0
                break
            if after.tuned != before.tuned:
                told.add("weights")
                assert believed == number
    assert told == {"collection", "weights"}


def test_weights_are_drawn_around_those_declared():
    drawn = [drawn_weights(TUNED, np.random.default_rng(seed)).reward_weights for seed in range(50)]
    assert {round(one.alpha + one.beta, 9) for one in drawn} == {1.0}
    assert all(0.01 <= one.gamma <= 0.5 and 0.01 <= one.delta <= 0.5 for one in drawn)
    assert {one.penalty for one in drawn} == {TUNED.reward_weights.penalty}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"horizon": 1}, "horizon"),
        ({"batch": 0}, "batch"),
        ({"switching_cost": -1.0}, "switching_cost"),
        ({"drift": 1.5}, "drift"),
        ({"window": 0}, "window"),
        ({"recordings": ()}, "0 collections"),
    ],
)
def test_environment_with_bad_arguments_names_the_value(wrong, says):
    with pytest.raises(InputError, match=says):
        environment(**wrong)


def test_made_up_collections_differ_and_more_passages_find_more():
    first, second = (made_up(SPACE, np.random.default_rng(s), queries=80) for s in range(2))
    every = np.arange(80)
    found = [
        one.evaluate(Configuration("hybrid", k=k), every).quality[:, 0].mean()
        for one in (first, second)
        for k in (3, 10, 32)
    ]
    assert found[0] < found[1] < found[2]
    assert found[:3] != found[3:]
    with pytest.raises(InputError, match="queries is 0"):
        made_up(SPACE, np.random.default_rng(0), queries=0)
