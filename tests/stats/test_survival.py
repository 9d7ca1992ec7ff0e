import math

import numpy as np
import pytest
from scipy.stats import norm

from steersman.errors import InputError
from steersman.stats import kaplan_meier

# A geometric law cut off at 10, with some cases cut off before: drawn once with numpy's
# default_rng(7).
TIMES = [
    *(
        5,
        7,
        4,
        6,
        2,
        10,
        1,
        10,
        4,
        2,
        4,
        2,
        6,
        7,
        10,
        2,
        10,
        5,
        3,
        6,
        1,
        1,
        8,
        5,
        10,
        3,
        4,
        8,
        4,
        1,
    ),
    *(2, 7, 4, 9, 1, 6, 2, 3, 10, 9, 10, 10, 10, 1, 2, 2, 8, 8, 1, 3, 7, 1, 1, 6, 10, 10, 5, 9, 5),
    6,
]
ENDED = [
    *(1, 1, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1),
    *(1, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1),
]


def test_the_curve_and_its_interval_are_those_of_lifelines():
    # lifelines 0.30.3: KaplanMeierFitter().fit(times, ended), survival and confidence_interval_;
    # statsmodels 0.15.0 SurvfuncRight gives the same survival.
    curve = kaplan_meier(TIMES, ENDED)
    assert curve.times.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert curve.survival == pytest.approx(
        [
            *(0.866666666666667, 0.7816993464052292, 0.7089831281349752, 0.5999088007295945),
            *(0.5090135278917771, 0.41811825505395983, 0.3420967541350579, 0.2850806284458816),
            0.264717726414033,
        ],
        abs=1e-9,
    )
    assert curve.low == pytest.approx(
        [
            *(0.751025941164768, 0.6538493791454587, 0.5737576215825676, 0.4610202965586185),
            *(0.3724726072136686, 0.2884089778699565, 0.22092242010961402, 0.17288199695984197),
            0.15596875187704887,
        ],
        abs=1e-9,
    )
    assert curve.high == pytest.approx(
        [
            *(0.9309757182064672, 0.8669606456702826, 0.8082264982512823, 0.7137663229232939),
            *(0.6301903945922052, 0.5425172545956649, 0.46672399664331937, 0.407647886134557),
            0.3864728665344776,
        ],
        abs=1e-9,
    )


def test_the_median_and_its_interval_are_those_of_lifelines():
    # lifelines 0.30.3: median_survival_time_ and median_survival_times(confidence_interval_).
    median = kaplan_meier(TIMES, ENDED).median
    assert (median.value, *median.interval) == (6.0, 4.0, 7.0)


def test_the_restricted_mean_is_that_of_lifelines():
    # lifelines 0.30.3: restricted_mean_survival_time(fitted, t=10).
    assert kaplan_meier(TIMES, ENDED).restricted_mean(10.0).value == pytest.approx(
        5.776284833877176, abs=1e-9
    )


def test_without_censoring_it_is_the_empirical_law():
    times = np.random.default_rng(3).integers(1, 8, 200).astype(float)
    curve = kaplan_meier(times, np.ones(200, bool))
    assert curve.survival == pytest.approx([(times > t).mean() for t in curve.times])
    mean = curve.restricted_mean(8.0)
    assert mean.value == pytest.approx(times.mean())
    # Greenwood's variance is then that of the mean, with n in the denominator.
    assert mean.interval.width / 2 == pytest.approx(norm.ppf(0.975) * times.std() / math.sqrt(200))


def test_intervals_cover_what_they_say():
    rng = np.random.default_rng(11)
    runs, covered_mean, covered_median = 600, 0, 0
    truth = sum(0.85**k for k in range(10))  # of min(geometric(.15), 10)
    for _ in range(runs):
        times = rng.geometric(0.15, 120)
        limits = np.minimum(rng.geometric(0.04, 120), 10)
        curve = kaplan_meier(np.minimum(times, limits), times <= limits)
        covered_mean += truth in curve.restricted_mean(10.0).interval
        covered_median += 5.0 in curve.median.interval
    assert 0.925 < covered_mean / runs < 0.975
    assert covered_median / runs > 0.93  # a discrete law: the interval cannot be narrower


