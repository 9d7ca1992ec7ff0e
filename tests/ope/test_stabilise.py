"""Stabilisers know the past alone, and equal a slow loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.ope import LoggedData, drawn_or_another, evaluate
from steersman.ope.estimators import stabilisers


def make_log(seed, rows=300, arms=3):
    rng = np.random.default_rng(seed)
    return LoggedData(
        rng.integers(0, 3, rows),
        rng.random(rows),
        rng.uniform(0.05, 0.9, rows),
        rng.dirichlet(np.full(arms, 0.5), rows),
    )


def slow(data):
    rows, actions = data.target.shape
    moments = []
    for now in range(rows):
        moment = 0.0
        for arm in range(actions):
            past = [t for t in range(now) if data.actions[t] == arm]
            share = data.target[:, arm].mean() ** 2
            if not past:
                moment += max(share * actions, share * now)
                continue
            fade = [(1 - 1 / 50) ** (len(past) - 1 - i) for i in range(len(past))]
            odds = [1 / data.propensities[t] for t in past]
            wanted = [data.target[t, arm] for t in past]
            total = sum(f * o for f, o in zip(fade, odds, strict=True))
            recent = sum(f * (w * o) ** 2 for f, o, w in zip(fade, odds, wanted, strict=True))
            squares = sum(f * w**2 * o for f, o, w in zip(fade, odds, wanted, strict=True))
            moment += max(recent / total, squares / total * (now - past[-1]))
        moments.append(max(moment, 1.0))
    moments[:100] = [moments[100]] * 100
    factors = 1 / np.sqrt(moments)
    return factors / factors.mean()


@pytest.mark.slow
@settings(max_examples=5)
@given(st.integers(0, 1000))
def test_a_second_implementation(seed):
    data = make_log(seed)
    assert stabilisers(data) == pytest.approx(slow(data), rel=1e-9)


@pytest.mark.slow
def test_arms_that_were_never_drawn():
    data = make_log(1, arms=5)
    assert stabilisers(data) == pytest.approx(slow(data), rel=1e-9)


@pytest.mark.slow
@given(st.integers(0, 1000), st.integers(101, 299))
def test_what_comes_later_changes_nothing_but_the_scale(seed, now):
    data, other = make_log(seed), make_log(seed + 5000)
    mixed = LoggedData(
        np.concatenate([data.actions[:now], other.actions[now:]]),
        data.rewards,
        np.concatenate([data.propensities[:now], other.propensities[now:]]),
        data.target,
    )
    before, after = stabilisers(data)[: now + 1], stabilisers(mixed)[: now + 1]
    assert before / before[0] == pytest.approx(after / after[0], rel=1e-9)


def test_a_steady_log_needs_none():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 5000)
    data = LoggedData(actions, rng.random(5000), np.full(5000, 0.5), np.tile([0.5, 0.5], (5000, 1)))
    factors = stabilisers(data)
    assert factors.mean() == pytest.approx(1.0)
    # An arm that happens to wait long looks as if it had been dropped, which costs little.
    assert factors.sum() ** 2 / (factors**2).sum() > 0.98 * 5000


def test_all_else_beside_what_was_drawn_is_no_arm_that_was_dropped():
    rng, rows, arms = np.random.default_rng(0), 4000, 20
    actions, masses = rng.integers(0, arms, rows), rng.dirichlet(np.full(arms, 2.0))
    rewards, propensities = rng.random(rows), np.full(rows, 1.0 / arms)
    mixed = LoggedData(
        np.zeros(rows, int), rewards, propensities, drawn_or_another(masses[actions])
    )
    named = LoggedData(actions, rewards, propensities, np.tile(masses, (rows, 1)))
    factors = stabilisers(mixed)  # of a log that never changed
    assert 0.6 < factors.min() < factors.max() < 1.6
    said = [evaluate(log, estimators=("snips",), adaptive=True)["snips"] for log in (mixed, named)]
    widths = [one.high - one.low for one in said]
    assert widths[0] == pytest.approx(widths[1], rel=0.02)


def test_all_else_beside_what_was_drawn_is_levelled_as_arms_are():
    rng, rows = np.random.default_rng(1), 4000
    p = np.where(np.arange(rows)[:, None] < rows // 2, [0.5, 0.5], [0.95, 0.05])
    actions = (rng.random(rows) >= p[:, 0]).astype(int)
    propensities, masses = p[np.arange(rows), actions], np.array([0.3, 0.7])
    rewards = rng.random(rows)
    mixed = LoggedData(
        np.zeros(rows, int), rewards, propensities, drawn_or_another(masses[actions])
    )
    factors = stabilisers(mixed)
    assert factors[rows // 4 : rows // 2].mean() > 2.0 * factors[-rows // 4 :].mean()
