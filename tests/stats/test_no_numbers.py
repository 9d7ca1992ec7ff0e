"""What is no number is refused by every function, with the error that says what to do."""

from decimal import Decimal

import numpy as np
import pytest

from steersman import stats
from steersman.errors import InputError

ARM = stats.Moments(100, 0.5, 0.25)
CALLS = {
    stats.Moments: {"n": 1, "mean": 0.1, "variance": 0.1},
    stats.achieved_power: {"effect": 0.1, "sd": 1.0, "n": 10, "level": 0.95, "test": "t"},
    stats.asymptotic_confidence_sequence: {"mean": 0.0, "variance": 1.0, "n": 10, "n_star": 10},
    stats.bca_interval: {"x": [1.0, 2.0], "statistic": np.mean, "resamples": 100, "seed": 0},
    stats.bernstein_half_width: {"variance": 0.2, "n": 10, "level": 0.95, "span": 1.0},
    stats.crossed_mean: {"values": [[1.0, 2.0], [2.0, 3.0]], "level": 0.95},
    stats.cuped_adjust: {"y": [1.0, 2.0], "covariate": [1.0, 2.0]},
    stats.empirical_bernstein: {"x": [0.0, 1.0], "level": 0.95, "low": 0.0, "high": 1.0},
    stats.group_sequential_bounds: {"times": [0.5, 1.0], "alpha": 0.05, "spending": "pocock"},
    stats.kaplan_meier: {"times": [1.0, 2.0], "ended": [True, True], "level": 0.95},
    stats.kaplan_meier([1, 2], [True, True]).restricted_mean: {"until": 2.0},
    stats.minimum_detectable_effect: {"n": 10, "sd": 1.0, "power": 0.8, "test": "z"},
    stats.msprt: {"mean_diff": 0.1, "variance": 1.0, "n": 10, "tau": 0.1},
    stats.non_inferiority_test: {"candidate": [1.0, 2.0], "control": [1.0, 2.0], "margin": 0.1},
    stats.required_sample_size: {"effect": 0.1, "sd": 1.0, "power": 0.8, "test": "t"},
    stats.sample_ratio_test: {"observed": [1, 2], "shares": [1, 1], "level": 0.95},
    stats.sequential_sample_ratio_test: {"observed": [1, 2], "concentration": 200.0},
    stats.two_arm_confidence_sequence: {"candidate": ARM, "control": ARM, "n_star": 100},
    stats.welch_test: {"candidate": [1.0, 2.0], "control": [1.0, 2.0], "level": 0.95},
}


@pytest.mark.parametrize("wrong", ["a", object(), {}, [[1.0], [2.0, 3.0]], b"x", np.nan, 1j])
@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_what_is_no_number_is_refused_wherever_it_stands(function, wrong):
    given = CALLS[function]
    function(**given)
    for name in given:
        with pytest.raises(InputError, match="allowed"):
            function(**{**given, name: wrong})


def test_none_is_no_number():
    for function, given in CALLS.items():
        for name in given.keys() - {"shares"}:  # which may be left out
            with pytest.raises(InputError, match="allowed"):
                function(**{**given, name: None})


@pytest.mark.parametrize(
    ("x", "statistic", "resamples", "said"),
    [
        (
            [1.0, 2.0, 3.0],
            lambda _rows: np.array([1.0, 2.0]),
            100,
            r"statistic gave .*one finite number",
        ),
        ([1.0, 2.0, 3.0], lambda _rows: "0.5", 100, r"statistic gave .*one finite number"),
        ([1.0, 2.0, 3.0], lambda _rows: None, 100, r"statistic gave .*one finite number"),
        ([1.0, 2.0], np.mean, 10**12, "resamples is 1000000000000; allowed: 100 to 1,000"),
    ],
)
def test_bca_interval_with_bad_statistic_or_resamples_names_it(x, statistic, resamples, said):
    with pytest.raises(InputError, match=said):
        stats.bca_interval(x, statistic, resamples=resamples)


def test_numbers_of_any_real_type_are_taken():
    for kind in (bool, np.int8, np.uint64, np.float32, object):
        given = np.array([0, 1, 1, 0], dtype=kind)
        assert stats.welch_test(given, given).p_value == 1.0


@pytest.mark.parametrize("truth", [True, np.True_], ids=["bool", "numpy"])
def test_true_is_no_number_where_one_is_wanted(truth):
    for function, given in CALLS.items():
        for name, one in given.items():
            if isinstance(one, int | float) and function is not stats.bca_interval:
                with pytest.raises(InputError, match="allowed"):
                    function(**{**given, name: truth})
    with pytest.raises(InputError, match=r"effect is True; allowed"):
        stats.required_sample_size(True, 1)
    for name in ("level", "resamples", "seed"):
        with pytest.raises(InputError, match="allowed"):
            stats.bca_interval([1.0, 2.0], np.mean, **{"resamples": 100, name: truth})


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_decimals_are_the_numbers_that_they_name(function):
    given = CALLS[function]
    decimal = {name: as_decimals(one) for name, one in given.items() if name != "seed"}
    assert repr(function(**{**given, **decimal})) == repr(function(**given))


def as_decimals(one):
    if isinstance(one, list):
        return [as_decimals(item) for item in one]
    return Decimal(str(one)) if isinstance(one, int | float) and not isinstance(one, bool) else one


@pytest.mark.parametrize("text", [b"1", bytearray(b"1"), memoryview(b"1")])
def test_digits_are_no_numbers(text):
    for function, given in CALLS.items():
        for name in given:
            with pytest.raises(InputError, match="allowed"):
                function(**{**given, name: text})


def test_a_count_that_is_too_large_is_told_so():
    with pytest.raises(InputError, match=r"n is 2.*; allowed: a whole number from 2 to 2\^53"):
        stats.achieved_power(0.1, 1.0, 2 * 10**18)