def test_where_all_have_ended_the_upper_end_is_that_of_the_time_before():
    curve = kaplan_meier([1.0, 2.0, 3.0], [True] * 3)
    assert (curve.survival[-1], curve.low[-1], curve.high[-1]) == (0.0, 0.0, curve.high[-2])
    at_once = kaplan_meier([4.0, 4.0], [True, True])
    assert (at_once.low.tolist(), at_once.high.tolist()) == ([0.0], [1.0])
    assert math.isinf(at_once.median.interval.high)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_the_median_of_few_that_all_ended_is_covered(count):
    """With an end at S = 0 it lay above the interval in 25 % of pairs, and in 3 % of fives."""
    rng, missed = np.random.default_rng(count), 0
    for _ in range(2_000):
        curve = kaplan_meier(rng.exponential(1.0, count), np.ones(count))
        missed += math.log(2.0) > curve.median.interval.high
    assert missed / 2_000 <= 0.06


def test_where_censoring_hides_it_the_median_is_infinite():
    curve = kaplan_meier([2, 3, 9, 9, 9, 9], [True, True, False, False, False, False])
    assert math.isinf(curve.median.value)
    assert math.isinf(curve.median.interval.high)


def test_where_nothing_ended_the_curve_is_empty_and_the_mean_is_the_horizon():
    curve = kaplan_meier([10, 10], [False, False])
    assert curve.times.size == 0
    assert math.isinf(curve.median.value)
    assert curve.restricted_mean(10).value == 10.0
    assert tuple(curve.restricted_mean(10).interval) == (10.0, 10.0)


def test_beyond_the_last_observation_there_is_no_mean_while_some_last_longer():
    curve = kaplan_meier([5, 6, 7, 8], [False] * 4)
    assert curve.last == 8.0
    assert curve.restricted_mean(8).value == 8.0
    assert curve.restricted_mean(8 + 1e-12).value == pytest.approx(8.0)  # a last bit is no time
    for until in (8.1, 100):
        with pytest.raises(InputError, match=r"until is .* allowed: above 0 to 8; use a nearer"):
            curve.restricted_mean(until)
    some = kaplan_meier([2, 3, 9, 9], [True, True, False, False])
    assert some.restricted_mean(9).value == pytest.approx((2 + 3 + 9 + 9) / 4)
    with pytest.raises(InputError, match=r"a share of 0\.5 lasts longer"):
        some.restricted_mean(10)


def test_where_all_have_ended_any_horizon_will_do():
    # Whoever was cut off before counts by those who were watched on.
    curve = kaplan_meier([2, 3, 5], [True, False, True])
    assert curve.restricted_mean(50).value == pytest.approx(curve.restricted_mean(5).value)


def test_one_cut_off_when_another_ends_is_still_watched_then():
    curve = kaplan_meier([2, 2], [True, False])
    assert curve.at_risk.tolist() == [2]
    assert curve.survival.tolist() == [0.5]


@pytest.mark.parametrize(
    ("times", "ended", "says"),
    [
        ([1, -1], [1, 1], "times holds -1.0"),
        ([1, math.nan], [1, 1], "times\\[1\\] is nan"),
        ([1, 2], [1], "shape \\(1,\\)"),
        ([1, 2], [1, 2], "True or False"),
        ([1], [1], "at least 2"),
    ],
)
def test_bad_input_is_refused(times, ended, says):
    with pytest.raises(InputError, match=says):
        kaplan_meier(times, ended)


def test_a_horizon_is_above_zero():
    with pytest.raises(InputError, match="until is 0"):
        kaplan_meier([1, 2], [1, 1]).restricted_mean(0)


def test_a_median_at_exactly_a_half_is_not_moved_by_rounding():
    deaths = [1, 68, 31, 68, 36, 13, 37]  # 254 of 508
    times = np.repeat([1, 2, 3, 4, 5, 6, 7, 8], [*deaths, 508 - sum(deaths)])
    curve = kaplan_meier(times, times < 8)
    assert curve.survival[-1] > 0.5  # by the last bit
    assert curve.median.value == 7.0


@pytest.mark.parametrize("straggler", [[], [5.5]])
def test_a_median_later_than_anybody_saw_end_is_covered(straggler):
    """Exponential with median 5, watched to 4, when the lower curve is still above a half."""
    rng = np.random.default_rng(13)
    for _ in range(100):
        times = rng.exponential(5.0 / math.log(2.0), 2_000)
        watched = [*np.minimum(times, 4.0), *straggler]
        curve = kaplan_meier(watched, [*(times <= 4.0), *(False for _ in straggler)])
        assert 5.0 in curve.median.interval
        assert curve.median.interval.low == curve.times[-1]
    assert math.isinf(curve.median.value)
    assert math.isinf(curve.median.interval.high)


def test_where_nothing_ended_any_median_is_possible():
    assert tuple(kaplan_meier([10, 10], [False, False]).median.interval) == (0.0, math.inf)
