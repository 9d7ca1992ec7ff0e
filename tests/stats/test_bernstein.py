"""The empirical-Bernstein interval holds its level on hard laws, at a stated width."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steersman.errors import InputError
from steersman.stats import empirical_bernstein


@pytest.mark.slow
@given(arrays(float, st.integers(2, 60), elements=st.floats(0, 1)), st.floats(0.5, 0.99))
def test_it_is_theorem_4_on_both_sides(x, level):
    n, delta = len(x), (1 - level) / 2
    pairs = sum((a - b) ** 2 for i, a in enumerate(x) for b in x[:i]) / (n * (n - 1))
    half = math.sqrt(2 * pairs * math.log(2 / delta) / n)
    half += 7 * math.log(2 / delta) / (3 * (n - 1))
    low, high = empirical_bernstein(x, level=level, low=0, high=1)
    assert low == pytest.approx(max(0.0, x.mean() - half), abs=1e-9)
    assert high == pytest.approx(min(1.0, x.mean() + half), abs=1e-9)


@given(arrays(float, 20, elements=st.floats(0, 1)), st.floats(-5, 5), st.floats(0.1, 10))
def test_it_moves_and_stretches_with_the_unit(x, shift, scale):
    low, high = empirical_bernstein(x, low=0, high=1)
    moved = np.clip(shift + scale * x, shift, shift + scale)
    there = empirical_bernstein(moved, low=shift, high=shift + scale)
    assert tuple(there) == pytest.approx((shift + scale * low, shift + scale * high), abs=1e-6)


@pytest.mark.parametrize("chance", [0.002, 0.05, 0.5])
def test_coverage_where_wald_fails(chance):
    rng = np.random.default_rng(0)
    covered, wald, width = 0, 0, 0.0
    for _ in range(1000):
        x = (rng.random(300) < chance).astype(float)
        interval = empirical_bernstein(x, low=0, high=1)
        covered += chance in interval
        width += interval.width / 1000
        wald += abs(x.mean() - chance) <= 1.96 * x.std(ddof=1) / math.sqrt(300)
    assert covered >= 950
    if chance == 0.002:
        assert wald < 500
    assert width < 0.3


def test_numbers_outside_the_range_and_empty_ranges():
    with pytest.raises(InputError, match="spans"):
        empirical_bernstein([0.5, 1.2], low=0, high=1)
    with pytest.raises(InputError, match="range"):
        empirical_bernstein([0.5, 0.5], low=1, high=1)
    with pytest.raises(InputError, match="level"):
        empirical_bernstein([0.5, 0.5], low=0, high=1, level=1)
