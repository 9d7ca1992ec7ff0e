"""Bounds against published tables, a simulation and the multivariate normal law."""

import numpy as np
import pytest
from scipy import integrate, stats

from steersman.errors import InputError
from steersman.stats import group_sequential, group_sequential_bounds


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


@pytest.mark.slow
@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
def test_three_uneven_looks_spend_what_the_normal_law_says(spending):
    times = np.array([0.2, 0.5, 0.7])
    cov = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    bounds = group_sequential_bounds(times, spending=spending)
    law = stats.multivariate_normal(cov=cov)
    law.abseps, law.maxpts = 1e-8, 2_000_000
    spent = {
        "pocock": 0.05 * np.log(1 + (np.e - 1) * 0.7),
        "obrien-fleming": 4 * stats.norm.sf(stats.norm.isf(0.0125) / np.sqrt(0.7)),
    }[spending]
    assert 1 - law.cdf(bounds, lower_limit=-bounds) == pytest.approx(spent, abs=1e-6)
    # A bound off by 1e-4 would spend this much more or less.
    shifted = bounds + np.array([0.0, 0.0, 1e-4])
    assert abs(law.cdf(shifted, lower_limit=-shifted) - 1 + spent) > 1.5e-6


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
def test_simulated_error_over_uneven_looks(spending):
    times = np.array([0.1, 0.25, 0.3, 0.9, 1.0])
    rng = np.random.default_rng(0)
    scores = np.cumsum(rng.normal(size=(100_000, 5)) * np.sqrt(np.diff(times, prepend=0)), axis=1)
    crossed = np.abs(scores / np.sqrt(times)) > group_sequential_bounds(times, spending=spending)
    assert crossed.any(axis=1).mean() == pytest.approx(0.05, abs=0.0028)


@pytest.mark.parametrize(
    ("times", "options", "said"),
    [
        ([0.5, 0.5], {}, "times"),
        ([0.5, 0.4], {}, "times"),
        ([0.0, 1.0], {}, "times"),
        ([0.5, 1.1], {}, "times"),
        ([], {}, "times"),
        ([0.5, 0.5 + 1e-12, 1.0], {}, r"at least 0\.0001 apart"),
        ([1.0], {"spending": "haybittle"}, "spending"),
        ([1.0], {"alpha": 0.0}, "alpha"),
    ],
)
def test_group_sequential_bounds_with_bad_argument_names_it(times, options, said):
    with pytest.raises(InputError, match=said):
        group_sequential_bounds(times, **options)


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize(
    "times", [[0.9, 0.9001], [0.5, 0.5002, 1.0], [0.02, 0.021, 0.12], [0.2, 0.7, 0.7002, 0.9]]
)
def test_more_nodes_change_no_bound(times, spending, monkeypatch):
    ours = group_sequential_bounds(times, spending=spending)
    monkeypatch.setattr(group_sequential, "_NODES_PER_SD", 7)
    dense = group_sequential_bounds(times, spending=spending)
    assert ours == pytest.approx(dense, abs=1e-10)


def test_a_look_soon_after_another_spends_what_the_normal_law_says():
    def spent(bounds):
        """By Simpson's rule over the score at .9, and from there to .9001."""
        edge, reach = bounds * np.sqrt([0.9, 0.9001])
        at = np.linspace(-edge, edge, 200_001)
        beyond = stats.norm.sf(reach - at, scale=0.01) + stats.norm.cdf(-reach - at, scale=0.01)
        later = integrate.simpson(stats.norm.pdf(at, scale=np.sqrt(0.9)) * beyond, x=at)
        return 2 * stats.norm.sf(bounds[0]), later

    first, later = spent(group_sequential_bounds([0.9, 0.9001], spending="pocock"))
    wanted = 0.05 * np.log1p((np.e - 1) * np.array([0.9, 0.9001]))
    assert (first, later) == pytest.approx((wanted[0], wanted[1] - wanted[0]), abs=1e-12)
