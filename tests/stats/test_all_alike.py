"""Units that all showed one value leave room for what they did not show, and no more."""

import numpy as np
import pytest
from scipy.stats import binomtest

from steersman.errors import InputError
from steersman.stats import all_alike_interval


@pytest.mark.parametrize("n", [1, 3, 12, 300])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_shares_have_the_exact_interval_of_the_binomial(n, level):
    exact = binomtest(n, n).proportion_ci(level, method="exact")
    found = tuple(all_alike_interval(1.0, n, low=0.0, high=1.0, level=level))
    assert found == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_the_truth_of_two_values_is_missed_as_seldom_as_is_said(n):
    intervals = [all_alike_interval(one, n, low=-1.0, high=1.0) for one in (-1.0, 1.0)]
    for share in np.linspace(0, 1, 401):  # of units that are 1
        alike = (1 - share) ** n, share**n
        missed = sum(
            chance
            for chance, found in zip(alike, intervals, strict=True)
            if 2 * share - 1 not in found
        )
        assert missed <= 0.05


def test_a_value_between_the_ends_may_move_to_either():
    low, high = all_alike_interval(0.25, 10, low=0.0, high=1.0)
    unseen = 1 - 0.025**0.1
    assert (low, high) == pytest.approx((0.25 * (1 - unseen), 0.25 + 0.75 * unseen))


@pytest.mark.parametrize(
    "wrong",
    [{"value": 2.0}, {"value": float("nan")}, {"n": 0}, {"low": 1.0}, {"level": 1.0}],
)
def test_arguments_out_of_range_are_refused(wrong):
    given = {"value": 1.0, "n": 5, "low": 0.0, "high": 1.0} | wrong
    with pytest.raises(InputError):
        all_alike_interval(**given)
