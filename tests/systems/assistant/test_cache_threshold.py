"""The threshold is worth most on the pairs it was chosen on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.assistant.cache import choose_threshold

pairs = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40)


def worth(similarity, same, threshold, cost) -> float:
    hit = similarity >= threshold
    return float((hit & same).sum() - cost * (hit & ~same).sum())


@pytest.mark.slow
@given(pairs=pairs, cost=st.floats(0.0, 20.0))
def test_no_other_threshold_is_worth_more(pairs, cost) -> None:
    similarity = np.array([s / 20 for s, _ in pairs])
    same = np.array([label for _, label in pairs])
    chosen = worth(similarity, same, choose_threshold(similarity, same, wrong_cost=cost), cost)
    best = max(worth(similarity, same, t, cost) for t in [*similarity.tolist(), np.inf])
    assert chosen == pytest.approx(best)


def test_when_nothing_pays_nothing_hits() -> None:
    similarity = np.array([1.0, 0.9])
    threshold = choose_threshold(similarity, np.array([False, False]), wrong_cost=1.0)
    assert not np.any(similarity >= threshold)


def test_a_dearer_mistake_never_lowers_the_threshold() -> None:
    rng = np.random.default_rng(0)
    similarity = rng.uniform(size=400)
    same = rng.uniform(size=400) < similarity
    chosen = [choose_threshold(similarity, same, wrong_cost=c) for c in (0.0, 0.5, 1, 3, 10)]
    assert chosen == sorted(chosen)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="two equal rows"):
        choose_threshold(np.array([]), np.array([], dtype=bool), wrong_cost=1.0)
    with pytest.raises(InputError, match="two equal rows"):
        choose_threshold(np.array([0.5]), np.array([True, False]), wrong_cost=1.0)
    with pytest.raises(InputError, match="finite similarities"):
        choose_threshold(np.array([np.nan]), np.array([True]), wrong_cost=1.0)
    with pytest.raises(InputError, match="wrong_cost is -1"):
        choose_threshold(np.array([0.5]), np.array([True]), wrong_cost=-1.0)
