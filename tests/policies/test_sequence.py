"""A step's distribution is the one that was drawn from; their product is the sequence's."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import ActionError, InputError, StateError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer, scorer_from_state, scorer_state
from steersman.policies.sequence import (
    STOP,
    Step,
    StepRule,
    draw_step,
    leading,
    sequence_propensity,
    step_distribution,
)
from steersman.policies.tree_scorer import TreeScorer

SCORES = st.lists(st.floats(-50, 50), min_size=1, max_size=12).map(np.array)


@given(SCORES, st.just(0.0) | st.floats(1e-6, 5), st.floats(0, 0.99))
def test_every_step_sums_to_one_and_keeps_its_floor(scores, temperature, floor):
    found = step_distribution(scores, StepRule(10, temperature, floor))
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found >= floor / len(scores) - 1e-15).all()


@given(SCORES, st.floats(0.1, 5), st.floats(0, 0.9))
def test_the_distribution_is_softmax_with_the_floor_mixed_in(scores, temperature, floor):
    found = step_distribution(scores, StepRule(10, temperature, floor))
    masses = [math.exp((one - scores.max()) / temperature) for one in scores]
    wanted = [(1 - floor) * mass / sum(masses) + floor / len(scores) for mass in masses]
    assert np.allclose(found, wanted, atol=1e-12)


def test_candidates_that_are_all_alike_are_equally_likely():
    for temperature in (0.0, 1.0):
        found = step_distribution(np.zeros(5), StepRule(temperature=temperature))
        assert np.allclose(found, 0.2)


def test_a_step_without_eligible_actions_is_refused():
    with pytest.raises(ActionError, match="no action is eligible"):
        step_distribution(np.zeros(0), StepRule())
    with pytest.raises(InputError, match="finite"):
        step_distribution(np.array([1.0, np.nan]), StepRule())


def test_leading_takes_the_best_and_breaks_ties_by_place():
    assert leading(np.array([1.0, 3.0, 3.0, -np.inf, 2.0]), 2).tolist() == [1, 2]
    assert leading(np.array([1.0, 1.0, 1.0]), 2).tolist() == [0, 1]
    assert leading(np.full(3, -np.inf), 2).tolist() == []


@pytest.mark.parametrize("count", [1, 5])
def test_a_score_that_is_no_number_is_refused_and_not_left_out(count):
    """Left out silently, a broken scorer would select on, and log propensities of what is left."""
    with pytest.raises(InputError, match=r"1 of 3 .* NaN"):
        leading(np.array([1.0, np.nan, 0.5]), count)


@pytest.mark.slow
def test_logged_products_are_the_frequencies_of_whole_sequences():
    """All 3² sequences of two steps whose second depends on the first, by their own product."""
    rule = StepRule(3, 1.0, 0.1)
    first = np.array([0.2, 1.0, -0.5])
    second = {0: np.array([0.0, 2.0]), 1: np.array([1.0, 1.0]), 2: np.array([-1.0, 0.0])}
    names, rng = ["a", "b", STOP], np.random.default_rng(5)
    seen, said, draws = {}, {}, 20_000
    for _ in range(draws):
        place, one = draw_step(names, first, rule, rng=rng)
        then, other = draw_step(["x", "y"], second[place], rule, rng=rng)
        seen[place, then] = seen.get((place, then), 0) + 1
        said[place, then] = sequence_propensity([one, other])
    assert sum(said.values()) == pytest.approx(1.0, abs=1e-12)
    for key in product(range(3), range(2)):
        p = said[key]
        assert abs(seen[key] / draws - p) < 4.5 * math.sqrt(p * (1 - p) / draws)


@pytest.mark.parametrize(
    "wrong",
    [
        {"leading": 0},
        {"leading": 1001},
        {"leading": 2.0},
        {"leading": "2"},
        {"leading": True},
        {"temperature": "1"},
        {"temperature": True},
        {"floor": None},
        {"temperature": -1.0},
        {"temperature": 1e-300},
        {"temperature": math.nan},
        {"floor": 1.0},
        {"floor": math.nan},
    ],
)
def test_rules_out_of_their_range_are_refused(wrong):
    with pytest.raises(InputError):
        StepRule(**wrong)


def test_a_step_says_only_what_can_be():
    with pytest.raises(InputError, match="not among"):
        Step(("a",), "b", 0.5)
    for p in (0.0, 1.1, math.nan):
        with pytest.raises(InputError, match="p is"):
            Step(("a",), "a", p)
    with pytest.raises(InputError, match="multiply"):
        sequence_propensity([Step(("a", "b"), "a", 1e-200)] * 2)


def _forest(seed):
    rng = np.random.default_rng(seed)
    return TreeScorer.of_stumps(
        4, [(int(rng.integers(4)), rng.normal(), *rng.normal(size=2)) for _ in range(20)]
    )


def test_stumps_score_as_written_out():
    rng = np.random.default_rng(0)
    stumps = [(int(rng.integers(4)), rng.normal(), *rng.normal(size=2)) for _ in range(20)]
    rows = rng.normal(size=(50, 4))
    wanted = [sum(low if row[c] <= t else high for c, t, low, high in stumps) for row in rows]
    assert np.allclose(TreeScorer.of_stumps(4, stumps).scores(rows), wanted, atol=1e-12)


def test_scorers_are_kept_as_arrays_and_come_back_to_the_bit():
    rng = np.random.default_rng(1)
    layers = [(rng.normal(size=(3, 4)), rng.normal(size=3)), (rng.normal(size=(1, 3)), np.ones(1))]
    network = NetworkScorer(rng.normal(size=4), np.ones(4), layers)
    rows = rng.normal(size=(9, 4))
    for scorer in (_forest(1), network, SummedScorer((_forest(2), network))):
        state = scorer_state(scorer)
        assert all(isinstance(array, np.ndarray) for array in state.values())
        assert (scorer_from_state(state).scores(rows) == scorer.scores(rows)).all()


def test_a_scorer_shares_no_memory_with_the_arrays_that_it_was_made_from():
    rng = np.random.default_rng(2)
    layers = [(rng.normal(size=(1, 4)), np.ones(1))]
    mean, scale = rng.normal(size=4), np.ones(4)
    rows = rng.normal(size=(9, 4))
    state = scorer_state(_forest(3))
    trees = [state[f"0.{name}"] for name in ("thresholds", "values")]
    made = [
        (NetworkScorer(mean, scale, layers), [mean, scale, *layers[0]]),
        (scorer_from_state(state), trees),
    ]
    for scorer, arrays in made:
        before, kept = scorer.scores(rows), scorer_state(scorer)
        for array in arrays:
            array[...] = 7.0
        assert (scorer.scores(rows) == before).all()
        assert all((scorer_state(scorer)[name] == array).all() for name, array in kept.items())


def test_a_network_of_whole_numbers_is_kept_as_one_of_floats():
    network = NetworkScorer(np.zeros(2, int), np.ones(2, int), [(np.array([[3, 1]]), np.ones(1))])
    back = scorer_from_state(scorer_state(network))
    assert back.scores(np.array([[1.0, 2.0]])).tolist() == [6.0]


def test_damaged_states_are_refused():
    state = scorer_state(_forest(1))
    with pytest.raises(StateError, match="no scorer"):
        scorer_from_state({})
    for name, value in (
        ("0.values", np.full_like(state["0.values"], np.nan)),
        ("0.kept", np.full_like(state["0.kept"], -1.0)),
        ("0.places", np.full_like(state["0.places"], 99.0)),
        ("0.thresholds", np.zeros(3)),
    ):
        with pytest.raises(StateError):
            scorer_from_state(state | {name: value})
    without = {name: array for name, array in state.items() if name != "0.values"}
    with pytest.raises(StateError, match="values"):
        scorer_from_state(without)


def test_rows_of_another_width_are_refused():
    for scorer in (_forest(1), NetworkScorer.linear(np.ones(4))):
        with pytest.raises(InputError, match="4"):
            scorer.scores(np.ones((2, 5)))
