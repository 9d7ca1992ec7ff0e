"""The measures are what a second implementation, written from their definitions, computes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.rag_tuner.ranking_metrics import (
    MeasureValues,
    all_gold_at,
    ndcg_at,
    recall_at,
    reciprocal_rank,
)

RANKED = st.permutations(range(12))
GAINS = st.dictionaries(st.integers(0, 14), st.integers(0, 4), min_size=1).filter(
    lambda gains: any(gains.values())
)


def by_arrays(ranked, gains, k):
    """All four, from vectors of gains by place."""
    got = np.array([gains.get(one, 0) for one in ranked[:k]], float)
    ideal = np.sort(np.array(list(gains.values()), float))[::-1][:k]
    discount = 1 / np.log2(np.arange(2, k + 2))
    relevant = sum(gain > 0 for gain in gains.values())
    hits = np.flatnonzero(got)
    return {
        "recall": len(hits) / relevant,
        "all": float(len(hits) == relevant),
        "mrr": 1 / (hits[0] + 1) if len(hits) else 0.0,
        "ndcg": got @ discount[: len(got)] / (ideal @ discount[: len(ideal)]),
    }


@given(RANKED, GAINS, st.integers(1, 15))
def test_measures_equal_the_second_implementation(ranked, gains, k):
    expected = by_arrays(ranked, gains, k)
    assert recall_at(ranked, gains, k) == pytest.approx(expected["recall"], abs=1e-12)
    assert all_gold_at(ranked, gains, k) == expected["all"]
    assert reciprocal_rank(ranked, gains, k) == pytest.approx(expected["mrr"], abs=1e-12)
    assert ndcg_at(ranked, gains, k) == pytest.approx(expected["ndcg"], abs=1e-12)


def test_ndcg_takes_judgements_as_gains():
    # trec_eval's ndcg_cut: 1 of the worse document first, 4 of the better one second.
    assert ndcg_at(["b", "a"], {"a": 4, "b": 1}, 10) == pytest.approx(
        (1 + 4 / math.log2(3)) / (4 + 1 / math.log2(3)), abs=1e-12
    )


def test_what_cannot_be_found_counts_as_missed():
    gains = {"a": 1, "gone": 1}
    assert recall_at(["a"], gains, 10) == 0.5
    assert all_gold_at(["a"], gains, 10) == 0.0
    assert ndcg_at(["a"], gains, 10) < 1.0


@pytest.mark.parametrize("measure", [recall_at, all_gold_at, ndcg_at, reciprocal_rank])
@pytest.mark.parametrize(
    ("ranked", "gains", "k", "says"),
    [
        (["a"], {"a": 1}, 0, "k is 0"),
        (["a", "a"], {"a": 1}, 5, "duplicate id"),
        (["a"], {}, 5, "no document is relevant"),
        (["a"], {"a": 0}, 5, "no document is relevant"),
    ],
)
def test_what_means_nothing_is_refused(measure, ranked, gains, k, says):
    with pytest.raises(InputError, match=says):
        measure(ranked, gains, k)


@pytest.mark.slow
@given(RANKED, GAINS)
def test_measures_never_fall_with_more_places(ranked, gains):
    for measure in (recall_at, all_gold_at, reciprocal_rank):
        values = [measure(ranked, gains, k) for k in range(1, 13)]
        assert values == sorted(values)


def test_categories_are_averaged_apart():
    measured = MeasureValues((1.0, 0.0, 0.5), ("b", "", "b"))
    assert measured.mean == 0.5
    assert measured.by_category() == {"": (0.0, 1), "b": (0.75, 2)}


@pytest.mark.parametrize(("values", "categories"), [((), ()), ((1.0,), ())])
def test_a_mean_of_nothing_is_refused(values, categories):
    with pytest.raises(InputError, match="at least 1"):
        MeasureValues(values, categories)
