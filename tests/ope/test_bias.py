"""Bias, by summing over every log that can happen."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ope_worlds import ADAPTIVE_WORLDS
from steersman.ope import DM, DR, IPS, SNIPS, Log, LoggedData, evaluate

logged = np.array([0.5, 0.3, 0.2])
target = np.array([0.1, 0.2, 0.7])
means = np.array([0.2, 0.5, 0.9])
truth = float(target @ means)


def expectation(estimator, q_hat=None, rows=2):
    """Sum probability times value over every log of `rows` rows with rewards 0 or 1."""
    total = 0.0
    for steps in product(product(range(3), (0, 1)), repeat=rows):
        actions = np.array([action for action, _ in steps])
        rewards = np.array([float(reward) for _, reward in steps])
        chance = np.prod(logged[actions] * np.where(rewards, means[actions], 1 - means[actions]))
        guess = None if q_hat is None else np.tile(q_hat, (rows, 1))
        data = LoggedData(
            actions, rewards, logged[actions], np.tile(target, (rows, 1)), q_hat=guess
        )
        total += chance * estimator.rounds(Log(data)).value
    return total


def test_ips_has_none():
    assert expectation(IPS()) == pytest.approx(truth, abs=1e-12)


@settings(max_examples=10)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_dr_has_none_whatever_the_model_says(q_hat):
    assert expectation(DR(), q_hat) == pytest.approx(truth, abs=1e-12)


def test_cross_fitted_dr_has_none():
    assert expectation(DR(), rows=3) == pytest.approx(truth, abs=1e-12)


def test_dm_has_the_models():
    wrong = means + np.array([0.3, 0.0, -0.2])
    assert expectation(DM(), wrong) == pytest.approx(float(target @ wrong), abs=1e-12)
    assert expectation(DM(), means) == pytest.approx(truth, abs=1e-12)


def test_that_of_snips_shrinks_with_the_log():
    bias = [abs(expectation(SNIPS(), rows=rows) - truth) for rows in (1, 2, 4)]
    assert bias[0] > bias[1] > bias[2]


@pytest.mark.slow
def test_on_adaptive_logs_it_is_a_small_part_of_the_noise():
    world = ADAPTIVE_WORLDS[0]
    logs = world.logs(np.random.default_rng(0), 300, 5000)
    reports = [evaluate(data, adaptive=True) for data in logs]
    for name in ("ips", "snips", "dr"):
        values = np.array([report[name].value for report in reports if not report.refused])
        assert len(values) > 295
        assert abs(values.mean() - world.truth) < 0.3 * values.std()


def test_dm_on_an_adaptive_log_leaves_out_rows_without_a_past():
    data = LoggedData(np.zeros(200, int), np.full(200, 0.7), np.ones(200), np.ones((200, 1)))
    assert DM().rounds(Log(data, adaptive=True)).value == pytest.approx(0.7, abs=1e-12)


@pytest.mark.parametrize("contexts", [False, True])
def test_dr_on_an_adaptive_log_moves_with_the_rewards_and_its_interval_does_not_widen(contexts):
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 5, 600)
    rewards = rng.normal(size=600)
    seen = rng.normal(size=(600, 2)) if contexts else None
    one_arm = np.tile([0.0, 0.0, 0.0, 0.0, 1.0], (600, 1))
    near, far = (
        evaluate(
            LoggedData(drawn, rewards + level, np.full(600, 0.2), one_arm, contexts=seen),
            estimators=("dr",),
            adaptive=True,
        )["dr"]
        for level in (0.0, 100.0)
    )
    assert far.value == pytest.approx(near.value + 100.0, abs=1e-9)
    assert far.high - far.low == pytest.approx(near.high - near.low, abs=1e-9)


def test_dr_takes_an_adaptive_log_as_it_is_that_is_mostly_beginning():
    for rows, first in ((8, 1.0), (18, 1.0), (20, 0.0)):
        data = LoggedData(
            np.arange(rows) % 2,
            np.arange(rows) % 2 == 0,
            np.full(rows, 0.5),
            np.tile([0.5, 0.5], (rows, 1)),
        )
        rounds = DR().rounds(Log(data, adaptive=True))
        assert rounds.denominator[0] == first
        assert rounds.value == pytest.approx(0.5, abs=1e-12)
