"""Intervals of means whose rows belong together: turns of a conversation count as one."""

import numpy as np
import pytest
from scipy.stats import t as student

from benchmarks.units import half_width


def test_rows_alone_have_students_interval():
    values = np.random.default_rng(0).normal(size=30)
    wanted = student.ppf(0.975, 29) * values.std(ddof=1) / np.sqrt(30)
    assert half_width(values) == pytest.approx(wanted, rel=1e-12)
    assert half_width(values, np.arange(30)[::-1]) == pytest.approx(wanted, rel=1e-12)
    assert np.isnan(half_width(values, np.zeros(30, np.intp)))


def test_the_interval_over_units_covers_where_that_over_rows_does_not():
    rng = np.random.default_rng(1)
    covered = np.zeros((400, 2))
    for run in range(400):
        unit = np.repeat(np.arange(40), rng.integers(1, 12, 40))
        values = rng.normal(size=40)[unit] + 0.5 * rng.normal(size=len(unit))
        off = abs(values.mean())
        covered[run] = off <= half_width(values), off <= half_width(values, unit)
    alone, together = covered.mean(axis=0)
    assert alone < 0.7
    assert 0.91 <= together <= 0.98
