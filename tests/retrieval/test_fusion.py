"""Two rankings become one as the formulas say, whatever the engines' scales."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.retrieval.ranking import Ranking, convex, ordered, rrf


def ranked(scores):
    return ordered(np.array(list(scores), np.intp), np.array(list(scores.values()), np.float32))


def by_hand(words, meaning, weight):
    """The convex combination, written from the paper."""
    total = {}
    for scores, share in ((words, 1 - weight), (meaning, weight)):
        low, high = min(scores.values(), default=0), max(scores.values(), default=0)
        for one, score in scores.items():
            scale = (score - low) / (high - low) if high > low else 1.0
            total[one] = total.get(one, 0.0) + share * scale
    return total


CANDIDATES = st.dictionaries(st.integers(0, 30), st.integers(-50, 50).map(float), max_size=20)


@pytest.mark.slow
@given(CANDIDATES, CANDIDATES, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_convex_is_the_formula(words, meaning, weight):
    found = convex(ranked(words), ranked(meaning), weight)
    expected = by_hand(words, meaning, weight)
    assert sorted(found.positions.tolist()) == sorted(expected)
    scores = [expected[position] for position in found.positions.tolist()]
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)
    assert (np.diff(found.scores) <= 0).all()


@pytest.mark.slow
@given(CANDIDATES, CANDIDATES, st.sampled_from([0.1, 3.0]), st.integers(-9, 9))
def test_convex_does_not_know_an_engines_scale(words, meaning, factor, shift):
    moved = {one: factor * score + shift for one, score in words.items()}
    before, after = (convex(ranked(one), ranked(meaning)) for one in (words, moved))
    assert dict(zip(before.positions.tolist(), before.scores.round(4).tolist(), strict=True)) == (
        pytest.approx(
            dict(zip(after.positions.tolist(), after.scores.tolist(), strict=True)), abs=2e-4
        )
    )


@pytest.mark.slow
@given(CANDIDATES, CANDIDATES)
def test_rrf_is_the_formula(words, meaning):
    engines = [ranked(words).positions.tolist(), ranked(meaning).positions.tolist()]
    expected = {
        one: sum(0.5 / (60 + engine.index(one) + 1) for engine in engines if one in engine)
        for engine in engines
        for one in engine
    }
    found = rrf(ranked(words), ranked(meaning))
    scores = [expected[position] for position in found.positions.tolist()]
    np.testing.assert_allclose(found.scores, scores, atol=1e-7)
    assert len(found.positions) == len(expected)


@pytest.mark.parametrize("fuse", [convex, rrf])
@pytest.mark.parametrize(("weight", "engine"), [(0.0, 0), (1.0, 1)])
def test_an_extreme_weight_is_one_engine_alone(fuse, weight, engine):
    engines = ranked({1: 9, 2: 5, 3: 1}), ranked({7: 0.9, 2: 0.5, 1: 0.1})
    found = fuse(*engines, weight)
    wanted = engines[engine].positions[:2].tolist()
    assert found.positions[:2].tolist() == wanted


@pytest.mark.parametrize("fuse", [convex, rrf])
@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_out_of_range_is_refused(fuse, weight):
    with pytest.raises(InputError, match="fusion weight"):
        fuse(ranked({1: 1}), ranked({2: 1}), weight)


def test_nothing_and_nothing_is_nothing():
    empty = Ranking(np.zeros(0, np.intp), np.zeros(0, np.float32))
    assert not len(convex(empty, empty).positions)
