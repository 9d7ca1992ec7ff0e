"""Intervals hold the truth as often as they say, on independent rows and on units."""

import math

import numpy as np
import pytest

from benchmarks.ope_worlds import IndependentWorld
from steersman.ope import evaluate

pytestmark = pytest.mark.slow


def coverage(world, runs, rows, names, **options):
    """Share of intervals that hold the truth, and their mean width, for each estimator."""
    held, widths = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    for run in range(runs):
        data = world.log(np.random.default_rng([7, run]), rows)
        report = evaluate(data, estimators=names, **options)
        for name in names:
            held[name] += report[name].low <= world.truth <= report[name].high
            widths[name] += (report[name].high - report[name].low) / runs
    return {name: held[name] / runs for name in names}, widths


def near_nominal(share, runs):
    # Three binomial errors, and two points for what the normal law misses at this n.
    return abs(share - 0.95) < 0.02 + 3 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("units", [1, 5])
def test_wald(units):
    shares, _ = coverage(IndependentWorld(units=units), 500, 4000, ("ips", "snips", "dr"))
    assert all(near_nominal(share, 500) for share in shares.values()), shares


def test_units_taken_for_rows_break_it():
    world = IndependentWorld(units=20)
    held = 0
    for run in range(300):
        data = world.log(np.random.default_rng([7, run]), 4000)
        blind = evaluate(
            type(data)(data.actions, data.rewards, data.propensities, data.target),
            estimators=("snips",),
        )["snips"]
        held += blind.low <= world.truth <= blind.high
    assert held / 300 < 0.9


def test_bootstrap_with_the_model_refitted():
    names = ("ips", "snips", "dm", "dr")
    shares, _ = coverage(IndependentWorld(), 200, 3000, names, interval="bootstrap", resamples=500)
    # The direct method's linear model is nearly right in this world; its bias is its own affair.
    assert shares.pop("dm") > 0.85
    assert all(near_nominal(share, 200) for share in shares.values()), shares


def test_bernstein_holds_at_a_price():
    names = ("ips", "snips", "dr")
    shares, widths = coverage(IndependentWorld(), 200, 3000, names, interval="bernstein")
    _, wald = coverage(IndependentWorld(), 50, 3000, names)
    assert min(shares.values()) >= 0.95
    for name in names:
        assert 1.3 * wald[name] < widths[name] < 12 * wald[name]
