"""Splits and slices: nothing on both sides, every query in its turn."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.rag_tuner.slices import beforehand, enough, rotating, stratified, temporal


@pytest.mark.slow
@given(
    st.lists(st.sampled_from("abc"), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_every_query_is_on_one_side_and_every_category_on_both(kinds, share, seed):
    split = stratified(kinds, np.random.default_rng(seed), share)
    assert sorted([*split.tuning, *split.held_out]) == list(range(len(kinds)))
    assert len(split.tuning)
    assert len(split.held_out)
    for kind in set(kinds):
        held = sum(kinds[place] == kind for place in split.held_out)
        assert abs(held - share * kinds.count(kind)) <= 2


def test_each_query_is_held_out_as_often_as_any_other():
    kinds = ["a"] * 10 + ["b"] * 3
    held = np.zeros(13)
    for seed in range(2_000):
        held[stratified(kinds, np.random.default_rng(seed), 0.4).held_out] += 1
    assert np.abs(held / 2_000 - 0.4).max() < 4 * np.sqrt(0.24 / 2_000)


@given(st.lists(st.sampled_from(["", "x", "y", "z"]), min_size=4, max_size=30), st.integers(0, 99))
def test_a_conversation_stands_on_one_side(groups, seed):
    groups = [*groups, "", ""]  # two units at the least
    by_time = np.random.default_rng(seed).normal(size=len(groups))
    for split in (
        stratified(["a"] * len(groups), np.random.default_rng(seed), groups=groups),
        temporal(by_time, 0.4, groups=groups),
    ):
        assert sorted([*split.tuning, *split.held_out]) == list(range(len(groups)))
        assert len(split.tuning)
        assert len(split.held_out)
        sides = ({groups[place] for place in side} for side in (split.tuning, split.held_out))
        assert set.intersection(*sides) <= {""}


@pytest.mark.parametrize(
    ("labels", "options", "says"),
    [
        (["a"] * 5, {"groups": ["x"] * 5}, "1 queries or conversations"),
        *((["a", "b"], {"share": share}, "share") for share in (0.0, 1.0, float("nan"))),
    ],
)
def test_stratified_with_one_group_or_a_bad_share_is_refused(labels, options, says):
    with pytest.raises(InputError, match=says):
        stratified(labels, np.random.default_rng(0), **options)


@pytest.mark.parametrize(
    ("times", "options", "says"),
    [
        ([1.0, 2.0], {"groups": ["x", "x"]}, "1 queries or conversations"),
        ([1.0], {}, "1 queries"),
        ([1.0, float("nan"), 2.0], {}, "has no time"),  # neither early nor late
    ],
)
def test_temporal_with_one_group_or_no_time_is_refused(times, options, says):
    with pytest.raises(InputError, match=says):
        temporal(times, **options)


def test_the_latest_are_held_out():
    split = temporal([5.0, 1.0, 4.0, 2.0, 3.0], 0.4)
    assert split.held_out.tolist() == [0, 2]
    assert split.tuning.tolist() == [1, 3, 4]


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 99))
def test_slices_go_round(count, size, seed):
    places = np.arange(100, 100 + count)
    taken = list(islice(rotating(places, size, np.random.default_rng(seed)), 7))
    assert all(len(set(one)) == len(one) == min(size, count) for one in taken)
    seen = np.unique(np.concatenate(taken), return_counts=True)[1]
    assert set(np.concatenate(taken)) <= set(places)
    assert seen.max() - (seen.min() if len(seen) == count else 0) <= 2


def test_too_few_to_show_it_is_said_beforehand():
    assert enough(547, 0.25, 0.03)[0]
    within, least = enough(500, 0.25, 0.03)
    assert not within
    assert 0.030 < least < 0.032


def test_turns_that_fare_alike_show_less_than_as_many_questions():
    apart = np.random.default_rng(0).normal(0, 0.2, 50)
    alone = beforehand([apart], 50, 0.05)
    turns, talks = np.repeat(apart, 4), np.repeat(np.arange(50), 4).astype(str).tolist()
    assert beforehand([turns], 200, 0.05, groups=[talks]).least == pytest.approx(
        alone.least, rel=0.02
    )
    assert beforehand([turns], 200, 0.05).least < 0.6 * alone.least


def test_no_slice():
    with pytest.raises(InputError, match="0 queries"):
        next(rotating(np.arange(0), 3, np.random.default_rng(0)))


def test_what_so_many_queries_can_show_is_said_beforehand():
    halves = np.array([0.25, -0.25] * 50)
    few = beforehand([halves, halves, np.zeros(100)], 500, 0.03)
    assert (few.queries, few.is_enough) == (500, False)
    assert few.least == pytest.approx(0.0315, abs=2e-4)
    assert few.needed > 547
    assert f"it would take {few.needed:,}" in str(few)
    assert beforehand([halves], few.needed, 0.03).is_enough
    assert beforehand([np.zeros(5)], 2, 0.01).is_enough
    with pytest.raises(InputError, match="effect 0"):
        beforehand([halves], 500, 0.0)
