"""On logs of a policy that learned as it ran, intervals hold the truth as often as they say."""

import math

import numpy as np
import pytest

from benchmarks.ope_worlds import ADAPTIVE_WORLDS
from steersman.ope import evaluate

RUNS = 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, id=world.name, marks=pytest.mark.nightly if number % 2 else ())
        for number, world in enumerate(ADAPTIVE_WORLDS)
    ],
)
def test_wald(world):
    names = ("ips", "snips", "dr")
    held, runs = dict.fromkeys(names, 0), 0
    for data in world.logs(np.random.default_rng(3), RUNS, 5000):
        report = evaluate(data, estimators=names, adaptive=True)
        runs += not report.refused
        for name in names if not report.refused else ():
            held[name] += report[name].low <= world.truth <= report[name].high
    assert runs > 0.98 * RUNS
    tolerance = 0.015 + 3 * math.sqrt(0.95 * 0.05 / RUNS)
    for name in names:
        assert held[name] / runs == pytest.approx(0.95, abs=tolerance), name
