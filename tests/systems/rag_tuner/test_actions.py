"""Configurations as actions: one to one where they should be, and masses that sum to one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from steersman_systems.rag_tuner.actions import STEPS_K, STEPS_WEIGHT, Choices, Moves
from steersman_systems.rag_tuner.configuration import Configuration, Space
from tests.systems.rag_tuner.worlds import SPACE

SMALL = Space(
    ("bm25", "hybrid"), (3, 4, 5), (False, True), (0.0, 0.5, 1.0), (False,), ("plain", "brief")
)


def masses_of(parts, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(part.size)) for part in parts]


def test_what_has_one_value_is_no_part():
    assert [part.name for part in Choices(SPACE).parts] == [
        "variant", "k", "rerank", "fusion_weight", "expansion",
    ]  # fmt: skip
    assert "expansion" not in [part.name for part in Choices(SMALL).parts]
    assert "expansion" not in [part.name for part in Moves(SMALL).parts]


def test_counts_and_weights_alone_are_ordered():
    for parts in (Choices(SPACE).parts, Moves(SPACE).parts):
        assert [part.name for part in parts if part.ordered] == ["k", "fusion_weight"]


@given(st.integers(0, len(SPACE.all) - 1))
def test_values_stand_for_their_configuration(place):
    choices, one = Choices(SPACE), SPACE.all[place]
    assert choices.configuration(choices.values(one)) == one


def test_the_masses_of_all_configurations_sum_to_one():
    choices = Choices(SMALL)
    masses = masses_of(choices.parts)
    assert sum(choices.propensity(one, masses) for one in SMALL.all) == pytest.approx(1)


@pytest.mark.parametrize("running", [
    Configuration("bm25", k=3), Configuration("hybrid", k=5, fusion_weight=1.0, prompt="brief"),
])  # fmt: skip
def test_the_masses_of_all_moves_sum_to_one(running):
    moves = Moves(SMALL)
    masses = masses_of(moves.parts)
    assert sum(moves.propensity(running, to, masses) for to in SMALL.all) == pytest.approx(1)


def test_the_mass_of_a_move_is_that_of_all_actions_that_lead_there():
    moves, running = Moves(SMALL), Configuration("hybrid", k=4, fusion_weight=0.5)
    masses = masses_of(moves.parts)
    summed = dict.fromkeys(SMALL.all, 0.0)
    for values in itertools.product(*(range(part.size) for part in moves.parts)):
        mass = np.prod([of[value] for of, value in zip(masses, values, strict=True)])
        summed[moves.apply(running, values)] += mass
    for to, mass in summed.items():
        assert moves.propensity(running, to, masses) == pytest.approx(mass)


@given(st.integers(0, len(SPACE.all) - 1), st.integers(0, 2**32))
def test_a_move_never_leaves_the_space(place, seed):
    moves = Moves(SPACE)
    values = [np.random.default_rng(seed).integers(part.size) for part in moves.parts]
    SPACE.check(moves.apply(SPACE.all[place], values))


def test_a_move_to_fused_scores_takes_the_one_weight_that_there_is():
    """What is not fused has .5 for a weight, which this space has not."""
    space = Space(("bm25", "hybrid"), (3, 4), (False,), (0.3,), (False,), ("plain",))
    moves, running = Moves(space), Configuration("bm25", k=3)
    fused = moves.apply(running, (2, STEPS_K.index(0)))
    assert fused == Configuration("hybrid", k=3, fusion_weight=0.3)
    space.check(fused)
    masses = masses_of(moves.parts)
    assert sum(moves.propensity(running, to, masses) for to in space.all) == pytest.approx(1)


def test_a_move_ends_at_the_bounds_and_standing_still_is_one():
    moves, running = Moves(SPACE), Configuration("hybrid", k=30, fusion_weight=0.95)
    still = [0, STEPS_K.index(0), 0, STEPS_WEIGHT.index(0), 0]
    assert moves.apply(running, still) == running
    most = moves.apply(running, [0, len(STEPS_K) - 1, 1, len(STEPS_WEIGHT) - 1, 1])
    assert most == Configuration("hybrid", 32, True, 1.0, True)
    assert moves.apply(running, [1, *still[1:]]) == Configuration("bm25", 30)
