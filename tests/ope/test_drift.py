"""On logs whose rewards or requests move over time, the value is the log's mean, and covered."""

import numpy as np
import pytest

from steersman.ope import SNIPS, Log, LoggedData, evaluate
from steersman.ope.estimators import drift_share, levelled, stabilisers
from steersman.ope.paired import off_policy_delta

RUNS, ROWS = 150, 2000


def _explored(rng, late_share):
    """Return draws of the second of two arms, the more the later, with their propensities."""
    second = 0.1 + late_share * np.arange(ROWS) / (ROWS - 1)
    actions = (rng.random(ROWS) < second).astype(int)
    return actions, np.where(actions == 1, second, 1.0 - second)


def _rising(rng, *, by):
    """Return a log whose rewards rise over time, whatever is done; the target is the second arm."""
    actions, propensities = _explored(rng, 0.8)
    rewards = rng.random(ROWS) < 0.5 + by * (np.arange(ROWS) / (ROWS - 1) - 0.5)
    target = np.tile([0.0, 1.0], (ROWS, 1))
    return LoggedData(actions, rewards.astype(float), propensities, target)


def _moving(rng):
    """Return a log whose contexts move over time; rewards depend on them alone."""
    actions, propensities = _explored(rng, 0.8)
    kind = rng.random(ROWS) < np.arange(ROWS) / (ROWS - 1)
    rewards = (rng.random(ROWS) < 0.2 + 0.6 * kind).astype(float)
    target = np.tile([0.0, 1.0], (ROWS, 1))
    return LoggedData(actions, rewards, propensities, target, contexts=kind[:, None].astype(float))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda rng: _rising(rng, by=0.0), id="nothing moves"),
        pytest.param(lambda rng: _rising(rng, by=0.2), id="rewards rise a little"),
        pytest.param(lambda rng: _rising(rng, by=0.8), id="rewards rise"),
        pytest.param(_moving, id="contexts move"),
    ],
)
def test_the_mean_over_the_log_is_covered(make):
    rng, held = np.random.default_rng(5), []
    for _ in range(RUNS):
        report = evaluate(make(rng), estimators=("ips", "snips", "dr"), adaptive=True)
        held.append([report[name].low <= 0.5 <= report[name].high for name in report.estimates])
    # 95 %, and three standard errors of so many runs; it was 0 where rewards rise
    assert np.mean(held, axis=0).min() >= 0.89


@pytest.mark.slow
def test_two_policies_are_compared_over_the_same_hours():
    """Half of the time is better for both, and the log did mostly the one, then the other."""
    rows, held, better = 4000, 0, 0
    late = np.arange(rows) >= rows // 2
    level = np.where(late, 0.3, 0.7)
    means = np.stack([level + 0.025, level - 0.025], axis=1)  # the second is always worse by .05
    for seed in range(60):
        rng = np.random.default_rng(seed)
        actions = (rng.random(rows) < np.where(late, 0.1, 0.9)).astype(int)
        propensities = np.where(actions == late, 0.1, 0.9)
        rewards = (rng.random(rows) < means[np.arange(rows), actions]).astype(float)
        logs = [
            LoggedData(actions, rewards, propensities, np.tile(target, (rows, 1)))
            for target in ([1.0, 0.0], [0.0, 1.0])
        ]
        found = off_policy_delta(*logs)
        held += found.low <= -0.05 <= found.high
        better += found.low > 0.0
    assert held >= 52
    assert better == 0


def test_what_does_not_drift_keeps_three_quarters_of_its_factors():
    taken_back = []
    for seed in range(100):
        data = _rising(np.random.default_rng(seed), by=0.0)
        factors = stabilisers(data)
        terms = SNIPS().rounds(Log(data, adaptive=True, levels=False))
        plain, whole = terms.value, terms.scaled(factors).value
        taken_back.append((levelled(terms, factors, None).value - whole) / (plain - whole))
    assert 0.0 <= min(taken_back) <= max(taken_back) <= 1.0
    assert np.mean(taken_back) == pytest.approx(0.242, abs=0.1)  # of z² / (z² + 2), z normal


def test_the_share_is_none_of_no_gap_and_all_of_a_large_one():
    residuals = np.random.default_rng(0).normal(size=400)
    noise = float(np.linalg.norm(residuals)) / 400
    assert drift_share(0.0, residuals, None) == 0.0
    assert drift_share(noise, residuals, None) == pytest.approx(1 / 3)
    assert drift_share(-10.0 * noise, residuals, None) == pytest.approx(100 / 102)
    units = np.arange(400) // 4
    summed = float(np.linalg.norm(residuals.reshape(100, 4).sum(axis=1))) / 400
    assert drift_share(summed, residuals, units) == pytest.approx(1 / 3)


def test_residuals_have_the_noise_of_the_share_too():
    """A row that weighs a little more moves the value by its residual; the share moves as well."""
    data = _rising(np.random.default_rng(6), by=0.1)
    terms, factors = SNIPS().rounds(Log(data, adaptive=True, levels=False)), stabilisers(data)
    gap = terms.value - terms.scaled(factors).value
    apart = terms.residuals() - terms.scaled(factors).residuals()
    assert 0.2 < drift_share(gap, apart, None) < 0.8
    found, step = levelled(terms, factors, None), 1e-4
    moved, said = [], []
    for row in np.flatnonzero(data.weights > 0)[::20]:
        heavier = np.ones(ROWS)
        heavier[row] += step
        moved.append((levelled(terms.scaled(heavier), factors, None).value - found.value) / step)
        said.append(found.residuals()[row] / ROWS)
    assert np.linalg.norm(np.subtract(moved, said)) < 0.1 * np.linalg.norm(moved)
