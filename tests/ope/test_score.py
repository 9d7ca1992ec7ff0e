"""Score intervals: Wilson's for as many draws as the error is worth, near the ends of a range."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit, ndtri, softmax

from steersman.errors import InputError
from steersman.ope import LoggedData, evaluate


def _log(rng, rate, rows=800, **changes):
    actions = rng.integers(0, 2, rows)
    rewards = (rng.random(rows) < rate).astype(float)
    target = np.tile([0.3, 0.7], (rows, 1))
    return LoggedData(actions, rewards, np.full(rows, 0.5), target, **changes)


def _by_search(value, error, level):
    """Return where the candidate's own standard error is too small to explain the value."""
    quantile = -ndtri((1 - level) / 2)

    def surprise(mean):
        own = error * np.sqrt(mean * (1 - mean) / (value * (1 - value)))
        return abs(value - mean) - quantile * own

    return brentq(surprise, 1e-12, value), brentq(surprise, value, 1 - 1e-12)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9, 0.98])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_every_candidate_is_judged_by_its_own_noise(rate, level):
    data = _log(np.random.default_rng(0), rate)
    report = evaluate(data, interval="score", level=level)
    assert report.interval == "score"
    for name in ("snips", "dr"):
        found = report[name]
        expected = _by_search(found.value, found.standard_error, level)
        assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)


def test_ips_is_noisy_also_where_all_is_right_and_keeps_walds():
    data = _log(np.random.default_rng(1), 0.95)
    score, wald = (evaluate(data, interval=name)["ips"] for name in ("score", "wald"))
    assert score == wald


def test_ends_move_with_the_range_of_rewards():
    data = _log(np.random.default_rng(2), 0.95)
    moved = replace(data, rewards=10 * data.rewards - 3, reward_range=(-3.0, 7.0))
    plain, far = (evaluate(one, interval="score", estimators=("snips",)) for one in (data, moved))
    for end in ("value", "low", "high"):
        expected = 10 * getattr(plain["snips"], end) - 3
        assert getattr(far["snips"], end) == pytest.approx(expected, abs=1e-9)


def test_where_no_range_is_known_there_are_none():
    data = _log(np.random.default_rng(3), 0.4)
    data = replace(data, rewards=2 * data.rewards - 0.5)
    with pytest.raises(
        InputError, match=r"a Score interval needs the possible range .* reward_range="
    ):
        evaluate(data, interval="score")


@pytest.mark.parametrize("ends", [(-3.0, 7.0), (-10.0, 5.0), (-10.0, 3.0), (0.0, 1.0)])
def test_rewards_that_are_all_at_an_end_are_at_it_to_rounding(ends):
    """A value of 6.999999999999999 is within the range, and its place in it is 1."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        second = rng.uniform(0.4, 0.6, 1000)
        target = np.tile([0.5, 0.5], (1000, 1))
        actions = (rng.random(1000) < second).astype(int)
        propensities = np.where(actions == 1, second, 1.0 - second)
        data = LoggedData(actions, np.full(1000, ends[1]), propensities, target, reward_range=ends)
        found = evaluate(data, interval="score", estimators=("snips",))["snips"]
        assert ends[0] < found.low < found.value <= found.high + 1e-9
        assert found.high == pytest.approx(ends[1])


def test_a_model_from_elsewhere_leaves_noise_where_all_is_right():
    """Of predictions that are all 0, DR is IPS, and as noisy."""
    data = _log(np.random.default_rng(4), 0.98, q_hat=np.zeros((800, 2)))
    report = evaluate(data, interval="score")
    assert report["dr"] == report["ips"]


@given(st.integers(0, 10_000), st.sampled_from([0.001, 0.01, 0.5, 0.99, 0.999]), st.booleans())
def test_they_hold_the_value_and_stay_in_the_range(seed, rate, of_units):
    rng = np.random.default_rng(seed)
    data = _log(rng, rate, rows=400)
    if of_units:
        data = replace(data, clusters=np.arange(400) // 2)
    report = evaluate(data, interval="score", estimators=("snips",), level=0.999)
    found = report["snips"]
    if not report.refused:
        assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@pytest.mark.slow
def test_rare_outcomes_are_covered_better_than_by_walds():
    """A thousand rows worth 270, of which one in twenty-five is a success."""
    rng = np.random.default_rng(42)
    kinds = rng.normal(size=(64, 5))
    scores = kinds @ rng.normal(size=(5, 4)) / np.sqrt(5)
    means, target = expit(scores - 4), softmax(2 * scores, axis=1)
    logging = 0.05 + 0.8 * softmax(kinds @ rng.normal(size=(5, 4)), axis=1)
    truth, held = (means * target).sum(axis=1).mean(), {"wald": [], "score": []}
    for seed in range(400):
        rng = np.random.default_rng([seed, 1000])
        kind = rng.integers(64, size=1000)
        below = logging[kind].cumsum(axis=1) < rng.random(1000)[:, None]
        actions = np.minimum(below.sum(axis=1), 3)
        rewards = (rng.random(1000) < means[kind, actions]).astype(float)
        data = LoggedData(actions, rewards, logging[kind, actions], target[kind])
        for name, seen in held.items():
            found = evaluate(data, estimators=("snips",), interval=name)["snips"]
            seen.append(found.low <= truth <= found.high)
    assert np.mean(held["score"]) > np.mean(held["wald"]) + 0.02
    assert np.mean(held["score"]) > 0.86
