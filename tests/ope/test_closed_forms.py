"""Values and standard errors against slow loops, to 1e-9."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from steersman.ope import DM, DR, IPS, SNIPS, Log, LoggedData, evaluate
from steersman.ope.intervals import bernstein, standard_error, wald
from steersman.stats import empirical_bernstein


@st.composite
def logs(draw):
    """A log of 4 to 30 rows with predictions and units, and weight on some row."""
    rows, actions = draw(st.integers(4, 30)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return LoggedData(
        actions=rng.integers(0, actions, rows),
        rewards=rng.normal(size=rows),
        propensities=rng.uniform(0.05, 1.0, rows),
        target=rng.dirichlet(np.full(actions, 0.7), rows),
        q_hat=rng.normal(size=(rows, actions)),
        clusters=rng.integers(0, 5, rows),
    )


def rows_of(data):
    for t in range(len(data)):
        a = data.actions[t]
        yield t, a, data.rewards[t], data.target[t, a] / data.propensities[t]


@given(logs())
def test_ips(data):
    total = math.fsum(w * r for _, _, r, w in rows_of(data))
    assert IPS().rounds(Log(data)).value == pytest.approx(total / len(data), abs=1e-9)


@given(logs())
def test_snips(data):
    top = math.fsum(w * r for _, _, r, w in rows_of(data))
    bottom = math.fsum(w for _, _, _, w in rows_of(data))
    assert SNIPS().rounds(Log(data)).value == pytest.approx(top / bottom, abs=1e-9)


@given(logs())
def test_dm_and_dr(data):
    direct, robust = [], []
    for t, a, r, w in rows_of(data):
        guess = sum(data.target[t, b] * data.q_hat[t, b] for b in range(data.target.shape[1]))
        direct.append(guess)
        robust.append(guess + w * (r - data.q_hat[t, a]))
    assert DM().rounds(Log(data)).value == pytest.approx(np.mean(direct), abs=1e-9)
    assert DR().rounds(Log(data)).value == pytest.approx(np.mean(robust), abs=1e-9)


@given(logs())
def test_standard_error_of_a_mean_is_the_textbook_one(data):
    terms = [w * r for _, _, r, w in rows_of(data)]
    error = standard_error(IPS().rounds(Log(data)), None)
    assert error == pytest.approx(np.std(terms, ddof=1) / math.sqrt(len(data)), abs=1e-9)


@given(logs())
def test_standard_error_of_a_ratio_is_its_jackknife_in_the_limit(data):
    # Give row t the weight 1 + h in both sums; the derivative of the ratio is row t's influence.
    rounds, size, h = SNIPS().rounds(Log(data)), len(data), 1e-6
    top, bottom = rounds.numerator, rounds.denominator
    influence = [
        (
            (top.sum() + h * top[t]) / (bottom.sum() + h * bottom[t])
            - (top.sum() - h * top[t]) / (bottom.sum() - h * bottom[t])
        )
        / (2 * h)
        for t in range(size)
    ]
    expected = math.sqrt(sum(i**2 for i in influence) * size / (size - 1))
    assert standard_error(rounds, None) == pytest.approx(expected, rel=1e-6)


@given(logs())
def test_standard_error_over_units(data):
    rounds = SNIPS().rounds(Log(data))
    totals = dict.fromkeys(data.clusters.tolist(), 0.0)
    for t, _, r, w in rows_of(data):
        totals[int(data.clusters[t])] += w * (r - rounds.value)
    count = len(totals)
    if count < 2:
        return
    square = sum(total**2 for total in totals.values()) * count / (count - 1)
    expected = math.sqrt(square) / rounds.denominator.sum()
    assert standard_error(rounds, data.units) == pytest.approx(expected, rel=1e-9)


@given(logs(), st.floats(0.5, 0.99))
def test_wald_is_symmetric_and_grows_with_the_level(data, level):
    rounds = IPS().rounds(Log(data))
    low, high = wald(rounds, None, level)
    wider = wald(rounds, None, (1 + level) / 2)
    assert (low + high) / 2 == pytest.approx(rounds.value, abs=1e-9)
    assert wider.low <= low
    assert wider.high >= high


def bounded_log(seed, rows=400):
    rng = np.random.default_rng(seed)
    logged = np.array([0.6, 0.4])
    actions = rng.choice(2, rows, p=logged)
    rewards = rng.random(rows)
    return LoggedData(actions, rewards, logged[actions], np.tile([0.3, 0.7], (rows, 1)))


@given(st.integers(0, 1000))
def test_bernstein_of_a_mean_is_the_interval_of_its_terms(seed):
    data = bounded_log(seed)
    highest = 0.7 / data.propensities.min()
    terms = data.weights * data.rewards
    ours = bernstein(IPS().rounds(Log(data)), None, 0.95)
    theirs = empirical_bernstein(terms, low=0.0, high=highest)
    assert ours.low == pytest.approx(max(theirs.low, ours.low), abs=1e-9)
    assert (ours.low + ours.high) / 2 == pytest.approx(terms.mean(), abs=1e-9)
    assert ours.high == pytest.approx(theirs.high, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 1000))
def test_bernstein_of_a_ratio_inverts_the_bound(seed):
    data = bounded_log(seed)
    span, log_term, n = 0.7 / data.propensities.min(), math.log(80), len(data)

    def excess(value):
        terms = data.weights * (data.rewards - value)
        bound = math.sqrt(2 * terms.var(ddof=1) * log_term / n)
        return abs(terms.mean()) - bound - 7 * span * log_term / (3 * (n - 1))

    rounds = SNIPS().rounds(Log(data))
    ours = bernstein(rounds, None, 0.95)
    low = optimize.brentq(excess, -50, rounds.value, xtol=1e-12)
    high = optimize.brentq(excess, rounds.value, 50, xtol=1e-12)
    assert tuple(ours) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize("estimator", [SNIPS(), DR()])
@pytest.mark.parametrize("offset", [-1e9, 1e7, 1e9])
def test_bernstein_does_not_depend_on_where_rewards_begin(estimator, offset):
    rng = np.random.default_rng(0)
    rewards = rng.random(2000)

    def told(by):
        data = LoggedData(
            actions=np.arange(2000) % 2,
            rewards=rewards + by,
            propensities=np.full(2000, 0.5),
            target=np.tile([0.3, 0.7], (2000, 1)),
            q_hat=np.full((2000, 2), 0.5 + by),
            reward_range=(by, by + 1.0),
        )
        found = evaluate(data, estimators=[estimator], interval="bernstein")[estimator.name]
        return np.array([found.low, found.value, found.high]) - by

    assert told(offset) == pytest.approx(told(0.0), abs=1e-5)
