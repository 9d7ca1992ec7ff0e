"""Covariate adjustment: unbiased, and as much narrower as the correlation says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steersman.errors import InputError
from steersman.stats import cuped_adjust, welch_test

numbers = st.integers(-100, 100).map(float)


@pytest.mark.slow
@given(arrays(float, (2, 30), elements=numbers))
def test_it_is_the_residual_of_a_regression_plus_the_mean(rows):
    y, x = rows
    if np.ptp(x) == 0:
        assert np.array_equal(cuped_adjust(y, x), y)
        return
    design = np.column_stack([np.ones(30), x])
    fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert cuped_adjust(y, x) == pytest.approx(y - fitted + y.mean(), abs=1e-9)


def test_effect_unbiased_and_variance_cut_by_the_squared_correlation():
    rng = np.random.default_rng(0)
    differences, widths = [], []
    for _ in range(500):
        before = rng.normal(size=400)
        y = 0.8 * before + 0.6 * rng.normal(size=400)
        y[:200] += 0.3
        adjusted = cuped_adjust(y, before)
        plain, cut = welch_test(y[:200], y[200:]), welch_test(adjusted[:200], adjusted[200:])
        differences.append(cut.difference)
        widths.append((cut.high - cut.low) / (plain.high - plain.low))
    error = np.std(differences) / np.sqrt(500)
    assert np.mean(differences) == pytest.approx(0.3, abs=4 * error + 0.003)
    assert np.mean(widths) == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize("base", [0.0, 1e9, 1.7e18])
def test_large_covariates_leave_the_mean_as_it_is(base):
    """Such as nanoseconds since 1970, whose mean is rounded to 256."""
    rng = np.random.default_rng(0)
    moved = 1e5 * rng.normal(size=400)
    y = rng.normal(size=400) + 3.0 * moved / 1e5
    adjusted = cuped_adjust(y, base + np.rint(moved))
    assert adjusted.mean() == pytest.approx(y.mean(), abs=1e-9)
    assert adjusted.var() < 0.2 * y.var()


def test_a_covariate_that_is_one_number_up_to_rounding_explains_nothing():
    y = np.arange(40.0)
    known = np.where(y < 20, 0.1 + 0.2, 0.3)
    assert np.ptp(known) > 0.0
    assert np.array_equal(cuped_adjust(y, known), y)
    assert cuped_adjust(y, 1e-12 * y).var() == pytest.approx(0.0, abs=1e-9)  # small, no rounding


def test_shapes_must_agree():
    with pytest.raises(InputError, match="covariate"):
        cuped_adjust([1, 2, 3], [1, 2])


def test_huge_numbers_are_refused():
    with pytest.raises(InputError, match=r"y\[0\] is 1e\+200"):
        cuped_adjust([1e200, 1.0], [1.0, 2.0])
    assert np.isfinite(cuped_adjust([1e100, -1e100, 0.0], [1e100, 1.0, -1e100])).all()


@pytest.mark.parametrize("scale", [1e-162, 1e-300, 2.0**-1000, 1e90])
def test_the_unit_of_the_covariate_changes_nothing(scale):
    rng = np.random.default_rng(0)
    before = rng.normal(size=1000)
    y = before + rng.normal(size=1000)
    assert cuped_adjust(y, scale * before) == pytest.approx(cuped_adjust(y, before), abs=1e-9)


def test_the_least_covariates_of_float64_are_told_apart():
    assert cuped_adjust([0.0, 1.0], [0.0, 5e-324]) == pytest.approx([0.5, 0.5])
