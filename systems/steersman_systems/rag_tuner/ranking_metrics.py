"""Ranking measures: recall, nDCG, reciprocal rank, and complete recall.

Every function takes ranked ids, best first, and the gains of judged ids; other ids have no gain. A
question without relevant ids is refused instead of averaged in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence


def recall_at(ranked: Sequence[Hashable], gains: Mapping[Any, float], k: int) -> float:
    """Return recall@k: the share of relevant ids among the first `k`.

    Args:
        gains: gain by id; ids with a gain above 0 are relevant.
        k: number of ranks that count, ≥ 1.

    Returns:
        In [0, 1].

    Raises:
        InputError: `k` is below 1, an id occurs twice, or no id is relevant.

    >>> recall_at(["a", "b", "c"], {"b": 1, "z": 1, "c": 0}, 3)
    0.5
    """
    relevant = _relevant(ranked, gains, k)
    return len(relevant.intersection(ranked[:k])) / len(relevant)


def all_gold_at(ranked: Sequence[Hashable], gains: Mapping[Any, float], k: int) -> float:
    """Return 1 if all relevant ids are among the first `k`, else 0.

    For multi-hop questions, which need all relevant passages.

    Args:
        gains: gain by id; ids with a gain above 0 are relevant.
        k: number of ranks that count, ≥ 1; with more relevant ids than ranks the result is 0.

    Returns:
        0 or 1.

    Raises:
        InputError: as `recall_at`.

    >>> all_gold_at(["a", "b", "c"], {"b": 1, "c": 2}, 3)
    1.0
    """
    return float(_relevant(ranked, gains, k).issubset(ranked[:k]))


def reciprocal_rank(ranked: Sequence[Hashable], gains: Mapping[Any, float], k: int = 10) -> float:
    """Return the reciprocal rank of the first relevant id; its mean is MRR@k.

    Args:
        gains: gain by id; ids with a gain above 0 are relevant.
        k: number of ranks that count, ≥ 1; default 10.

    Returns:
        In [0, 1]; 0 if no relevant id is among the first `k`.

    Raises:
        InputError: as `recall_at`.

    >>> reciprocal_rank(["a", "b", "c"], {"c": 1, "b": 1})
    0.5
    """
    relevant = _relevant(ranked, gains, k)
    places = (place for place, one in enumerate(ranked[:k], 1) if one in relevant)
    return 1.0 / next(places, np.inf)


def ndcg_at(ranked: Sequence[Hashable], gains: Mapping[Any, float], k: int) -> float:
    """Return nDCG@k: discounted gain of the first `k`, normalised by the best possible.

    The gain is linear, not 2 to its power, as in ``ndcg_cut`` of `trec_eval` and in BEIR. For
    binary judgements both are equal.

    Args:
        gains: gain by id, ≥ 0.
        k: number of ranks that count, ≥ 1.

    Returns:
        In [0, 1].

    Raises:
        InputError: as `recall_at`.

    >>> round(ndcg_at(["a", "b", "c"], {"b": 3, "c": 1, "z": 2}, 3), 4)
    0.5025

    Source: Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques (2002), with
    the discount log2(place + 1) of trec_eval in place of their log_b(place).
    """
    _relevant(ranked, gains, k)
    ideal = sorted(gains.values(), reverse=True)[:k]
    return _discounted(gains.get(one, 0.0) for one in ranked[:k]) / _discounted(ideal)


@dataclass(frozen=True, slots=True)
class MeasureValues:
    """Values of one measure over many questions.

    Args:
        values: value of each question.
        categories: category of each question.

    >>> MeasureValues((1.0, 0.0, 0.5), ("a", "b", "a")).by_category()
    {'a': (0.75, 2), 'b': (0.0, 1)}
    """

    values: tuple[float, ...]
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.categories):
            raise InputError(
                f"there are {len(self.values)} values and {len(self.categories)} categories; "
                "both must have the same length, at least 1"
            )

    @property
    def mean(self) -> float:
        """Return the mean over the questions."""
        return float(np.mean(self.values))

    def by_category(self) -> dict[str, tuple[float, int]]:
        """Return mean and number of questions by category."""
        found: dict[str, list[float]] = {}
        for value, category in zip(self.values, self.categories, strict=True):
            found.setdefault(category, []).append(value)
        return {name: (float(np.mean(found[name])), len(found[name])) for name in sorted(found)}


def _relevant(ranked: Sequence[Hashable], gains: Mapping[Any, float], k: int) -> set[Hashable]:
    if k < 1:
        raise InputError(f"k is {k!r}; the minimum is 1")
    if len(set(ranked[:k])) != len(ranked[:k]):
        raise InputError(
            "duplicate id in the ranking; rank each document once, by its best passage"
        )
    relevant = {one for one, gain in gains.items() if gain > 0}
    if not relevant:
        raise InputError(
            "no document is relevant to this question; exclude it from the measurement"
        )
    return relevant


def _discounted(gains: Iterable[float]) -> float:
    return sum(gain / log2(place + 1) for place, gain in enumerate(gains, 1))
