"""Two-arm tests against scipy, and their error rates by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from steersman.errors import InputError
from steersman.stats import (
    non_inferiority_test,
    sample_ratio_test,
    sequential_sample_ratio_test,
    welch_test,
)

samples = arrays(float, st.integers(3, 40), elements=st.integers(-50, 50).map(lambda i: i / 7))


@settings(max_examples=50)
@given(samples, samples, st.floats(0.5, 0.99))
def test_welch_is_scipys(first, second, level):
    if np.ptp(first) == 0 or np.ptp(second) == 0:
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
    if np.ptp(first) == 0 or np.ptp(second) == 0:
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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 1], [1, 1]),
        ([1, 1], [0, 0]),
        ([2, 2], [1, 3]),
        ([1, 3], [2, 2]),
        ([0.1 + 0.2, 0.3, 0.3], [1, 2]),  # rounding is no spread
        ([0, 0], [1, 2]),
        ([1e-200, 2e-200], [1, 2]),
    ],
)
def test_an_arm_that_is_all_alike_proves_nothing(first, second):
    for found in (
        welch_test(first, second, level=0.2),
        non_inferiority_test(first, second, margin=5.0, level=0.2),
    ):
        assert (found.low, found.high) == (-math.inf, math.inf)
        assert (found.statistic, found.degrees, found.p_value) == (0.0, 0.0, 1.0)
        assert not found.rejected
        assert found.difference == pytest.approx(np.mean(first) - np.mean(second))


@pytest.mark.parametrize(("n", "margin"), [(10, 0.05), (100, 0.01), (100, 0.02)])
def test_not_to_have_failed_yet_is_not_to_be_non_inferior(n, margin):
    """Worse by exactly the margin than a control that never, or hardly ever, fails."""
    rng, runs = np.random.default_rng(5), 400
    for rate in (0.0, 0.002):
        candidate = rng.random((runs, n)) >= rate + margin
        control = rng.random((runs, n)) >= rate
        wrong = [
            non_inferiority_test(a, b, margin=margin).rejected
            for a, b in zip(candidate, control, strict=True)
        ]
        assert np.mean(wrong) <= 0.05


@pytest.mark.parametrize("n", [2, 3, 5])
def test_so_few_that_arms_are_often_all_alike_alarm_no_more_than_is_said(n):
    """Shares of one half, of which all tables are counted: as certainties .125 at two units."""
    chances = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    arms = [np.arange(n) < seen for seen in range(n + 1)]
    alarms = sum(
        chances[i] * chances[j] * welch_test(one, other).rejected
        for i, one in enumerate(arms)
        for j, other in enumerate(arms)
    )
    assert alarms <= 0.05


@pytest.mark.slow
def test_rare_outcomes_do_what_the_docstrings_say():
    """Failures counted, and the chances of what is rejected added up."""

    def chance(test, candidate, control):
        (n, rate), (m, other) = candidate, control
        kinds = [
            [(np.arange(units) >= k, law.pmf(k)) for k in np.arange(*law.interval(1 - 1e-4))]
            for units, law in ((n, stats.binom(n, rate)), (m, stats.binom(m, other)))
        ]
        return sum(p * q * test(one, two).rejected for one, p in kinds[0] for two, q in kinds[1])

    def shown(margin):
        return lambda one, two: non_inferiority_test(one, two, margin=margin)

    assert chance(welch_test, (100, 0.05), (10_000, 0.05)) == pytest.approx(0.10, abs=0.01)
    assert chance(welch_test, (100, 0.05), (100, 0.05)) <= 0.05
    assert chance(shown(0.01), (1_000, 0.012), (1_000, 0.002)) == pytest.approx(0.08, abs=0.01)
    assert chance(shown(0.05), (100, 0.06), (1_000, 0.01)) == pytest.approx(0.12, abs=0.01)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("n", [1, 20, 50, 100, 1000])
def test_a_split_of_two_arms_is_called_off_no_more_often_than_is_said(n, share):
    counts = np.arange(n + 1)
    chances = stats.binom.pmf(counts, n, share)
    calls = [
        bool(chance > 1e-12) and sample_ratio_test([c, n - c], [share, 1 - share]).mismatch
        for c, chance in zip(counts, chances, strict=True)
    ]
    assert chances[calls].sum() <= 0.001


@pytest.mark.parametrize("shares", [(0.01, 0.01, 0.98), (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("n", [5, 30])
def test_a_split_of_three_arms_is_called_off_no_more_often_than_is_said(n, shares):
    splits = [(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)]
    chances = stats.multinomial.pmf(splits, n, shares)
    calls = [sample_ratio_test(one, shares).mismatch for one in splits]
    assert chances[calls].sum() <= 0.001


def test_the_p_value_of_a_split_is_the_binomials_tails():
    for first, second, share in ((3, 17, 0.01), (0, 20, 0.3), (20, 0, 0.3), (430, 570, 0.5)):
        law = stats.binom(first + second, share)
        tails = law.cdf(first), law.sf(first - 1)
        ours = sample_ratio_test([first, second], [share, 1 - share])
        assert ours.p_value == pytest.approx(min(1.0, 2 * min(tails)), rel=1e-9)
        turned = sample_ratio_test([second, first], [1 - share, share])
        assert turned.p_value == pytest.approx(ours.p_value, rel=1e-9)
    counts, shares = [5000, 5200, 1300], np.array([4, 4, 1]) / 9
    single = [
        sample_ratio_test([c, 11_500 - c], [s, 1 - s]).p_value
        for c, s in zip(counts, shares, strict=True)
    ]
    assert sample_ratio_test(counts, [4, 4, 1]).p_value == pytest.approx(3 * min(single))


@pytest.mark.slow
def test_the_distance_of_a_split_is_scipys_and_many_units_keep_the_level():
    ours = sample_ratio_test([5000, 5200, 1300], [4, 4, 1])
    theirs = stats.chisquare([5000, 5200, 1300], np.array([4, 4, 1]) / 9 * 11_500)
    assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-9)
    assert sample_ratio_test([2**51 - 2**28, 2**51 + 2**28]).mismatch
    assert sample_ratio_test([2**52, 2**52]).p_value == pytest.approx(1.0, abs=1e-6)
    rng = np.random.default_rng(0)
    counts = rng.binomial(10_000, 0.3, 4000)
    calls = [sample_ratio_test([c, 10_000 - c], [0.3, 0.7], level=0.95).mismatch for c in counts]
    assert np.mean(calls) == pytest.approx(0.05, abs=4 * math.sqrt(0.0475 / 4000))


@pytest.mark.parametrize(
    ("observed", "shares"),
    [
        ([1, -1], None),
        ([0, 0], None),
        ([1, 2], [1, 0]),
        ([1, 2], [1, 1e-101]),
        ([1, 2], [1, 1, 1]),
        ([5], None),
        ([1.5, 2], None),
        ([2.0**53, 2.0**53], None),
    ],
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
    for words in (["a", "b"], ["1", "2"], [1.0, "2"], [b"1", b"2"], np.array(["1", 2], object)):
        with pytest.raises(InputError, match="candidate has type"):
            welch_test(words, second)
    with pytest.raises(InputError, match="level is 'x'"):
        welch_test(first, second, level="x")


@pytest.mark.parametrize("scale", [1e-161, 1e-155])
def test_numbers_whose_squares_leave_float64_show_no_spread(scale):
    rng = np.random.default_rng(0)
    arms = scale * rng.normal(size=50), scale * rng.normal(size=5)
    for found in (welch_test(*arms), non_inferiority_test(*arms, margin=1.0)):
        assert (found.low, found.p_value, found.rejected) == (-math.inf, 1.0, False)


def test_small_numbers_are_compared_like_others():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=50), rng.normal(size=50)
    plain, small = welch_test(first, second), welch_test(1e-150 * first, 1e-150 * second)
    assert small.p_value == pytest.approx(plain.p_value, rel=1e-9)


@pytest.mark.parametrize("test", [sample_ratio_test, sequential_sample_ratio_test])
def test_the_counts_of_a_split_are_its_own(test):
    counts = np.array([100.0, 120.0])
    found = test(counts)
    counts[0] = 0.0
    assert found.observed.tolist() == [100.0, 120.0]
