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
    ("rows", "message"),
    [
        ([], "'a' has no values to fit its statistics"),
        ([{"a": None}], "'a' has no values to fit"),
        ([{"a": "x"}], "'a' got str 'x'; allowed: a number"),
        ([{"a": math.inf}], "'a' is not finite"),
        ([{"c": 1}], "'c' is not declared"),
        ([{"a": 1.7e308}, {"a": -1.7e308}], "more than float64 can represent"),
        ([3], "a context must be a mapping"),
    ],
)
def test_what_cannot_be_fitted(rows, message):
    with pytest.raises(InputError, match=message):
        FeatureMap(context(a=Z)).fit(rows)


def test_huge_values_cannot_be_fitted_robustly_either():
    rows = [{"a": 1.7e308 * sign} for sign in (-1, -1, 1, 1)]
    with pytest.raises(InputError, match="more than float64 can represent"):
        FeatureMap(context(a=ROBUST)).fit(rows)


def test_state_round_trip_keeps_every_byte():
    features = FeatureMap(context(a=Z, b=ROBUST, t={"type": "text"})).fit(ROWS)
    again = FeatureMap.from_state(context(a=Z, b=ROBUST, t={"type": "text"}), features.state())
    sent = {"a": 1.23, "b": 4.56, "t": "hello there"}
    assert again.hash == features.hash
    assert again.encode(sent).tobytes() == features.encode(sent).tobytes()
    unfitted = FeatureMap(context(a=Z))
    assert FeatureMap.from_state(context(a=Z), unfitted.state()).unfitted == ("a",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": 2}, "another layout"),
        ({"context": {}}, "another context"),
        ({"statistics": {}}, "other numbers"),
        ({"statistics": None}, "other numbers"),
        ({"statistics": {"a": [1.0]}}, r"statistics of 'a' are \[1.0\]"),
        ({"statistics": {"a": [1.0, 0.0]}}, "spread > 0"),
        ({"statistics": {"a": [1.0, math.inf]}}, "spread > 0"),
        ({"statistics": {"a": [math.nan, 1.0]}}, "spread > 0"),
        ({"statistics": {"a": "xy"}}, "spread > 0"),
    ],
)
def test_foreign_and_damaged_states_are_refused(change, message):
    state = FeatureMap(context(a=Z)).fit([{"a": 1.0}, {"a": 3.0}]).state()
    with pytest.raises(StateError, match=message):
        FeatureMap.from_state(context(a=Z), {**state, **change})


@pytest.mark.parametrize("state", [None, 3, "{}", b"{}", [("layout", 1)]])
def test_a_state_is_a_mapping(state):
    message = rf"feature state got {type(state).__name__}.*; allowed: the mapping.* decode JSON"
    with pytest.raises(StateError, match=message):
        FeatureMap.from_state(context(a=Z), state)


def test_a_state_of_another_declaration_is_refused():
    state = FeatureMap(context(a=Z)).state()
    with pytest.raises(StateError, match="another context"):
        FeatureMap.from_state(context(a=ROBUST), state)


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
