"""Bounds against published tables, a simulation and the multivariate normal law."""

import numpy as np
import pytest
from scipy import stats

from steersman.errors import InputError
from steersman.stats import group_sequential_bounds


@pytest.mark.parametrize(
    ("spending", "table"),
    [
        ("obrien-fleming", [4.877, 3.357, 2.680, 2.290, 2.031]),
        ("pocock", [2.438, 2.427, 2.410, 2.397, 2.386]),
    ],
)
def test_table_of_lan_and_demets(spending, table):
    bounds = group_sequential_bounds([0.2, 0.4, 0.6, 0.8, 1.0], spending=spending)
    assert bounds == pytest.approx(table, abs=6e-4)


def test_one_look_is_the_fixed_test():
    assert group_sequential_bounds([1.0]) == pytest.approx([1.959963984540054], abs=1e-12)


def test_two_looks_spend_what_the_bivariate_normal_law_says():
    times = np.array([0.3, 1.0])
    bounds = group_sequential_bounds(times, spending="pocock")
    law = stats.multivariate_normal(cov=[[1, np.sqrt(0.3)], [np.sqrt(0.3), 1]])
    inside = law.cdf(bounds, lower_limit=-bounds)
    assert 1 - inside == pytest.approx(0.05, abs=1e-8)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
def test_simulated_error_over_uneven_looks(spending):
    times = np.array([0.1, 0.25, 0.3, 0.9, 1.0])
    rng = np.random.default_rng(0)
    scores = np.cumsum(rng.normal(size=(100_000, 5)) * np.sqrt(np.diff(times, prepend=0)), axis=1)
    crossed = np.abs(scores / np.sqrt(times)) > group_sequential_bounds(times, spending=spending)
    assert crossed.any(axis=1).mean() == pytest.approx(0.05, abs=0.0028)


@pytest.mark.parametrize("times", [[0.5, 0.5], [0.5, 0.4], [0.0, 1.0], [0.5, 1.1], []])
def test_times_must_increase_within_one(times):
    with pytest.raises(InputError, match="times"):
        group_sequential_bounds(times)


def test_other_arguments():
    with pytest.raises(InputError, match="spending"):
        group_sequential_bounds([1.0], spending="haybittle")
    with pytest.raises(InputError, match="alpha"):
        group_sequential_bounds([1.0], alpha=0.0)


def test_looks_too_close_are_refused():
    with pytest.raises(InputError, match=r"at least 0\.0001 apart"):
        group_sequential_bounds([0.5, 0.5 + 1e-12, 1.0])
