"""Exact choice probabilities against adaptive quadrature, arm by arm."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betaln, expit, log_expit
from scipy.stats import beta, norm

from steersman.policies import beta_choice_probabilities, gaussian_choice_probabilities

OFFSETS = (-8, -4, -2, -1, 0, 1, 2, 4, 8)


def gaussian_reference(means, sds):
    """Integrate each arm on its own scale, between all arms' own borders."""
    result = []
    for a, (mean, sd) in enumerate(zip(means, sds, strict=True)):

        def density(z, mean=mean, sd=sd, a=a):
            below = [
                norm.logcdf((mean + sd * z - means[j]) / sds[j])
                for j in range(len(means))
                if j != a
            ]
            return norm.pdf(z) * np.exp(np.sum(below))

        borders = {
            np.clip((m + k * s - mean) / sd, -10, 10) for m in means for s in sds for k in OFFSETS
        }
        ordered = sorted(borders)
        pieces = [quad(density, low, high, epsabs=1e-13)[0] for low, high in pairwise(ordered)]
        result.append(sum(pieces))
    return np.array(result)


@pytest.mark.parametrize("seed", range(8))
def test_gaussian_agrees_with_adaptive_quadrature(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    means = rng.normal(size=count) * 10 ** rng.uniform(-3, 1)
    sds = 10 ** rng.uniform(-4, 2, size=count)
    expected = gaussian_reference(means, sds)
    assert gaussian_choice_probabilities(means, sds) == pytest.approx(expected, abs=1e-8)


def test_a_fixed_grid_fails_where_this_does_not():
    """One very well known arm at 0.3 among wide ones: its density fits between grid nodes."""
    means, sds = np.array([0.3, 0.0, 0.0]), np.array([1e-7, 1.0, 1.0])
    expected = norm.cdf(0.3) ** 2
    assert gaussian_choice_probabilities(means, sds)[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("count", [2, 9, 50, 1000])
def test_equal_arms_share_equally(count):
    p = gaussian_choice_probabilities(np.full(count, 0.3), np.full(count, 0.2))
    assert p == pytest.approx(np.full(count, 1.0 / count), rel=1e-12)


def test_arms_without_spread_are_compared_as_numbers():
    p = gaussian_choice_probabilities(np.array([1.0, 2.0, 2.0]), np.zeros(3))
    assert p == pytest.approx([0.0, 0.5, 0.5])
    assert gaussian_choice_probabilities(np.zeros(3), np.zeros(3)) == pytest.approx([1 / 3] * 3)


def test_many_arms_agree_with_draws():
    rng = np.random.default_rng(3)
    means, sds = rng.normal(size=200) * 0.3, 10 ** rng.uniform(-2, 0, 200)
    draws = np.concatenate(
        [rng.normal(means, sds, size=(20_000, 200)).argmax(axis=1) for _ in range(10)]
    )
    expected = gaussian_choice_probabilities(means, sds) * len(draws)
    counts = np.bincount(draws, minlength=200)
    often = expected > 20
    chi = ((counts - expected) ** 2 / np.maximum(expected, 1e-9))[often]
    assert chi.mean() == pytest.approx(1.0, abs=6 * np.sqrt(2 / often.sum()))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.one_of(st.just(0.0), st.floats(1e-9, 1e6))),
        min_size=1,
        max_size=12,
    )
)
def test_gaussian_is_always_a_distribution(arms):
    means, sds = np.array(arms).T
    p = gaussian_choice_probabilities(means, sds)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


def beta_reference(a, b):
    """Integrate each arm over its logit, with tails taken from the side where they are small."""
    grid = np.concatenate(
        (np.linspace(-690, -40, 30), np.linspace(-39, 39, 200), np.linspace(40, 690, 30))
    )
    result = []
    for k in range(len(a)):

        def density(s, k=k):
            log_f = a[k] * log_expit(s) + b[k] * log_expit(-s) - betaln(a[k], b[k])
            others = [
                beta.cdf(expit(s), a[j], b[j]) if s < 0 else beta.sf(expit(s), a[j], b[j])
                for j in range(len(a))
                if j != k
            ]
            below = [
                o if s < 0 else 1 - beta.cdf(expit(-s), b[j], a[j])
                for j, o in zip([j for j in range(len(a)) if j != k], others, strict=True)
            ]
            return np.exp(log_f) * np.prod(below)

        pieces = [quad(density, lo, hi, epsabs=1e-12)[0] for lo, hi in pairwise(grid)]
        result.append(sum(pieces))
    return np.array(result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_beta_agrees_with_adaptive_quadrature(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 4))
    a, b = 10 ** rng.uniform(-1, 3, (2, count))
    assert beta_choice_probabilities(a, b) == pytest.approx(beta_reference(a, b), abs=1e-7)


def test_beta_with_whole_counts_is_the_known_sum():
    """P(X > Y) for X ~ Beta(a, b), Y ~ Beta(c, d) with whole parameters (a finite sum)."""
    a, b, c, d = 7, 4, 5, 6
    total = sum(
        np.exp(betaln(c + i, b + d) - np.log(b + i) - betaln(1 + i, b) - betaln(c, d))
        for i in range(a)
    )
    p = beta_choice_probabilities(np.array([a, c], float), np.array([b, d], float))
    swapped = 1.0 - total
    assert min(abs(p[0] - total), abs(p[1] - swapped)) < 1e-9


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0.01, 1e5)), min_size=1, max_size=8))
def test_beta_is_always_a_distribution(arms):
    a, b = np.array(arms).T
    p = beta_choice_probabilities(a, b)
    assert (p >= 0).all()
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
