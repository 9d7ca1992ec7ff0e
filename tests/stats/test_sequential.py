"""False alarms under peeking, and second implementations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize

from steersman.errors import InputError
from steersman.stats import asymptotic_confidence_sequence, msprt

LOOKS = np.arange(100, 4001, 100)


def running(rng, runs):
    """Means and variances of a null difference at each of 40 looks."""
    x = rng.exponential(size=(runs, LOOKS[-1])) - 1.0
    means = np.cumsum(x, axis=1)[:, LOOKS - 1] / LOOKS
    squares = np.cumsum(x**2, axis=1)[:, LOOKS - 1] / LOOKS
    return means, squares - means**2


@pytest.mark.slow
def test_false_alarms_over_forty_looks():
    means, variances = running(np.random.default_rng(0), 2000)
    peeked = np.abs(means) > 1.96 * np.sqrt(variances / LOOKS)
    sequence = np.zeros_like(peeked)
    tested = np.zeros_like(peeked)
    for look, n in enumerate(LOOKS):
        for run in range(len(means)):
            arguments = (means[run, look], variances[run, look], int(n))
            sequence[run, look] = 0.0 not in asymptotic_confidence_sequence(*arguments, n_star=2000)
            tested[run, look] = msprt(*arguments, tau=0.05) <= 0.05
    assert peeked.any(axis=1).mean() > 0.25
    assert sequence.any(axis=1).mean() < 0.05
    assert tested.any(axis=1).mean() < 0.05
    # Both find a real effect when there is one.
    assert 0.0 not in asymptotic_confidence_sequence(0.2, 1.0, 4000, n_star=2000)
    assert msprt(0.2, 1.0, 4000, tau=0.05) < 1e-6


@given(st.floats(-1, 1), st.floats(0.01, 4), st.integers(10, 10_000), st.floats(0.8, 0.99))
def test_sequence_is_the_gaussian_mixture_boundary(mean, variance, n, level):
    # Robbins' mixture: the boundary is where the mixture likelihood ratio reaches 1 / alpha.
    alpha, n_star = 1 - level, 500
    best = optimize.minimize_scalar(
        lambda log_rho: boundary(math.exp(log_rho), n_star, alpha),
        bounds=(-8, 3),
        method="bounded",
        options={"xatol": 1e-12},
    )
    half = math.sqrt(variance) * boundary(math.exp(best.x), n, alpha)
    low, high = asymptotic_confidence_sequence(mean, variance, n, level=level, n_star=n_star)
    assert (high + low) / 2 == pytest.approx(mean, abs=1e-12)
    assert (high - low) / 2 == pytest.approx(half, rel=1e-5)


@given(
    st.floats(-1, 1), st.floats(0.01, 4), st.integers(2, 10_000), st.floats(0.6, 0.999),
    st.integers(1, 10_000),
)  # fmt: skip
def test_sequence_is_the_closed_form(mean, variance, n, level, n_star):
    # Where the derivative of the boundary is 0: s - log s = 1 - 2 log alpha, s = n_star rho^2 + 1.
    alpha = 1 - level
    s = optimize.brentq(
        lambda s: s - math.log(s) - 1 + 2 * math.log(alpha), 1 + 1e-12, 1e3, xtol=1e-14
    )
    half = math.sqrt(variance) * boundary(math.sqrt((s - 1) / n_star), n, alpha)
    low, high = asymptotic_confidence_sequence(mean, variance, n, level=level, n_star=n_star)
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-9, abs=1e-9)


@given(st.floats(-1, 1), st.floats(0.01, 4), st.integers(1, 10_000), st.floats(0.01, 2))
def test_msprt_is_the_closed_form(mean, variance, n, tau):
    # Johari et al. (2022), equation for the normal mixture.
    spread = variance + n * tau**2
    power = (n * tau * mean) ** 2 / (2 * variance * spread)
    theirs = min(1.0, math.sqrt(spread / variance) * math.exp(-power))
    assert msprt(mean, variance, n, tau=tau) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def boundary(rho, n, alpha):
    scaled = n * rho**2 + 1
    return math.sqrt(scaled / (n**2 * rho**2) * math.log(scaled / alpha**2))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.floats(-0.5, 0.5), st.floats(0.1, 4), st.integers(1, 400), st.floats(0.05, 1))
def test_msprt_is_the_integrated_likelihood_ratio(mean, variance, n, tau):
    def ratio(theta):
        law = math.exp(-((theta / tau) ** 2) / 2) / (tau * math.sqrt(math.tau))
        return law * math.exp(n * (theta * mean - theta**2 / 2) / variance)

    peak = n * mean / (n + variance / tau**2)
    width = 1 / math.sqrt(n / variance + 1 / tau**2)
    mixture, _ = integrate.quad(ratio, peak - 12 * width, peak + 12 * width, epsabs=0, epsrel=1e-11)
    assert msprt(mean, variance, n, tau=tau) == pytest.approx(min(1.0, 1 / mixture), rel=1e-8)


@given(st.integers(2, 10_000), st.integers(10, 5000))
def test_sequence_is_wider_than_the_fixed_time_interval(n, n_star):
    low, high = asymptotic_confidence_sequence(0.0, 1.0, n, n_star=n_star)
    assert (high - low) / 2 > 1.96 / math.sqrt(n)


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (asymptotic_confidence_sequence, {"n": 0}, "n is"),
        (asymptotic_confidence_sequence, {"n_star": 0}, "n_star"),
        (asymptotic_confidence_sequence, {"variance": -1.0}, "variance"),
        (asymptotic_confidence_sequence, {"level": "x"}, "level is"),
        (asymptotic_confidence_sequence, {"level": 1e-20}, "level is"),
        (msprt, {"tau": 0.0}, "tau"),
        (msprt, {"mean_diff": math.nan}, "mean_diff"),
    ],
)
def test_sequential_test_with_bad_argument_names_it(function, arguments, said):
    good = {
        asymptotic_confidence_sequence: {"mean": 0.0, "variance": 1.0, "n": 10, "n_star": 10},
        msprt: {"mean_diff": 0.0, "variance": 1.0, "n": 10, "tau": 1.0},
    }[function]
    with pytest.raises(InputError, match=said):
        function(**(good | arguments))


@pytest.mark.parametrize("mean", [0.0, 1e-200, 1e200])
@pytest.mark.parametrize("variance", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("tau", [1e-200, 1.0, 1e200])
def test_extreme_arguments_stay_finite(mean, variance, tau):
    assert 0.0 <= msprt(mean, variance, 10**6, tau=tau) <= 1.0
    ends = asymptotic_confidence_sequence(mean, variance, 10**6, n_star=100)
    assert math.isfinite(ends.width)


def test_scale_of_the_numbers_changes_no_p_value():
    plain = msprt(0.1, 1.0, 2000, tau=0.1)
    assert msprt(0.1e150, 1e300, 2000, tau=0.1e150) == pytest.approx(plain, rel=1e-9)


def test_one_unit_says_nothing_of_its_spread():
    ends = asymptotic_confidence_sequence(0.9, 0.0, 1, n_star=1000)
    assert tuple(ends) == (-math.inf, math.inf)
    assert math.isfinite(asymptotic_confidence_sequence(0.9, 0.1, 2, n_star=1000).width)
