"""The nearest vectors of a collection: the interface, and the exact search in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import eigh

from steersman.errors import DataError, InputError
from steersman.retrieval.ranking import best

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADS_FROM = 4_000
"""Fewer vectors are compared in full at once: there is little to save."""
_ROUNDING = 1e-3
"""More than float32 loses in these sums: nothing may be out by rounding alone."""


class VectorIndex(Protocol):
    """Whatever finds the vectors of a collection that are nearest to one given."""

    @property
    def size(self) -> int:
        """Return how many numbers a vector has, ≥ 1."""

    def __len__(self) -> int:
        """Return the number of vectors."""

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the `k` nearest vectors.

        Args:
            vector: (size,) query vector of norm 1.
            k: number of results, ≥ 1.
        """


class ExactIndex:
    """Every vector is compared, so nothing is missed.

    Of many vectors the first part is compared with all queries: the half of the directions in
    which they differ most. By Cauchy and Schwarz the rest can add no more than the product of the
    lengths that are left, so a vector that falls short of the k-th by more than that is out. Few
    remain, and these are compared in full. Where more than one in eight remain, all are.

    For collections of more than some 100,000 passages take an index that need not look at all.

    Args:
        vectors: (n, size) rows of length one, n ≥ 0; kept as float32 and never changed.

    Raises:
        InputError: another shape, or rows that are not finite or not of length one.

    >>> index = ExactIndex(np.eye(3, dtype=np.float32))
    >>> index.search(np.array([0.6, 0.8, 0.0], np.float32), 2)[0].tolist()
    [1, 0]
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        rows = np.ascontiguousarray(vectors, np.float32)
        if rows.ndim != 2 or not rows.shape[1]:
            raise InputError(f"vectors have shape {rows.shape}; expected (n, size) with size ≥ 1")
        # Half-precision caches round lengths by 2e-4. Written so that NaN is refused as well.
        wrong = np.flatnonzero(~(np.abs(np.linalg.norm(rows, axis=1) - 1.0) <= 1e-3))
        if len(wrong):
            length = np.linalg.norm(rows[wrong[0]])
            raise InputError(
                f"vector {wrong[0]} has norm {length}; every vector must be finite and of norm "
                "1: divide it by its norm"
            )
        self._rows = rows
        self._heads = _Heads(rows) if len(rows) >= _HEADS_FROM and rows.shape[1] >= 16 else None
        self.size = rows.shape[1]

    def __len__(self) -> int:
        return len(self._rows)

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the `k` nearest vectors.

        Args:
            vector: (size,) query vector of norm 1.
            k: number of results, ≥ 1.

        Raises:
            InputError: a vector of another dimension, or `k` is below 1.
        """
        query = np.asarray(vector, np.float32)
        if query.shape != (self.size,):
            raise InputError(
                f"the query vector has shape {query.shape}, but the collection has dimension "
                f"{self.size}: embed both with the same embedder"
            )
        near = None if self._heads is None else self._heads.near(self._rows, query, k)
        if near is None:
            found = best(self._rows @ query, k)
            return found.positions, found.scores
        found = best(self._rows[near] @ query, k)
        return near[found.positions], found.scores


class _Heads:
    """The first half of every vector, turned so that it holds most of it."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        size = rows.shape[1]
        # Any directions are right; those of a sample are nearly as telling as those of all.
        sample = rows[:: max(1, len(rows) // 20_000)].astype(np.float64)
        widest = (size - size // 2, size - 1)
        _, directions = eigh(sample.T @ sample, subset_by_index=widest)
        self._turn = np.ascontiguousarray(directions.T, np.float32)
        self._heads = rows @ self._turn.T
        self._left = _left(rows, self._heads)

    def near(
        self, rows: NDArray[np.float32], query: NDArray[np.float32], k: int
    ) -> NDArray[np.intp] | None:
        """Return the positions that may be among the nearest `k`; None where these are too many."""
        if k > len(rows) // 8:
            return None
        head = self._turn @ query
        scores = self._heads @ head
        likely = np.argpartition(scores, -k)[-k:]
        # What k of them reach, the k-th nearest reaches as well.
        bound = (rows[likely] @ query).min()
        most = scores + self._left * _left(query[None], head[None])
        found = np.flatnonzero(most >= bound - _ROUNDING)
        return found if len(found) <= len(rows) // 8 else None


class MissingVectors:
    """Stands for the vectors of a collection that are not all there: searches go without them.

    Args:
        size: how many numbers a vector would have.
        count: how many there would be.
        why: reason for the caller.

    >>> MissingVectors(2, 9, "no vector of p3").search(np.ones(2, np.float32), 1)
    Traceback (most recent call last):
    steersman.errors.DataError: no vector of p3
    """

    def __init__(self, size: int, count: int, why: str) -> None:
        self.size, self.why, self._count = size, why, count

    def __len__(self) -> int:
        """Return how many vectors there would be."""
        return self._count

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Refuse.

        Raises:
            DataError: always.
        """
        del vector, k
        raise DataError(self.why)


def _left(rows: NDArray[np.float32], heads: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the lengths of what the heads leave of their rows."""
    squares = np.square(rows).sum(axis=1) - np.square(heads).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)), np.float32)
