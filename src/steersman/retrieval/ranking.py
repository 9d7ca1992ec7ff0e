"""Rankings of passages: the best of many scores, and hybrid fusion of two rankings.

Higher scores first, equal scores by position. Fusion is by scaled scores (convex) or by reciprocal
rank (rrf).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RRF_CONSTANT = 60
"""Constant of the paper, the usual default."""


class Ranking(NamedTuple):
    """Positions of passages with their scores, best first.

    Args:
        positions: (n,) positions in the collection, none twice.
        scores: (n,) descending; equal scores are ordered by position.

    >>> Ranking(np.array([4, 0]), np.array([0.9, 0.2], np.float32)).positions.tolist()
    [4, 0]
    """

    positions: NDArray[np.intp]
    scores: NDArray[np.float32]

    def first(self, k: int) -> Ranking:
        """Return the first `k`, ≥ 0."""
        return Ranking(self.positions[:k], self.scores[:k])


def best(scores: NDArray[np.float32], k: int) -> Ranking:
    """Return the `k` highest scores.

    Args:
        k: number of scores, ≥ 1.

    Raises:
        InputError: `k` is below 1.

    >>> best(np.array([0.1, 0.7, 0.7, 0.3], np.float32), 3).positions.tolist()
    [1, 2, 3]
    """
    if k < 1:
        raise InputError(f"k is {k!r}; the minimum is 1")
    chosen = np.arange(len(scores))
    if k < len(scores):
        # All scores equal to the k-th too: argpartition picks among equal ones arbitrarily.
        chosen = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order = np.argsort(-scores[chosen], kind="stable")[:k]
    return Ranking(chosen[order], scores[chosen[order]])


def ordered(positions: NDArray[np.intp], scores: NDArray[np.float32]) -> Ranking:
    """Return positions in the order of their scores.

    Args:
        positions: (n,) positions in any order, none twice.

    >>> ordered(np.array([7, 2, 5]), np.array([0.5, 0.5, 0.9], np.float32)).positions.tolist()
    [5, 2, 7]
    """
    order = np.lexsort((positions, -scores))
    return Ranking(positions[order], scores[order])


def convex(words: Ranking, meaning: Ranking, weight: float = 0.5) -> Ranking:
    """Rank by ``(1 - weight) * scaled BM25 score + weight * scaled cosine``.

    Min-max scaling gives each engine's best candidate 1 and its worst 0; a passage found by one
    engine counts as the other's worst. So a weight has the same meaning for all queries and
    collections. The scale depends on the number of candidates of each engine.

    Args:
        words: BM25 candidates.
        weight: weight of the dense engine, in [0, 1]; default 0.5.

    Returns:
        All candidates, with scores in [0, 1].

    Raises:
        InputError: `weight` is outside [0, 1].

    >>> words = Ranking(np.array([3, 1]), np.array([9.0, 4.0], np.float32))
    >>> meaning = Ranking(np.array([1, 2, 3]), np.array([4.0, 3.0, 2.0], np.float32))
    >>> convex(words, meaning)
    Ranking(positions=array([1, 3, 2]), scores=array([0.5 , 0.5 , 0.25], dtype=float32))

    Source: Bruch, Gai & Ingber, An Analysis of Fusion Functions for Hybrid Retrieval (2023),
    section 4: the convex combination with min-max scaling.
    """
    _check_weight(weight)
    parts = [(words, scaled(words.scores)), (meaning, scaled(meaning.scores))]
    return _summed([(part.positions, score) for part, score in parts], weight)


def rrf(words: Ranking, meaning: Ranking, weight: float = 0.5) -> Ranking:
    """Rank by reciprocal rank fusion: ``(1 - weight)/(60 + rank) + weight/(60 + rank)``.

    Args:
        words: BM25 candidates.
        weight: weight of the dense engine, in [0, 1]; 0.5 gives the order of the paper.

    Returns:
        All candidates; scores are at most 1/61.

    Raises:
        InputError: `weight` is outside [0, 1].

    >>> words = Ranking(np.array([3, 1]), np.array([9.0, 4.0], np.float32))
    >>> rrf(words, Ranking(np.array([1]), np.array([0.8], np.float32))).positions.tolist()
    [1, 3]

    Source: Cormack, Clarke & Büttcher, Reciprocal Rank Fusion (2009), with weights added.
    """
    _check_weight(weight)
    parts = [(part.positions, _by_place(len(part.positions))) for part in (words, meaning)]
    return _summed(parts, weight)


def scaled(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return scores scaled to [0, 1] by min-max; all 1 if all are equal.

    >>> scaled(np.array([3.0, 2.0, 1.0], np.float32)).tolist()
    [1.0, 0.5, 0.0]
    """
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    if high <= low:
        return np.ones_like(scores)
    return np.asarray((scores - low) / (high - low), np.float32)


def _by_place(count: int) -> NDArray[np.float32]:
    return np.asarray(1.0 / (_RRF_CONSTANT + np.arange(1, count + 1)), np.float32)


def _summed(parts: list[tuple[NDArray[np.intp], NDArray[np.float32]]], weight: float) -> Ranking:
    (words, by_words), (meaning, by_meaning) = parts
    positions, where = np.unique(np.concatenate([words, meaning]), return_inverse=True)
    shares = np.concatenate([np.float32(1 - weight) * by_words, np.float32(weight) * by_meaning])
    return ordered(positions, np.bincount(where, shares, len(positions)).astype(np.float32))


def _check_weight(weight: float) -> None:
    # This form also refuses NaN.
    if not 0.0 <= weight <= 1.0:
        raise InputError(
            f"the fusion weight is {weight!r}; allowed: 0 (BM25 only) to 1 (dense only)"
        )
