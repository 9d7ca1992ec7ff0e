"""The best few of many scores, in one order always: higher scores first, equal ones by position."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Ranked(NamedTuple):
    """Positions of passages and what they were ranked by, best first.

    Args:
        positions: (n,) positions in the collection, none twice.
        scores: (n,) not increasing; what is equal is ordered by position.

    >>> Ranked(np.array([4, 0]), np.array([0.9, 0.2], np.float32)).positions.tolist()
    [4, 0]
    """

    positions: NDArray[np.intp]
    scores: NDArray[np.float32]

    def first(self, k: int) -> Ranked:
        """Return the first `k` of them.

        Args:
            k: ≥ 0.
        """
        return Ranked(self.positions[:k], self.scores[:k])


def best(scores: NDArray[np.float32], k: int) -> Ranked:
    """Return the `k` highest of some scores.

    Args:
        k: how many, ≥ 1.

    Raises:
        InputError: `k` is below 1.

    >>> best(np.array([0.1, 0.7, 0.7, 0.3], np.float32), 3).positions.tolist()
    [1, 2, 3]
    """
    if k < 1:
        raise InputError(f"k is {k!r}; the minimum is 1")
    chosen = np.arange(len(scores))
    if k < len(scores):
        # All that reach the k-th highest: which of equal ones argpartition picks is chance.
        chosen = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order = np.argsort(-scores[chosen], kind="stable")[:k]
    return Ranked(chosen[order], scores[chosen[order]])


def ordered(positions: NDArray[np.intp], scores: NDArray[np.float32]) -> Ranked:
    """Return some positions in the order of their scores.

    Args:
        positions: (n,) positions in any order, none twice.

    >>> ordered(np.array([7, 2, 5]), np.array([0.5, 0.5, 0.9], np.float32)).positions.tolist()
    [5, 2, 7]
    """
    order = np.lexsort((positions, -scores))
    return Ranked(positions[order], scores[order])
