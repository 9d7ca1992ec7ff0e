"""The best few of many scores come in one order always."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steersman.errors import InputError
from steersman.retrieval.ranking import best, ordered

SCORES = arrays(np.float32, st.integers(1, 60), elements=st.sampled_from([-1, 0, 0.5, 0.75, 2]))


@given(SCORES, st.integers(1, 70))
def test_the_best_are_those_of_sorting_everything(scores, k):
    found = best(scores, k)
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert found.positions.tolist() == expected
    assert found.scores.tolist() == [scores[i] for i in expected]


@pytest.mark.slow
@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_candidates_came(scores, random):
    positions = list(range(len(scores)))
    random.shuffle(positions)
    found = ordered(np.array(positions), scores[positions])
    assert found.positions.tolist() == sorted(positions, key=lambda i: (-scores[i], i))


def test_no_place_is_refused():
    with pytest.raises(InputError, match="k is 0; the minimum is 1"):
        best(np.zeros(3, np.float32), 0)
