"""Blocks resample as rows do, numerator and denominator together, and models are refitted."""

import numpy as np
import pytest

from steersman.ope import LoggedData, evaluate
from steersman.ope.bootstrap import Refit, make_blocks
from steersman.ope.reward_models import fit, group_sums


def make_log(rows=6000, seed=0, **more):
    rng = np.random.default_rng(seed)
    logged = np.array([0.6, 0.3, 0.1])
    actions = rng.choice(3, rows, p=logged)
    rewards = (rng.random(rows) < np.array([0.6, 0.7, 0.8])[actions]).astype(float)
    target = rng.dirichlet([1, 1, 2], rows)
    return LoggedData(actions, rewards, logged[actions], target, **more)


def width(estimate):
    return estimate.high - estimate.low


@pytest.mark.slow
def test_blocks_agree_with_single_rows_and_with_wald():
    data = make_log()
    blocks = evaluate(data, interval="bootstrap", resamples=4000)
    wald = evaluate(data)
    rng = np.random.default_rng(1)
    weighted = data.weights * data.rewards
    ips, snips, frozen = [], [], []
    for _ in range(2000):
        rows = rng.integers(0, len(data), len(data))
        ips.append(weighted[rows].mean())
        snips.append(weighted[rows].sum() / data.weights[rows].sum())
        frozen.append(weighted[rows].sum() / data.weights.sum())
    for name, draws in (("ips", ips), ("snips", snips)):
        low, high = np.quantile(draws, [0.025, 0.975])
        assert width(blocks[name]) == pytest.approx(high - low, rel=0.08)
        assert width(blocks[name]) == pytest.approx(width(wald[name]), rel=0.08)
    assert width(blocks["dr"]) == pytest.approx(width(wald["dr"]), rel=0.08)
    # Freezing the denominator, as some libraries do, is a different and far wider interval.
    assert np.ptp(np.quantile(frozen, [0.025, 0.975])) > 1.3 * width(blocks["snips"])


def test_units_are_drawn_whole():
    one = make_log(rows=1500)
    rows = np.repeat(np.arange(1500), 4)
    copied = LoggedData(
        one.actions[rows],
        one.rewards[rows],
        one.propensities[rows],
        one.target[rows],
        clusters=rows,
    )
    known = evaluate(copied, interval="bootstrap", resamples=2000)["snips"]
    alone = evaluate(one, interval="bootstrap", resamples=2000)["snips"]
    assert width(known) == pytest.approx(width(alone), rel=0.1)
    units = make_blocks(copied, most=100)
    assert units.count == 100
    for unit in range(1500):
        assert len(set(units.of_row[rows == unit])) == 1


@pytest.mark.parametrize("contexts", [False, True])
def test_refitting_from_block_sums_is_refitting_on_the_rows(contexts):
    rng = np.random.default_rng(3)
    rows = 400
    data = make_log(rows=rows, contexts=rng.normal(size=(rows, 2)) if contexts else None)
    blocks = make_blocks(data, most=20)
    refit = Refit(data)
    counts = rng.multinomial(20, np.full(20, 0.05), size=3).astype(float)
    found = refit.values(counts @ refit.block_sums(blocks.of_row, 20))
    for sample, value in zip(counts, found, strict=True):
        drawn = np.repeat(np.arange(rows), sample[blocks.of_row].astype(int))
        again = LoggedData(
            data.actions[drawn],
            data.rewards[drawn],
            data.propensities[drawn],
            data.target[drawn],
            contexts=data.contexts[drawn] if contexts else None,
        )
        sums = group_sums(again, np.zeros(len(drawn), dtype=np.int64), 1)
        theta = fit(sums)[0]
        z = np.ones((len(drawn), 1))
        if contexts:
            z = np.column_stack([z, again.contexts])
        assert value == pytest.approx((again.target * (z @ theta.T)).sum(axis=1).mean(), abs=1e-9)


def test_models_without_refit_get_no_interval():
    data = make_log()
    given = make_log(q_hat=np.full((6000, 3), 0.5))
    assert evaluate(data)["dm"].low is None
    assert evaluate(data, interval="bernstein")["dm"].low is None
    assert evaluate(given, interval="bootstrap", resamples=200)["dm"].low is None
    learning = evaluate(data, interval="bootstrap", resamples=200, adaptive=True)
    assert learning["dm"].low is None
    assert learning["dm"].value is not None
    assert evaluate(data, interval="bootstrap", resamples=200)["dm"].low is not None
    wide = make_log(contexts=np.random.default_rng(0).normal(size=(6000, 300)))
    assert evaluate(wide, estimators=("dm",), interval="bootstrap")["dm"].low is None
