"""The publish guard: quiet while a policy learns, loud when its scale or size leaves the usual."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.points.scale_guard import Measures, guard, measure
from steersman.policies import BetaThompson, Fixed, LinTS

NAMES = ["a", "b", "c"]
DIM = 16


def _contexts(rng, count):
    """Return rows as a feature map gives them: a constant, few large columns, many small ones."""
    scales = 1.0 / np.sqrt(np.arange(1, DIM + 1))
    rows = rng.normal(size=(count, DIM)) * scales
    rows[:, 0] = 1.0
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _learn(policy, rng, count, scale=1.0):
    actions = [NAMES[i] for i in rng.integers(0, 3, count)]
    policy.learn_batch(scale * _contexts(rng, count), actions, rng.random(count))


@pytest.mark.parametrize("forget", [1.0, 0.995])
@pytest.mark.parametrize("seed", range(5))
def test_learning_raises_no_alarm_from_the_first_version_on(forget, seed):
    rng = np.random.default_rng(seed)
    policy, history = LinTS(NAMES, dim=DIM, forget=forget), []
    for size in [5, 5, 10, 20, 50, *[100] * 25]:
        _learn(policy, rng, size)
        found = measure(policy.state())
        assert guard(found, history) == []
        history.append(found)
    assert history[-1].samples > 150


def test_the_eigenvalue_itself_would_have_raised_one():
    rng, history = np.random.default_rng(0), []
    policy = LinTS(NAMES, dim=DIM)
    for _ in range(6):
        _learn(policy, rng, 200)
        found = measure(policy.state())
        history.append(found.largest_eigenvalue * found.samples)
    assert history[-1] > 2 * np.median(history[:-1]) * 0.99


@pytest.mark.parametrize("scale", [3.0, 0.3])
def test_features_of_another_scale_are_refused(scale):
    rng, policy = np.random.default_rng(0), LinTS(NAMES, dim=DIM)
    history = []
    for _ in range(4):
        _learn(policy, rng, 300)
        history.append(measure(policy.state()))
    other = LinTS(NAMES, dim=DIM)
    _learn(other, rng, 1500, scale)
    (reason,) = guard(measure(other.state()), history)
    assert "largest eigenvalue per sample" in reason


def test_one_arm_poisoned_with_one_request_in_a_hundred_is_refused():
    rng, policy = np.random.default_rng(0), LinTS(NAMES, dim=DIM)
    _learn(policy, rng, 1000)
    before = measure(policy.state())
    for _ in range(10):
        policy.learn(np.full(DIM, 100.0), "c", 1.0)
    assert guard(measure(policy.state()), [before])


def test_few_samples_are_not_compared():
    few = Measures(10**6, 0.9, samples=9 * DIM, dim=DIM, kind="lin_ts")
    many = Measures(10**6, 0.2, samples=900 * DIM, dim=DIM, kind="lin_ts")
    assert guard(many, [few]) == []
    assert guard(few, [many]) == []
    assert guard(many, []) == []
    grown = Measures(10**6, 0.9, samples=900 * DIM, dim=DIM, kind="lin_ts")
    assert guard(grown, [few, many])


def test_both_directions_and_both_edges():
    history = [_measures(1.0) for _ in range(3)]
    assert guard(_measures(2.0), history) == []
    assert guard(_measures(0.5), history) == []
    assert "allowed: 0.5 to 2" in guard(_measures(2.01), history)[0]
    assert "allowed: 0.5 to 2" in guard(_measures(0.49), history)[0]
    assert guard(_measures(0.0), history)


def test_the_median_runs_along_and_one_outlier_does_not_move_it():
    drifting = [_measures(1.1**step) for step in range(30)]
    assert guard(_measures(1.1**30), drifting[-7:]) == []
    assert guard(_measures(1.1**30), drifting) != []  # twenty versions back is too far
    assert guard(_measures(1.0), [*[_measures(1.0)] * 3, _measures(50.0)]) == []


def test_only_snapshots_of_one_kind_are_compared():
    other = Measures(10**9, 50.0, samples=10**6, dim=DIM, kind="lin_ucb")
    assert guard(_measures(1.0), [other]) == []


def test_size_is_compared_but_not_of_small_states():
    policy, history = BetaThompson(NAMES), []
    for step in range(40):  # keys come quickly at first
        policy.learn(f"key {step}", "a", 1.0)
        assert guard(measure(policy.state()), history) == []
        history.append(measure(policy.state()))
    for step in range(4000):
        policy.learn(f"intruder {step}", "a", 1.0)
    (reason,) = guard(measure(policy.state()), history)
    assert "size in bytes" in reason
    large, small = (Measures(size, kind="x") for size in (10**6, 10**4))
    assert guard(small, [large])
    assert guard(large, [small])


def test_what_learns_nothing_passes():
    found = measure(Fixed(NAMES, "a").state())
    assert found.largest_eigenvalue is None
    assert "no feature matrix" in found.unmeasured
    assert guard(found, [found, found]) == []


def test_measures_travel_as_json():
    policy = LinTS(NAMES, dim=DIM)
    _learn(policy, np.random.default_rng(0), 50)
    for found in (measure(policy.state()), measure(Fixed(NAMES, "a").state())):
        assert Measures.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert Measures.from_json({"size": 3, "of tomorrow": 1}) == Measures(3)
    for wrong in ({}, {"size": "many"}, [], {"size": 1, "samples": None}):
        with pytest.raises(InputError, match="invalid measures"):
            Measures.from_json(wrong)


def _measures(value):
    return Measures(10**6, value, samples=10**4, dim=DIM, kind="lin_ts 3x16")
