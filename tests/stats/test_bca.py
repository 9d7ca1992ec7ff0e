"""BCa against scipy's, and its coverage of a skewed mean."""

import math

import numpy as np
import pytest
from scipy import stats

from steersman.errors import InputError
from steersman.stats import bca_interval
from steersman.stats.bca import _acceleration


def ratio(rows):
    return rows[:, 0].sum() / rows[:, 1].sum()


def test_a_second_implementation_on_the_same_draws():
    x = np.random.default_rng(1).exponential(size=40)
    rng = np.random.default_rng(7)
    draws = [x[rng.integers(0, 40, 40)].mean() for _ in range(2000)]
    jack = np.array([np.delete(x, i).mean() for i in range(40)])
    skew = ((jack.mean() - jack) ** 3).sum() / (6 * ((jack.mean() - jack) ** 2).sum() ** 1.5)
    bias = stats.norm.ppf(np.mean(np.array(draws) < x.mean()))
    ends = []
    for z in stats.norm.ppf([0.025, 0.975]):
        share = stats.norm.cdf(bias + (bias + z) / (1 - skew * (bias + z)))
        ends.append(np.quantile(draws, share))
    assert tuple(bca_interval(x, np.mean, resamples=2000, seed=7)) == pytest.approx(ends, abs=1e-9)


def test_scipys_on_the_same_draws():
    x = np.random.default_rng(1).exponential(size=41)
    theirs = stats.bootstrap(
        (x,), np.mean, n_resamples=2000, vectorized=False, rng=np.random.default_rng(7)
    ).confidence_interval
    ours = bca_interval(x, np.mean, resamples=2000, seed=7)
    assert tuple(ours) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_near_scipy_for_a_ratio_of_columns():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.exponential(size=100), rng.uniform(0.5, 2, 100)])
    theirs = stats.bootstrap(
        (rows[:, 0], rows[:, 1]),
        lambda a, b: a.sum() / b.sum(),
        paired=True,
        vectorized=False,
        n_resamples=4000,
        rng=np.random.default_rng(3),
    ).confidence_interval
    ours = bca_interval(rows, ratio, resamples=4000)
    assert tuple(ours) == pytest.approx((theirs.low, theirs.high), abs=0.02)


@pytest.mark.slow
def test_coverage_of_a_skewed_mean():
    rng = np.random.default_rng(0)
    runs = 200
    covered = sum(
        1.0 in bca_interval(rng.exponential(size=50), np.mean, resamples=300, seed=run)
        for run in range(runs)
    )
    # The percentile interval covers about .92 here.
    assert covered / runs == pytest.approx(0.945, abs=4 * math.sqrt(0.05 / runs))


def test_many_rows_delete_groups():
    x = np.random.default_rng(0).normal(size=3000)
    low, high = bca_interval(x, np.mean, resamples=300)
    assert (high - low) / 2 == pytest.approx(1.96 / math.sqrt(3000), rel=0.2)


def test_the_order_of_many_rows_is_no_matter():
    x = np.random.default_rng(1).lognormal(0.0, 1.5, 8000)
    found = [
        bca_interval(rows, np.mean, resamples=300, seed=3) for rows in (x, np.sort(x), -np.sort(-x))
    ]
    width = found[0].width
    # 300 draws of other rows alone move an end by less than a fifth of the width.
    for other in found[1:]:
        assert abs(other.low - found[0].low) < 0.2 * width
        assert abs(other.high - found[0].high) < 0.2 * width


def test_the_correction_of_sorted_rows_is_that_of_rows_as_they_came():
    x = np.random.default_rng(1).lognormal(0.0, 1.5, 8000)
    given, ordered = (
        _acceleration(rows, np.mean, np.random.default_rng(0)) for rows in (x, np.sort(x))
    )
    skew = float(((x - x.mean()) ** 3).sum() / (6.0 * ((x - x.mean()) ** 2).sum() ** 1.5))
    assert (given, ordered) == (pytest.approx(skew, rel=0.35), pytest.approx(skew, rel=0.35))


def test_a_statistic_that_never_varies_is_a_point():
    assert tuple(bca_interval([1.0, 2.0, 3.0], len, resamples=100)) == (3.0, 3.0)


def test_ends_are_in_order_where_the_correction_has_no_end():
    rows = np.append(np.repeat(np.arange(40.0), 2), 999.0)
    low, high = bca_interval(rows, lambda r: float(len(np.unique(r))), resamples=4000, level=0.999)
    assert (low, high) == (41.0, 41.0)  # far more than any resample has


def test_a_level_needs_resamples_beyond_its_ends():
    rows = [1.0, 2.0, 4.0]
    assert bca_interval(rows, np.mean, resamples=200, level=0.99).low >= 1.0
    with pytest.raises(InputError, match=r"resamples is 199 at level 0\.99; allowed: 200 or more"):
        bca_interval(rows, np.mean, resamples=199, level=0.99)
    with pytest.raises(InputError, match="more resamples"):
        bca_interval(rows, np.mean, level=1.0 - 1e-10)


@pytest.mark.parametrize(
    ("x", "statistic", "options", "said"),
    [
        ([1.0, math.inf], np.mean, {}, "finite"),
        ([1e200, 2.0], np.mean, {}, "finite"),
        ([1.0, 2.0], np.mean, {"resamples": 10}, "resamples"),
        ([1.0, 2.0], np.mean, {"level": "x"}, "level is 'x'"),
        ([1.0, 2.0, 3.0], lambda _: math.nan, {"resamples": 100}, "statistic gave nan"),
    ],
)
def test_bca_interval_with_bad_argument_names_it(x, statistic, options, said):
    with pytest.raises(InputError, match=said):
        bca_interval(x, statistic, **options)
