"""Two arms looked at as often as one likes: second implementations, coverage, false alarms."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from steersman.errors import InputError
from steersman.stats import (
    Moments,
    asymptotic_confidence_sequence,
    sequential_sample_ratio_test,
    two_arm_confidence_sequence,
)

arms = st.builds(Moments, st.integers(2, 5000), st.floats(0, 1), st.floats(0.001, 0.25))


@given(arms, arms, st.floats(0.6, 0.999), st.integers(10, 10_000))
def test_two_sided_it_is_the_one_sample_sequence_of_the_influence_function(a, b, level, star):
    total = a.n + b.n
    variance = total * (a.variance / a.n + b.variance / b.n)
    ours = two_arm_confidence_sequence(a, b, level=level, n_star=star)
    theirs = asymptotic_confidence_sequence(
        a.mean - b.mean, variance, total, level=level, n_star=star
    )
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9, rel=1e-9)


def test_arms_of_one_size_and_variance_are_a_sequence_of_pairs():
    arm, other = Moments(400, 0.6, 0.2), Moments(400, 0.5, 0.2)
    low, high = two_arm_confidence_sequence(arm, other, n_star=600)
    # 400 differences of pairs, each with variance .4, tightest at 300 of them.
    paired = asymptotic_confidence_sequence(0.1, 0.4, 400, n_star=300)
    assert (low, high) == pytest.approx((paired.low, paired.high), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(20, 20_000), st.floats(0.001, 0.1), st.integers(100, 10_000))
def test_a_bound_lies_beyond_where_the_half_normal_mixture_reaches_one_over_alpha(n, alpha, star):
    unit = Moments(n, 0.0, 1.0)
    total = 2 * n
    high = two_arm_confidence_sequence(
        unit, unit, level=1 - alpha, n_star=star, one_sided=True
    ).high
    # In units of the influence function: variance V = 4, z = sqrt(total) high / sqrt(V).
    z = high * math.sqrt(total) / 2.0
    two_alpha = 2 * alpha
    rho2 = (-special.lambertw(-(two_alpha**2) / math.e, -1).real - 1) / star
    score = z * math.sqrt(total)

    def integrand(theta):
        law = 2 * math.exp(-(theta**2) / (2 * rho2)) / math.sqrt(math.tau * rho2)
        return law * math.exp(theta * score - theta**2 * total / 2)

    peak = score / (total + 1 / rho2)
    width = 1 / math.sqrt(total + 1 / rho2)
    mixture, _ = integrate.quad(
        integrand, max(0.0, peak - 12 * width), peak + 12 * width, epsabs=0, epsrel=1e-10
    )
    # The closed form is the exact boundary's upper bound, and a tight one.
    assert mixture * alpha >= 1.0 - 1e-9

    def exact(s):
        return score_log(s, total, rho2) + math.log(alpha)

    root = optimize.brentq(exact, 0.0, score * 1.01 + 1e-9)
    assert root <= score * (1 + 1e-9)
    assert root >= 0.9 * score


def score_log(score, total, rho2):
    """Log of the half-normal mixture martingale in closed form."""
    scaled = total * rho2 + 1
    x = score * math.sqrt(rho2 / scaled)
    return math.log(2) - math.log(scaled) / 2 + x * x / 2 + special.log_ndtr(x)


@given(arms, arms)
def test_a_bound_is_tighter_than_the_end_of_the_interval(a, b):
    two = two_arm_confidence_sequence(a, b, n_star=2000)
    one = two_arm_confidence_sequence(a, b, n_star=2000, one_sided=True)
    assert one.low > two.low
    assert one.high < two.high


@pytest.mark.slow
def test_false_alarms_over_forty_looks_with_unequal_variances():
    rng = np.random.default_rng(0)
    runs, looks, step = 2000, 40, 100
    on = rng.random((runs, looks * step)) < 0.5
    # Skewed candidate with four times the variance, same mean.
    values = np.where(on, rng.exponential(1.0, on.shape), 0.5 + rng.exponential(0.5, on.shape))
    places = np.arange(1, looks + 1) * step - 1
    sums = {}
    for name, mask in (("c", on), ("k", ~on)):
        n = mask.cumsum(axis=1)[:, places]
        mean = (values * mask).cumsum(axis=1)[:, places] / n
        square = (values**2 * mask).cumsum(axis=1)[:, places] / n
        sums[name] = n, mean, square - mean**2
    above = np.zeros((runs, looks), dtype=bool)
    below, outside = above.copy(), above.copy()
    for run in range(runs):
        for look in range(looks):
            pair = [Moments(int(n[run, look]), *(m[run, look], v[run, look]))
                    for n, m, v in (sums["c"], sums["k"])]  # fmt: skip
            bound = two_arm_confidence_sequence(*pair, n_star=2000, one_sided=True)
            above[run, look], below[run, look] = bound.low > 0, bound.high < 0
            outside[run, look] = 0.0 not in two_arm_confidence_sequence(*pair, n_star=2000)
    for alarms in (above, below, outside):
        assert alarms.any(axis=1).mean() < 0.05
    assert outside.any(axis=1).mean() > 0.003


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"candidate": Moments(0, 0.0, 0.0)}, "candidate.n is 0"),
        ({"control": Moments(0, 0.0, 0.0)}, "control.n is 0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"level": 0.4, "one_sided": True}, "0.5 < level"),
        ({"n_star": 0}, "n_star"),
        ({"one_sided": "no"}, "one_sided is 'no'; allowed: True or False"),
    ],
)
def test_two_arm_sequence_with_bad_argument_names_it(arguments, said):
    given_ = {"candidate": Moments(5, 0.5, 0.1), "control": Moments(5, 0.5, 0.1), "n_star": 10}
    with pytest.raises(InputError, match=said):
        two_arm_confidence_sequence(**given_ | arguments)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((-1, 0.0, 0.0), "n, mean, variance"),
        ((1, math.nan, 0.0), "n, mean, variance"),
        ((1, 0.0, math.inf), "n, mean, variance"),
        ((1, 0.0, -1e-9), "n, mean, variance"),
        ((2.5, 0.5, 0.25), "n is whole"),
        ((math.inf, 0.5, 0.25), "n is whole"),
    ],
)
def test_moments_with_bad_number_says_what_is_allowed(numbers, said):
    with pytest.raises(InputError, match=said):
        Moments(*numbers)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.1, 0.9), st.floats(1, 500))
def test_the_split_is_judged_by_the_integrated_likelihood_ratio(first, second, share, strength):
    # Over the log odds, where the density is smooth: equal steps are exact but for rounding.
    odds = np.linspace(-500.0, 500.0, 200_001)
    here, there = special.log_expit(odds), special.log_expit(-odds)
    likelihood = first * (here - math.log(share)) + second * (there - math.log(1 - share))
    mine, other = strength * share, strength * (1 - share)
    density = mine * here + other * there - special.betaln(mine, other)
    mixture = float(np.exp(likelihood + density).sum() * (odds[1] - odds[0]))
    ours = sequential_sample_ratio_test([first, second], [share, 1 - share], concentration=strength)
    assert math.exp(ours.statistic) == pytest.approx(mixture, rel=1e-5)
    assert ours.p_value == pytest.approx(min(1.0, 1 / mixture), rel=1e-5)


def test_the_split_is_a_martingale():
    # One unit more, in expectation under the plan: the same.
    def weight(*counts):
        return math.exp(sequential_sample_ratio_test(counts, [0.3, 0.7]).statistic)

    for counts in ((0, 0), (3, 4), (50, 20)):
        first, second = counts
        ahead = 0.3 * weight(first + 1, second) + 0.7 * weight(first, second + 1)
        assert ahead == pytest.approx(weight(first, second), rel=1e-9)


@pytest.mark.slow
def test_even_arms_alarm_less_often_than_promised_however_often_one_looks():
    rng = np.random.default_rng(1)
    runs, looks = 400, 60
    firsts = rng.binomial(50, 0.5, (runs, looks)).cumsum(axis=1)
    totals = 50 * np.arange(1, looks + 1)
    alarms = [
        any(
            sequential_sample_ratio_test([f, n - f], level=0.95).mismatch
            for f, n in zip(row, totals, strict=True)
        )
        for row in firsts
    ]
    assert np.mean(alarms) <= 0.05
    assert sequential_sample_ratio_test([950, 1050]).mismatch is False
    assert sequential_sample_ratio_test([800, 1200]).mismatch is True


def test_no_units_say_nothing():
    found = sequential_sample_ratio_test([0, 0])
    assert (found.p_value, found.mismatch) == (1.0, False)


@pytest.mark.parametrize(
    ("observed", "more", "said"),
    [
        ([1, -1], {}, "observed"),
        ([1, 2], {"shares": [1, 0]}, "shares"),
        ([1, 2], {"shares": [1, 1, 1]}, "shares"),
        ([1, 2], {"concentration": 0.0}, "concentration"),
        ([1, math.nan], {}, "observed"),
    ],
)
def test_counts_that_are_none(observed, more, said):
    with pytest.raises(InputError, match=said):
        sequential_sample_ratio_test(observed, **more)


def test_splits_that_are_none_and_mixtures_too_near_the_plan_are_refused():
    with pytest.raises(InputError, match="whole numbers with a sum up to"):
        sequential_sample_ratio_test([10.5, 10.0])
    with pytest.raises(InputError, match=r"concentration is 1e\+16; allowed: 1e-300 to 1e\+12"):
        sequential_sample_ratio_test([10_000, 10_400], concentration=1e16)
    # With 60 digits: 7.0e-10, which no p-value shows.
    nearest = sequential_sample_ratio_test([10_000, 10_400], concentration=1e12)
    assert nearest.p_value == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 1000), (1000, 1)])
def test_one_unit_of_an_arm_says_nothing_of_its_spread(sizes, one_sided):
    pair = Moments(sizes[0], 0.9, 0.0), Moments(sizes[1], 0.1, 0.0)
    ends = two_arm_confidence_sequence(*pair, n_star=1000, one_sided=one_sided)
    assert tuple(ends) == (-math.inf, math.inf)
    two = Moments(2, 0.9, 0.01), Moments(2, 0.1, 0.01)
    assert math.isfinite(two_arm_confidence_sequence(*two, n_star=1000).width)


def test_moments_hold_plain_numbers():
    arm = Moments(Decimal(100), Decimal("0.5"), Decimal("0.25"))
    assert arm == Moments(100, 0.5, 0.25)
    assert [type(one) for one in (arm.n, arm.mean, arm.variance)] == [int, float, float]
    two_arm_confidence_sequence(arm, arm, n_star=100)


def test_more_units_than_the_logarithms_can_tell_apart_are_refused():
    for half in (500_000_000_000_000, 500_000_000_013_579):
        with pytest.raises(InputError, match=r"observed has a sum of 1e\+15; allowed: up to"):
            sequential_sample_ratio_test([half, half])
    for half in (10**12, 5 * 10**13):
        assert sequential_sample_ratio_test([half, half]).p_value == 1.0
