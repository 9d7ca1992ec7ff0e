"""Bad logs are refused with what was wrong; good ones are taken as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.ope import (
    LoggedData,
    LoggedSequences,
    drawn_or_another,
    evaluate,
    evaluate_sequences,
    never_drawn,
    requests_needed,
)
from steersman.ope.columns import unit_labels
from steersman.stats import welch_test

GOOD = {
    "actions": [0, 1, 1],
    "rewards": [0.0, 1.0, 0.5],
    "propensities": [0.5, 0.25, 1.0],
    "target": [[0.1, 0.9], [1.0, 0.0], [0.5, 0.5]],
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"propensities": [0.5, 0.0, 1.0]}, r"propensities\[1\] is 0.0"),
        ({"propensities": [0.5, -0.1, 1.0]}, r"propensities\[1\]"),
        ({"propensities": [0.5, 1.0, 1.1]}, r"propensities\[2\] is 1.1"),
        ({"propensities": [0.5, np.nan, 1.0]}, r"propensities\[1\] is nan"),
        ({"propensities": [0.5, 0.5]}, "propensities has shape"),
        ({"rewards": [0.0, np.inf, 1.0]}, r"rewards\[1\] is inf"),
        ({"rewards": [np.inf, -np.inf, 1.0]}, r"rewards\[0\] is inf"),
        ({"rewards": [[0.0, 1.0, 1.0]]}, "rewards has shape"),
        ({"rewards": []}, "rewards has shape"),
        ({"target": [[0.1, 0.9], [1.0, 0.1], [0.5, 0.5]]}, "target row 1 sums to 1.1"),
        ({"target": [[0.1, 0.9], [1.0, 2e-6], [0.5, 0.5]]}, "target row 1 sums to 1.000002"),
        ({"target": [[-0.1, 1.1], [1.0, 0.0], [0.5, 0.5]]}, r"target\[0, 0\] is -0.1"),
        ({"target": [[0.1, np.nan], [1.0, 0.0], [0.5, 0.5]]}, r"target\[0, 1\] is nan"),
        ({"target": [[0.1, 0.9]]}, "target has shape"),
        ({"actions": [0, 2, 1]}, r"actions\[1\] is 2"),
        ({"actions": [0, -1, 1]}, r"actions\[1\] is -1"),
        ({"actions": [0.0, 1.0, 1.0]}, "float64"),
        ({"actions": ["a", "b", "b"]}, "actions"),
        ({"q_hat": [[0.0], [1.0], [1.0]]}, "q_hat has shape"),
        ({"q_hat": [[0.0, np.nan], [1.0, 1.0], [1.0, 1.0]]}, r"q_hat\[0, 1\] is nan"),
        ({"contexts": [0.0, 1.0, 2.0]}, "contexts has shape"),
        ({"contexts": [[0.0], [np.nan], [1.0]]}, r"contexts\[1, 0\] is nan"),
        ({"clusters": ["a", "b"]}, "clusters has shape"),
        ({"clusters": [0.0, np.nan, 1.0]}, "clusters holds NaN"),
        ({"reward_range": (0.0, 0.9)}, "rewards span"),
        ({"reward_range": (1.0, 0.0)}, "reward_range"),
        ({"reward_range": 5}, "reward_range is 5"),
        ({"reward_range": ("a", "b")}, "reward_range"),
        ({"reward_range": (0.0, 1e200)}, "reward_range"),
        ({"rewards": ["0.0", "1.0", "0.5"]}, "rewards has type <U3"),
        ({"rewards": [0.0, 1.0j, 0.5]}, "rewards has type complex128"),
        ({"rewards": np.array([True, False, True], dtype=object)}, "rewards has type object"),
        ({"rewards": [0.0, 1e101, 0.5]}, r"rewards\[1\] is 1e\+101; allowed: up to 1e\+100"),
        ({"q_hat": [[0.0, 0.0], [0.0, -1e200], [0.0, 0.0]]}, r"q_hat\[1, 1\] is -1e\+200"),
        ({"contexts": [[0.0], [-2e6], [1.0]]}, r"contexts\[1, 0\] is -2000000.0"),
        ({"target": [[0.1, 0.9], [1.0], [0.5, 0.5]]}, "target is not an array"),
        ({"clusters": np.array(["a", 1, None], dtype=object)}, "clusters holds labels of several"),
        (
            {"actions": [0], "rewards": [1.0], "propensities": [0.5], "target": [[-0.1, 1.1]]},
            r"target\[0, 0\] is -0.1; allowed: 0 to 1; pass the",
        ),
    ],
)
def test_logged_data_with_bad_columns_names_the_value(wrong, said):
    with pytest.raises(InputError, match=said):
        LoggedData(**(GOOD | wrong))
    with pytest.raises(ValueError, match=said):
        LoggedData(**(GOOD | wrong))


def test_rounding_of_target_rows_is_forgiven():
    target = [[0.1, 0.9 + 5e-7], [1.0, 0.0], [0.5, 0.5]]
    assert LoggedData(**(GOOD | {"target": target})).weights[1] == 0.0


def test_huge_rewards_are_taken_up_to_1e100():
    data = LoggedData(**(GOOD | {"rewards": [1e100, -1e100, 1e100]}))
    assert data.rewards[0] == 1e100


def test_arrays_are_neither_copied_nor_changed():
    rewards = np.array([0.0, 1.0, 0.5])
    rewards.flags.writeable = False
    data = LoggedData(**(GOOD | {"rewards": rewards}))
    assert data.rewards is rewards


@given(st.lists(st.sampled_from(["ann", "bo", "cy"]), min_size=3, max_size=3))
def test_units_number_the_labels(labels):
    units = LoggedData(**(GOOD | {"clusters": labels})).units
    for i, first in enumerate(labels):
        for j, second in enumerate(labels):
            assert (units[i] == units[j]) == (first == second)
    assert units.max() + 1 == len(set(labels))


def test_mass_on_what_was_never_drawn_is_told_where_it_is_no_chance():
    target = np.tile([0.6, 0.36, 0.04], (120, 1))
    actions = np.arange(120) % 2
    assert never_drawn(actions, target) is None  # 4.8 draws expected, none seen
    longer = np.vstack([target, target[:5]])
    assert never_drawn(np.arange(125) % 2, longer) == pytest.approx(np.full(125, 0.04))
    assert never_drawn(np.arange(125) % 3, longer) is None
    shares = np.tile([0.5, 0.48, 0.02], (2000, 1))
    actions = np.arange(2000) % 2
    log = LoggedData(
        actions, actions, np.full(2000, 0.5), shares, missing=never_drawn(actions, shares)
    )
    assert any("could not have drawn 2.0%" in reason for reason in evaluate(log).reasons)


def test_no_estimators_are_refused_in_words():
    log = LoggedData([0, 1], [1.0, 0.0], [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(InputError, match="allowed: ips"):
        evaluate(log, estimators=None)


def test_masked_numbers_are_refused_wherever_they_are_given():
    rewards = np.ma.masked_array([0.0, 1.0, -999.0], [False, False, True])
    for masked in ({"rewards": rewards}, {"propensities": rewards}, {"actions": rewards}):
        columns = {"actions": [0, 1, 0], "rewards": [0.0, 1.0, 1.0], "propensities": [0.5] * 3}
        with pytest.raises(InputError, match="masked"):
            LoggedData(**{**columns, **masked}, target=np.full((3, 2), 0.5))
    with pytest.raises(InputError, match="masked"):
        LoggedSequences([[0.5]] * 3, [[0.5]] * 3, rewards[:, None], [1] * 3)
    with pytest.raises(InputError, match="masked"):
        welch_test(rewards, [0.0, 1.0, 0.0])


@pytest.mark.parametrize("wrong", [[1.5], [-0.1], ["a"], [[0.5]], [np.nan]])
def test_masses_that_are_no_probabilities_are_refused(wrong):
    with pytest.raises(InputError, match="masses"):
        drawn_or_another(wrong)


@pytest.mark.parametrize(
    ("actions", "target", "said"),
    [
        ([5], [[0.5, 0.5]], "one column index per row"),
        ([0, 1], [[0.5, 0.5]], "one column index per row"),
        ([0], [0.5, 0.5], "one column index per row"),
        (["a", "b"], [[0.5, 0.5]] * 2, "one column index per row"),
        ([0.5, 1.2], [[0.5, 0.5]] * 2, "one column index per row"),
        ([None, 1], [[0.5, 0.5]] * 2, "one column index per row"),
        ([True, False], [[0.5, 0.5]] * 2, "one column index per row"),
        ([0, 1], [[0.5, float("nan")]] * 2, "target"),
    ],
)
def test_never_drawn_with_bad_actions_or_target_says_what_is_wrong(actions, target, said):
    with pytest.raises(InputError, match=said):
        never_drawn(actions, target)


def test_what_is_no_log_seed_or_name_is_told_so():
    log = LoggedData([0, 1], [0.0, 1.0], [0.5, 0.5], np.full((2, 2), 0.5))
    for call, said in (
        (lambda: requests_needed(None, 0.1), "allowed: a log"),
        (lambda: requests_needed(log, 0.1, seed=-1), "seed"),
        (lambda: requests_needed(log, 0.1, estimator=["dr"]), "estimator"),
        (lambda: evaluate(log, interval=["wald"]), "interval"),
        (lambda: evaluate(log, estimators=5), "estimators"),
        (lambda: requests_needed(log, 0.1, seed=True), "seed is True"),
        (lambda: evaluate_sequences(None), "log of selections"),
        (lambda: evaluate_sequences(log), "log of selections"),
    ):
        with pytest.raises(InputError, match=said):
            call()


class _NeverAsked:
    """As `pandas.NA`, it cannot be said to be true or not."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError

    __hash__ = None


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", float("nan")] * 2, object),
        np.array([1.0, float("nan")] * 2, object),
        np.array(["2026-01-01", "NaT"] * 2, "datetime64[D]"),
        np.array([1 + 1j, complex(float("nan"), 0)] * 2),
        ["a", float("nan"), "b", float("nan")],
        ["a", None, "b", "c"],
        [1, "1", "b", "b"],
        np.array(["a", _NeverAsked()] * 2, object),
    ],
)
def test_what_names_no_unit_is_refused_in_every_type(labels):
    with pytest.raises(InputError, match="clusters holds"):
        unit_labels(labels, 4)


@pytest.mark.parametrize("labels", [["a", "b", "a"], [3, 1, 3], [True, False, True]])
def test_labels_in_lists_are_what_they_are_in_arrays(labels):
    assert unit_labels(labels, 3).tolist() == unit_labels(np.array(labels), 3).tolist() == labels


def test_a_mass_that_is_1_up_to_rounding_leaves_nothing_below_0():
    assert drawn_or_another([1.0 + 1e-7]).tolist() == [[1.0, 0.0]]


def test_a_range_of_narrow_numbers_is_a_range():
    narrow = np.array([0.0, 1.0], np.float32)
    log = LoggedData([0, 1], [0.0, 1.0], [0.5, 0.5], [[0.5, 0.5]] * 2, reward_range=narrow)
    assert list(log.reward_range) == [0.0, 1.0]
