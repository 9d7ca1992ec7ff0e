"""Statistics are declared or fitted, once; then they are frozen and travel with their map."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError, StateError
from steersman.features import FeatureMap, Statistics
from steersman.spec.context import Context

Z = {"type": "number"}
ROBUST = {"type": "number", "scale": "robust"}


def context(**fields):
    return Context.model_validate({"fields": fields})


ROWS = [{"a": value, "b": value} for value in (1.0, 2, 3.0, 4.0, 100.0)]


def test_fitted_statistics_are_those_of_numpy():
    features = FeatureMap(context(a=Z, b=ROBUST)).fit(ROWS)
    values = np.array([row["a"] for row in ROWS])
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    statistics = features.state()["statistics"]
    assert statistics["a"] == pytest.approx([values.mean(), values.std()])
    assert statistics["b"] == pytest.approx([median, (high - low) / 1.349])
    assert features.unfitted == ()


def test_only_what_is_not_declared_is_fitted():
    declared = {"type": "number", "mean": 7.0, "sd": 2.0}
    features = FeatureMap(context(a=declared, b=Z)).fit(ROWS)
    assert features.state()["statistics"]["a"] == [7.0, 2.0]
    nothing_to_fit = FeatureMap(context(a=declared))
    assert nothing_to_fit.fit(ROWS[:0]).hash == nothing_to_fit.hash


def test_missing_values_are_left_out():
    rows = [*ROWS, {}, {"a": None}, {"a": math.nan}]
    whole = FeatureMap(context(a=Z, b=ROBUST))
    assert whole.fit(rows).state() == whole.fit(ROWS).state()


def test_fitting_gives_a_new_map_and_is_done_once():
    before = FeatureMap(context(a=Z))
    after = before.fit([{"a": 1.0}, {"a": 2.0}])
    assert before.unfitted == ("a",)
    with pytest.raises(InputError, match=r"fitted once, then frozen; fit a new FeatureMap"):
        after.fit([{"a": 5.0}])
    restored = FeatureMap.from_state(context(a=Z), after.state())
    with pytest.raises(InputError, match="fitted once"):
        restored.fit([{"a": 5.0}])


def test_nothing_is_encoded_before_it_is_fitted():
    with pytest.raises(InputError, match="statistics of a, b are neither declared nor fitted"):
        FeatureMap(context(a=Z, b=ROBUST)).encode({"a": 1.0})


@pytest.mark.parametrize("field", [Z, ROBUST])
def test_a_constant_has_spread_one(field):
    features = FeatureMap(context(a=field)).fit([{"a": 5.0}] * 3)
    assert features.state()["statistics"]["a"] == [5.0, 1.0]


@pytest.mark.parametrize("field", [Z, ROBUST])
@pytest.mark.parametrize("value", [0.1, 1.1, -3.3, 1e9 + 0.1, 1e-200])
@pytest.mark.parametrize("count", [1, 3, 7, 1000])
def test_a_constant_is_one_whatever_its_mean_is_rounded_to(field, value, count):
    """The mean of equal numbers may differ from them by so little that all else is clipped."""
    features = FeatureMap(context(a=field)).fit([{"a": value}] * count)
    assert features.state()["statistics"]["a"] == [value, 1.0]


def test_quartiles_that_are_the_same_leave_the_standard_deviation():
    values = [0.0] * 80 + [0.01, 0.02, 0.03, 0.04, 0.05] * 4
    features = FeatureMap(context(a=ROBUST)).fit([{"a": value} for value in values])
    assert features.state()["statistics"]["a"] == pytest.approx([0.0, np.std(values)])
    slot = 1  # after the bias
    seen = [features.encode({"a": value})[slot] for value in (0.0, 0.01, 0.03)]
    assert seen[0] == 0.0
    assert seen[2] == pytest.approx(3 * seen[1])
    assert abs(seen[2]) > 0.5 * features.encode({"a": 1.0})[slot]


@pytest.mark.parametrize(
    ("declared", "rows", "message"),
    [
        (Z, [], "'a' has no values to fit its statistics"),
        (Z, [{"a": None}], "'a' has no values to fit"),
        (Z, [{"a": "x"}], "'a' got str 'x'; allowed: a number"),
        (Z, [{"a": math.inf}], "'a' is not finite"),
        (Z, [{"c": 1}], "'c' is not declared"),
        (Z, [{"a": 1.7e308}, {"a": -1.7e308}], "more than float64 can represent"),
        (Z, [3], "a context must be a mapping"),
        (
            ROBUST,
            [{"a": 1.7e308 * sign} for sign in (-1, -1, 1, 1)],
            "more than float64 can represent",
        ),
    ],
)
def test_fit_with_bad_rows_names_the_value(declared, rows, message):
    with pytest.raises(InputError, match=message):
        FeatureMap(context(a=declared)).fit(rows)


def test_state_round_trip_keeps_every_byte():
    features = FeatureMap(context(a=Z, b=ROBUST, t={"type": "text"})).fit(ROWS)
    again = FeatureMap.from_state(context(a=Z, b=ROBUST, t={"type": "text"}), features.state())
    sent = {"a": 1.23, "b": 4.56, "t": "hello there"}
    assert again.hash == features.hash
    assert again.encode(sent).tobytes() == features.encode(sent).tobytes()
    unfitted = FeatureMap(context(a=Z))
    assert FeatureMap.from_state(context(a=Z), unfitted.state()).unfitted == ("a",)


FITTED = FeatureMap(context(a=Z)).fit([{"a": 1.0}, {"a": 3.0}]).state()


@pytest.mark.parametrize(
    ("declared", "state", "message"),
    [
        (Z, {**FITTED, "layout": 2}, "another layout"),
        (Z, {**FITTED, "context": {}}, "another context"),
        (Z, {**FITTED, "statistics": {}}, "other numbers"),
        (Z, {**FITTED, "statistics": None}, "other numbers"),
        (Z, {**FITTED, "statistics": {"a": [1.0]}}, r"statistics of 'a' are \[1.0\]"),
        (Z, {**FITTED, "statistics": {"a": [1.0, 0.0]}}, "spread > 0"),
        (Z, {**FITTED, "statistics": {"a": [1.0, math.inf]}}, "spread > 0"),
        (Z, {**FITTED, "statistics": {"a": [math.nan, 1.0]}}, "spread > 0"),
        (Z, {**FITTED, "statistics": {"a": "xy"}}, "spread > 0"),
        (Z, None, "feature state got NoneType.*; allowed: the mapping.* decode JSON"),
        (Z, 3, "feature state got int.*; allowed: the mapping.* decode JSON"),
        (Z, "{}", "feature state got str.*; allowed: the mapping.* decode JSON"),
        (Z, b"{}", "feature state got bytes.*; allowed: the mapping.* decode JSON"),
        (Z, [("layout", 1)], "feature state got list.*; allowed: the mapping.* decode JSON"),
        (ROBUST, FeatureMap(context(a=Z)).state(), "another context"),
    ],
)
def test_from_state_with_bad_state_says_why(declared, state, message):
    with pytest.raises(StateError, match=message):
        FeatureMap.from_state(context(a=declared), state)


@pytest.mark.slow
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), data=st.data())
def test_order_of_the_rows_does_not_matter(values, data):
    shuffled = data.draw(st.permutations(values))
    fresh = FeatureMap(context(a=Z, b=ROBUST))
    states = [
        fresh.fit([{"a": value, "b": value} for value in order]).state()
        for order in (values, shuffled)
    ]
    assert states[0] == states[1]


def test_statistics_are_a_pair():
    assert Statistics(1.0, 2.0) == (1.0, 2.0)
