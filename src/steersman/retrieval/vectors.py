"""The nearest vectors of a collection: the interface, and the exact search in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.retrieval.ranked import best

if TYPE_CHECKING:
    from numpy.typing import NDArray


class VectorIndex(Protocol):
    """Whatever finds the vectors of a collection that are nearest to one given.

    No doctest: it is an interface; `ExactIndex` shows it.
    """

    @property
    def size(self) -> int:
        """Return how many numbers a vector has, ≥ 1."""

    def __len__(self) -> int:
        """Return how many vectors there are."""

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the nearest `k`.

        Args:
            vector: (size,) of length one.
            k: ≥ 1.

        Returns:
            Their positions in the collection and cosines, best first, equal ones by position; at
            most as many as there are.
        """


class ExactIndex:
    """Every vector is compared, so nothing is missed.

    A search reads all vectors once: it is as fast as memory is. For collections of more than some
    100,000 passages take an index that need not, such as `PgvectorIndex`.

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
            raise InputError(
                f"vectors have the shape {rows.shape}; allowed is (n, size) with size ≥ 1"
            )
        # Half-precision caches round lengths by 2e-4. Written so that NaN is refused as well.
        wrong = np.flatnonzero(~(np.abs(np.linalg.norm(rows, axis=1) - 1.0) <= 1e-3))
        if len(wrong):
            length = np.linalg.norm(rows[wrong[0]])
            raise InputError(
                f"vector {wrong[0]} has length {length}; every vector must be finite and of length "
                "one: divide it by its norm"
            )
        self._rows = rows
        self.size = rows.shape[1]

    def __len__(self) -> int:
        return len(self._rows)

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the nearest `k`.

        Args:
            vector: (size,) of length one.
            k: ≥ 1.

        Returns:
            Positions and cosines, best first, equal ones by position; min(k, n) of them.

        Raises:
            InputError: a vector of another size, or `k` is below 1.
        """
        query = np.asarray(vector, np.float32)
        if query.shape != (self.size,):
            raise InputError(
                f"the query's vector has the shape {query.shape}; the collection's vectors have "
                f"{self.size} numbers: embed both with the same embedder"
            )
        found = best(self._rows @ query, k)
        return found.positions, found.scores
