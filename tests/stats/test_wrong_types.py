"""Numbers too long to be written, and what is no number, end in an error of ours."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.stats import (
    Interval,
    Moments,
    achieved_power,
    all_alike_interval,
    asymptotic_confidence_sequence,
    bca_interval,
    bernstein_half_width,
    crossed_mean,
    cuped_adjust,
    empirical_bernstein,
    group_sequential_bounds,
    kaplan_meier,
    minimum_detectable_effect,
    msprt,
    non_inferiority_test,
    required_sample_size,
    sample_ratio_test,
    sequential_sample_ratio_test,
    two_arm_confidence_sequence,
    welch_test,
)
from tests.wrong_values import WRONG, refused

ONE, TWO = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 3.0, 5.0])
POWER = {"sd": 1.0, "level": 0.95, "test": "t", "paired": False}
CALLS = {
    "interval": (Interval, {"low": 0.0, "high": 1.0}),
    "moments": (Moments, {"n": 3, "mean": 0.0, "variance": 1.0}),
    "power": (achieved_power, {"effect": 0.5, "n": 10, **POWER}),
    "effect": (minimum_detectable_effect, {"n": 10, "power": 0.8, **POWER}),
    "size": (required_sample_size, {"effect": 0.5, "power": 0.8, **POWER}),
    "alike": (all_alike_interval, {"value": 1.0, "n": 9, "low": 0.0, "high": 1.0, "level": 0.9}),
    "sequence": (
        asymptotic_confidence_sequence,
        {"mean": 0.5, "variance": 0.1, "n": 10, "level": 0.95, "n_star": 100},
    ),
    "bca": (
        bca_interval,
        {"x": ONE, "statistic": np.mean, "level": 0.95, "resamples": 1000, "seed": 0},
    ),
    "half width": (bernstein_half_width, {"variance": 0.1, "n": 10, "level": 0.95, "span": 1.0}),
    "crossed": (crossed_mean, {"values": np.ones((3, 3)), "level": 0.95, "within": None}),
    "cuped": (cuped_adjust, {"y": ONE, "covariate": TWO}),
    "bernstein": (empirical_bernstein, {"x": [0.1, 0.2], "level": 0.95, "low": 0.0, "high": 1.0}),
    "looks": (group_sequential_bounds, {"times": [0.5, 1.0], "alpha": 0.05, "spending": "pocock"}),
    "survival": (kaplan_meier, {"times": ONE, "ended": [True, False, True, True], "level": 0.95}),
    "msprt": (msprt, {"mean_diff": 0.1, "variance": 1.0, "n": 10, "tau": 0.1}),
    "no worse": (
        non_inferiority_test,
        {"candidate": ONE, "control": TWO, "margin": 0.1, "level": 0.95},
    ),
    "ratio": (sample_ratio_test, {"observed": [10, 12], "shares": None, "level": 0.999}),
    "ratio, sequential": (
        sequential_sample_ratio_test,
        {"observed": [10, 12], "shares": None, "level": 0.999, "concentration": 200.0},
    ),
    "two arms": (
        two_arm_confidence_sequence,
        {
            "candidate": Moments(10, 0.5, 0.1), "control": Moments(10, 0.4, 0.1),
            "level": 0.95, "n_star": 100, "one_sided": False,
        },
    ),
    "welch": (welch_test, {"candidate": ONE, "control": TWO, "level": 0.95}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_error_says_what_is_allowed(name):
    for argument, messages in refused(*CALLS[name]).items():
        assert len(messages) >= len(WRONG) // 2, argument
        assert max(map(len, messages)) < 600
