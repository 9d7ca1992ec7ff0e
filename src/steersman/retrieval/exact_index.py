"""Vector index: the interface, and exact search in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg import eigh

from steersman.errors import DataError, InputError
from steersman.retrieval.ranking import best

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEADS_FROM = 4_000
"""With fewer vectors, all are compared in full: filtering would save little."""
_ROUNDING = 1e-3
"""Above the float32 rounding error of these sums: rounding must not exclude a vector."""


class VectorIndex(Protocol):
    """Interface of an index that finds the vectors nearest to a query vector."""

    @property
    def size(self) -> int:
        """Return the dimension of the vectors, ≥ 1."""

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
    """Exact nearest-neighbour search by brute force.

    With 4,000 or more vectors, a query is first compared in half of the principal components. By
    the Cauchy-Schwarz inequality, the other half adds at most the product of both remaining norms.
    Vectors that cannot reach the k-th best score are excluded; the rest is compared in full. If
    more than one in eight remain, all vectors are compared.

    Above about 100,000 passages, use an approximate index.

    Args:
        vectors: (n, size) rows of norm 1, n ≥ 0; stored as float32 and never changed.

    Raises:
        InputError: another shape, or rows that are not finite or not of norm 1.

    >>> index = ExactIndex(np.eye(3, dtype=np.float32))
    >>> index.search(np.array([0.6, 0.8, 0.0], np.float32), 2)[0].tolist()
    [1, 0]
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        rows = np.ascontiguousarray(vectors, np.float32)
        if rows.ndim != 2 or not rows.shape[1]:
            raise InputError(f"vectors have shape {rows.shape}; expected (n, size) with size ≥ 1")
        # Half-precision caches change norms by up to 2e-4. This form also refuses NaN.
        wrong = np.flatnonzero(~(np.abs(np.linalg.norm(rows, axis=1) - 1.0) <= 1e-3))
        if len(wrong):
            length = np.linalg.norm(rows[wrong[0]])
            raise InputError(
                f"vector {wrong[0]} has norm {length}; every vector must be finite and of norm "
                "1: divide it by its norm"
            )
        self._rows = rows
        self._heads = (
            _LeadingComponents(rows) if len(rows) >= _HEADS_FROM and rows.shape[1] >= 16 else None
        )
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


class _LeadingComponents:
    """Leading principal components of the vectors: half of their dimensions."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        size = rows.shape[1]
        # Any directions give exact results; those of a sample are nearly as selective.
        sample = rows[:: max(1, len(rows) // 20_000)].astype(np.float64)
        widest = (size - size // 2, size - 1)
        _, directions = eigh(sample.T @ sample, subset_by_index=widest)
        self._turn = np.ascontiguousarray(directions.T, np.float32)
        self._heads = rows @ self._turn.T
        self._left = _left(rows, self._heads)

    def near(
        self, rows: NDArray[np.float32], query: NDArray[np.float32], k: int
    ) -> NDArray[np.intp] | None:
        """Return the positions of possible `k` nearest vectors; None if there are too many."""
        if k > len(rows) // 8:
            return None
        head = self._turn @ query
        scores = self._heads @ head
        likely = np.argpartition(scores, -k)[-k:]
        # A lower bound of the k-th best score.
        bound = (rows[likely] @ query).min()
        most = scores + self._left * _left(query[None], head[None])
        found = np.flatnonzero(most >= bound - _ROUNDING)
        return found if len(found) <= len(rows) // 8 else None


class MissingVectors:
    """Placeholder index for a collection with missing vectors; every search raises.

    Args:
        size: dimension of the vectors.
        count: number of vectors, missing ones included.
        why: error message.

    >>> MissingVectors(2, 9, "no vector of p3").search(np.ones(2, np.float32), 1)
    Traceback (most recent call last):
    steersman.errors.DataError: no vector of p3
    """

    def __init__(self, size: int, count: int, why: str) -> None:
        self.size, self.why, self._count = size, why, count

    def __len__(self) -> int:
        """Return the number of vectors, missing ones included."""
        return self._count

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Raise the error.

        Raises:
            DataError: always.
        """
        del vector, k
        raise DataError(self.why)


def _left(rows: NDArray[np.float32], heads: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the norms of the rows without their leading components."""
    squares = np.square(rows).sum(axis=1) - np.square(heads).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)), np.float32)
