"""Two-arm tests against scipy, and their error rates by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from steersman.errors import InputError
from steersman.stats import non_inferiority_test, sample_ratio_test, welch_test

samples = arrays(float, st.integers(3, 40), elements=st.integers(-50, 50).map(lambda i: i / 7))


@settings(max_examples=50)
@given(samples, samples, st.floats(0.5, 0.99))
def test_welch_is_scipys(first, second, level):
    if first.std() == 0 or second.std() == 0:
        return
    ours = welch_test(first, second, level=level)
    theirs = stats.ttest_ind(first, second, equal_var=False)
    ends = theirs.confidence_interval(level)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx((ends.low, ends.high), abs=1e-9)
    assert ours.degrees == pytest.approx(theirs.df, rel=1e-9)
    assert ours.rejected == (ours.p_value <= 1 - level)


@settings(max_examples=50)
@given(samples, samples, st.floats(0, 3))
def test_non_inferior_exactly_when_the_bound_is_above_the_margin(first, second, margin):
    if first.std() == 0 and second.std() == 0:
        return
    ours = non_inferiority_test(first, second, margin=margin)
    assert ours.rejected == (ours.low > -margin)
    theirs = stats.ttest_ind(first + margin, second, equal_var=False, alternative="greater")
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    assert ours.high == math.inf


def test_non_inferiority_is_that_of_statsmodels():
    # statsmodels 0.15.0: ttest_ind(a, b, usevar="unequal", alternative="larger", value=-0.4).
    first, second = np.arange(1, 13) / 7, [0.3, 0.9, 1.1, 0.2, 0.5, 2.0, 0.8]
    ours = non_inferiority_test(first, second, margin=0.4)
    found = ours.statistic, ours.p_value, ours.degrees
    theirs = (1.8220272220337375, 0.04787746898213615, 10.988313316162433)
    assert found == pytest.approx(theirs, abs=1e-9)


@pytest.mark.slow
def test_error_rates():
    rng = np.random.default_rng(0)
    runs = 4000
    first, second = rng.normal(0, 1, (runs, 60)), rng.normal(0, 3, (runs, 30))
    alarms = np.mean([welch_test(a, b).rejected for a, b in zip(first, second, strict=True)])
    worse = first - 0.5
    wrong = np.mean(
        [
            non_inferiority_test(a, b, margin=0.5).rejected
            for a, b in zip(worse, second, strict=True)
        ]
    )
    tolerance = 4 * math.sqrt(0.05 * 0.95 / runs)
    assert alarms == pytest.approx(0.05, abs=tolerance)
    assert wrong == pytest.approx(0.05, abs=tolerance)


def test_arms_without_variance():
    assert welch_test([1, 1], [1, 1]).p_value == 1.0
    assert welch_test([2, 2], [1, 1]).p_value == 0.0


def test_sample_ratio_is_scipys_and_keeps_its_level():
    ours = sample_ratio_test([5000, 5200, 1300], [4, 4, 1])
    theirs = stats.chisquare([5000, 5200, 1300], np.array([4, 4, 1]) / 9 * 11_500)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-12)
    rng = np.random.default_rng(0)
    counts = rng.binomial(10_000, 0.3, 4000)
    calls = [sample_ratio_test([c, 10_000 - c], [0.3, 0.7], level=0.95).mismatch for c in counts]
    assert np.mean(calls) == pytest.approx(0.05, abs=4 * math.sqrt(0.0475 / 4000))


@pytest.mark.parametrize(
    ("observed", "shares"),
    [([1, -1], None), ([0, 0], None), ([1, 2], [1, 0]), ([1, 2], [1, 1, 1]), ([5], None)],
)
def test_impossible_splits(observed, shares):
    with pytest.raises(InputError):
        sample_ratio_test(observed, shares)


def test_impossible_samples():
    with pytest.raises(InputError, match=r"candidate\[1\]"):
        welch_test([1, math.nan, 2], [1, 2])
    with pytest.raises(InputError, match="control"):
        welch_test([1, 2], [1])
    with pytest.raises(InputError, match="margin"):
        non_inferiority_test([1, 2], [1, 2], margin=-1)


def test_huge_numbers_are_compared_or_refused():
    first, second = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 9.0, 8.0])
    plain, huge = welch_test(first, second), welch_test(first * 1e99, second * 1e99)
    assert (huge.p_value, huge.degrees) == pytest.approx((plain.p_value, plain.degrees))
    with pytest.raises(InputError, match=r"candidate\[0\] is 1e\+200"):
        welch_test([1e200, 2e200], second)
    with pytest.raises(InputError, match="candidate is no array of numbers"):
        welch_test(["a", "b"], second)
    with pytest.raises(InputError, match="level is 'x'"):
        welch_test(first, second, level="x")
