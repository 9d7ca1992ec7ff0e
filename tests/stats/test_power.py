"""Sample sizes against simulation, and against the z formula written out."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from steersman.errors import InputError
from steersman.stats import achieved_power, minimum_detectable_effect, required_sample_size

effects = st.floats(0.02, 2.0)
spreads = st.floats(0.1, 5.0)


def test_known_answers():
    # 500 validation queries cannot show +.03 at a standard deviation of .25.
    assert required_sample_size(0.03, 0.25, test="z") == 1091
    assert required_sample_size(0.03, 0.25) == 1092
    assert required_sample_size(0.03, 0.25, paired=True) == 547
    assert achieved_power(0.03, 0.25, 500, test="z") == pytest.approx(0.475, abs=5e-4)
    assert minimum_detectable_effect(500, 0.25) == pytest.approx(0.044, abs=5e-4)
    # Cohen (1988), table 2.4.1: d = .5, power .8, two-sided .05.
    assert required_sample_size(0.5, 1.0) == 64
    assert required_sample_size(0.2, 1.0, power=0.9) == 527


# statsmodels 0.15.0: TTestIndPower, NormalIndPower and TTestPower .power(effect, n, 0.05).
STATSMODELS = [
    (0.12, 1092, 0.8003304740908623, 0.8006755118256713, 0.9773573023563743),
    (0.5, 64, 0.8014595579222542, 0.807430419432557, 0.9760555768876558),
    (0.2, 30, 0.11867943556403769, 0.12105930370579106, 0.18518338712591942),
    (0.12, 500, 0.4743743222668725, 0.47510087057263783, 0.7636693721077384),
]


@pytest.mark.parametrize(("effect", "n", "t", "z", "paired"), STATSMODELS)
def test_power_is_that_of_statsmodels(effect, n, t, z, paired):
    assert achieved_power(effect, 1.0, n) == pytest.approx(t, abs=1e-9)
    assert achieved_power(effect, 1.0, n, test="z") == pytest.approx(z, abs=1e-9)
    assert achieved_power(effect, 1.0, n, paired=True) == pytest.approx(paired, abs=1e-9)


@pytest.mark.parametrize(
    ("effect", "power", "alpha", "t", "z"),
    [
        (0.12, 0.8, 0.05, 1091.080709923514, 1090.1195151877607),
        (0.5, 0.9, 0.01, 120.70548584929035, 119.0350973257168),
        (0.3, 0.95, 0.1, 241.17173674217324, 240.49218281192344),
    ],
)
def test_sizes_are_those_of_statsmodels_rounded_up(effect, power, alpha, t, z):
    asked = {"power": power, "level": 1 - alpha}
    assert required_sample_size(effect, 1.0, **asked) == math.ceil(t)
    assert required_sample_size(effect, 1.0, test="z", **asked) == math.ceil(z)


@given(effects, spreads, st.floats(0.75, 0.99), st.floats(0.8, 0.99))
def test_z_size_is_the_formula(effect, sd, power, level):
    z = stats.norm.ppf(1 - (1 - level) / 2) + stats.norm.ppf(power)
    formula = max(2, math.ceil(2 * (z * sd / effect) ** 2))
    # The formula leaves out the far tail, which low powers at low levels notice.
    size = required_sample_size(effect, sd, power=power, level=level, test="z")
    assert 0.98 * formula - 1 <= size <= formula


@pytest.mark.slow
@given(effects, spreads, st.booleans())
def test_size_is_the_smallest_that_reaches_the_power(effect, sd, paired):
    n = required_sample_size(effect, sd, paired=paired)
    assert achieved_power(effect, sd, n, paired=paired) >= 0.8
    if n > 2:
        assert achieved_power(effect, sd, n - 1, paired=paired) < 0.8


@pytest.mark.slow
@given(st.integers(2, 3000), spreads, st.sampled_from(["t", "z"]))
def test_detectable_effect_inverts_power(n, sd, test):
    effect = minimum_detectable_effect(n, sd, test=test)
    assert achieved_power(effect, sd, n, test=test) == pytest.approx(0.8, abs=1e-9)
    assert achieved_power(-effect, sd, n, test=test) == pytest.approx(0.8, abs=1e-9)


def test_power_is_what_a_simulated_t_test_reaches():
    rng = np.random.default_rng(0)
    runs, n = 20_000, 12
    first, second = rng.normal(1.2, 1, (runs, n)), rng.normal(0, 1, (runs, n))
    rejected = (stats.ttest_ind(first, second, axis=1).pvalue < 0.05).mean()
    assert rejected == pytest.approx(achieved_power(1.2, 1.0, n), abs=4 * math.sqrt(0.25 / runs))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"effect": 0.0, "sd": 1.0}, "effect"),
        ({"effect": math.nan, "sd": 1.0}, "effect"),
        ({"effect": 0.1, "sd": -1.0}, "sd"),
        ({"effect": 0.1, "sd": 1.0, "power": 1.0}, "power"),
        ({"effect": 0.1, "sd": 1.0, "power": 0.04}, "power"),
        ({"effect": 0.1, "sd": 1.0, "level": 0.0}, "level"),
        ({"effect": 0.1, "sd": 1.0, "test": "chi"}, "test"),
        ({"effect": 1e-9, "sd": 1.0}, "more than 9e[+]15 units"),
        ({"effect": 1e-200, "sd": 1e200}, "ratio of 0.0"),
        ({"effect": 1e200, "sd": 1e-200}, "ratio of inf"),
        ({"effect": 0.1, "sd": 1.0, "level": "x"}, "level is 'x'"),
        ({"effect": np.timedelta64(5, "ns"), "sd": 1.0}, "effect is"),
        ({"effect": np.complex128(0.1 + 5j), "sd": 1.0}, "effect is"),
    ],
)
def test_required_sample_size_with_bad_argument_names_it(arguments, said):
    with pytest.raises(InputError, match=said):
        required_sample_size(**arguments)


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (minimum_detectable_effect, {"n": 1, "sd": 1.0}, "n is"),
        (achieved_power, {"effect": 0.1, "sd": 1.0, "n": 10.5}, "n is"),
        (minimum_detectable_effect, {"n": 2, "sd": 1e308, "power": 0.99}, "leaves float64"),
    ],
)
def test_power_of_n_units_with_bad_argument_names_it(function, arguments, said):
    with pytest.raises(InputError, match=said):
        function(**arguments)


@pytest.mark.parametrize("effect", [1e-5, 1e-7])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("test", ["t", "z"])
def test_tiny_effects_are_answered_at_once(effect, paired, test):
    began = time.perf_counter()
    n = required_sample_size(effect, 1.0, paired=paired, test=test)
    back = minimum_detectable_effect(n, 1.0, paired=paired, test=test)
    assert time.perf_counter() - began < 1.0
    edge = stats.norm.ppf(0.975)
    shift = optimize.brentq(
        lambda s: stats.norm.sf(edge - s) + stats.norm.cdf(-edge - s) - 0.8, 1, 5, xtol=1e-14
    )
    assert n == pytest.approx((1 if paired else 2) * (shift / effect) ** 2, rel=1e-9)
    assert back == pytest.approx(effect, rel=1e-9)


@pytest.mark.parametrize("n", [600_000, 5_000_000])
@pytest.mark.parametrize("shift", [-1.0, 0.5, 2.8, 5.0])
def test_many_degrees_of_freedom_against_scipy(n, shift):
    degrees, edge = 2 * (n - 1), stats.t.ppf(0.975, 2 * (n - 1))
    theirs = stats.nct.sf(edge, degrees, shift) + stats.nct.cdf(-edge, degrees, shift)
    assert achieved_power(shift * math.sqrt(2 / n), 1.0, n) == pytest.approx(theirs, abs=1e-11)


def test_extreme_ratios_have_power_one():
    assert achieved_power(1e300, 1.0, 2) == 1.0
    assert required_sample_size(1e200, 1.0) == 2


def test_texts_are_no_truth_values():
    for find in (
        lambda: required_sample_size(0.1, 1.0, paired="no"),
        lambda: achieved_power(0.1, 1.0, 100, paired="no"),
        lambda: minimum_detectable_effect(100, 1.0, paired="no"),
    ):
        with pytest.raises(InputError, match="paired is 'no'; allowed: True or False"):
            find()
