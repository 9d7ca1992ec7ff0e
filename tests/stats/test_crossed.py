"""The interval of a mean over runs and cases covers when runs differ, and is tight when not."""

import numpy as np
import pytest
from scipy.stats import binom, t

from steersman.errors import InputError
from steersman.stats import crossed_mean


def covered(rng, runs, cases, between_runs, residual, *, repeats=1_500):
    """Return the coverage of the interval, and of one over the cases alone."""
    found = np.zeros(2)
    for _ in range(repeats):
        table = rng.normal(size=(1, cases)) + residual * rng.normal(size=(runs, cases))
        table += between_runs * rng.normal(size=(runs, 1))
        alone = crossed_mean(table.mean(axis=0, keepdims=True))
        for place, estimate in enumerate((crossed_mean(table), alone)):
            found[place] += estimate.interval.low <= 0.0 <= estimate.interval.high
    return found / repeats


@pytest.mark.parametrize(
    ("share", "alone_at_most"), [(0.0, 1.0), (1.0, 0.9), (3.0, 0.8), (30.0, 0.4)]
)
def test_three_runs_cover_whatever_part_of_the_variance_is_theirs(share, alone_at_most):
    """``share``: variance of the mean from runs, in units of that from cases."""
    cases = 60
    between = np.sqrt(share * 3 / cases)
    both, alone = covered(np.random.default_rng(3), 3, cases, between, 1.0)
    assert 0.93 <= both <= 0.985
    assert alone <= alone_at_most  # what this is for


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "cases", "share"), [(2, 300, 10), (2, 60, 5), (3, 300, 5), (3, 60, 10), (5, 300, 3)]
)
@pytest.mark.parametrize("cases_differ", [0.0, 0.3])
def test_cases_that_differ_little_cost_no_coverage(runs, cases, share, cases_differ):
    """``share``: variance of runs, in units of what the residual adds to a run's mean."""
    rng, found, repeats = np.random.default_rng(5), 0, 3_000
    for _ in range(repeats):
        table = rng.normal(size=(runs, cases)) + cases_differ * rng.normal(size=(1, cases))
        table += np.sqrt(share / cases) * rng.normal(size=(runs, 1))
        found += 0.0 in crossed_mean(table).interval
    assert 0.928 <= found / repeats <= 0.985


def test_runs_that_do_not_differ_cost_little():
    table = np.random.default_rng(1).normal(size=(1, 300)) + np.zeros((3, 1))
    mine, alone = crossed_mean(table).interval, crossed_mean(table[:1]).interval
    assert (mine.low, mine.high) == pytest.approx((alone.low, alone.high), abs=1e-12)


def test_one_run_is_the_t_interval_of_scipy():
    row = np.random.default_rng(2).exponential(size=25)
    found = crossed_mean(row[np.newaxis], level=0.9)
    low, high = t.interval(0.9, 24, row.mean(), row.std(ddof=1) / 5)
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("runs", "cases", "low"),
    [(3, 60, 0.025 ** (1 / 3)), (60, 3, 0.025 ** (1 / 3)), (1, 60, 0.9404)],
)
def test_a_table_that_is_all_alike_leaves_room_for_what_it_did_not_show(runs, cases, low):
    found = crossed_mean(np.ones((runs, cases)), within=(0.0, 1.0))
    assert (found.value, found.interval.high) == (1.0, 1.0)
    assert found.interval.low == pytest.approx(low, abs=1e-4)
    # Rounding is no spread.
    shaken = np.ones((runs, cases)) - 1e-15 * (np.arange(cases) % 2)
    assert crossed_mean(shaken, within=(0.0, 1.0)).interval.low == pytest.approx(low, abs=1e-4)
    lost = crossed_mean(np.zeros((runs, cases)), within=(-1.0, 1.0)).interval
    assert lost.low == -lost.high < -0.05  # no gate at 0 is passed by it


def test_a_range_changes_nothing_where_numbers_differ():
    table = np.random.default_rng(4).uniform(size=(3, 20))
    assert crossed_mean(table, within=(0.0, 1.0)) == crossed_mean(table)


@pytest.mark.parametrize(("runs", "cases"), [(2, 9), (3, 5), (3, 60)])
def test_all_alike_misses_the_truth_as_seldom_as_is_said(runs, cases):
    """A number is 1 where its run is good, its case is good, and both are: added up exactly."""
    interval = crossed_mean(np.ones((runs, cases)), within=(0.0, 1.0)).interval
    shares = np.linspace(0.0, 1.0, 101)
    of_run, of_case, of_cell = np.meshgrid(shares, shares, shares, indexing="ij")
    chance = binom.pmf(runs, runs, of_run) * binom.pmf(cases, cases, of_case)
    chance *= binom.pmf(runs * cases, runs * cases, of_cell)
    missed = chance[of_run * of_case * of_cell < interval.low]
    assert missed.max() <= 0.025


def test_columns_that_agree_by_chance_are_not_certain():
    found = crossed_mean([[1.0, 0.0], [0.0, 1.0]])
    assert found.value == 0.5
    assert found.interval.width > 1.0


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ([1.0, 2.0], {}, "shape"),
        ([[1.0], [2.0]], {}, "2 or more cases"),
        ([[1.0, np.nan]], {}, "finite"),
        ([[1.0, 1e308]], {}, "1e\\+100"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (1.0, 0.0)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (0.0, 0.5)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (0.5, 2.0)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (0.0, np.nan)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (0.0, np.inf)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": (0.0,)}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": 1.0}, "within"),
        ([[0.0, 1.0], [1.0, 1.0]], {"within": "ab"}, "within"),
    ],
)
def test_crossed_mean_with_bad_argument_says_what_is_wrong(values, options, says):
    with pytest.raises(InputError, match=says):
        crossed_mean(values, **options)


@pytest.mark.parametrize("scale", [1e-162, 1e-300, 1e90])
@pytest.mark.parametrize("runs", [1, 3])
def test_the_unit_of_the_numbers_changes_the_interval_by_that_unit(runs, scale):
    table = np.random.default_rng(6).normal(size=(runs, 20))
    plain, scaled = crossed_mean(table).interval, crossed_mean(scale * table).interval
    assert (scaled.low / scale, scaled.high / scale) == pytest.approx((plain.low, plain.high))


def test_a_table_that_is_all_alike_has_no_width_without_a_range():
    for value in (0.0, 0.1):
        assert crossed_mean(np.full((3, 7), value)).interval.width == pytest.approx(0.0, abs=1e-15)
