"""Qdrant index: approximate vector search in process, with HNSW in a folder."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.install_hint import extra
from steersman.retrieval.ranking import ordered

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_BATCH = 1_000
_FIELD = "passage"


class QdrantIndex:
    """Approximate search over a fixed set of vectors.

    It is built in memory from one tenant's vectors, so it holds no data of other tenants. With
    fewer than about 10,000 vectors, Qdrant searches exactly.

    Args:
        vectors: (n, size) rows of norm 1, n ≥ 0.
        folder: new folder for its files; None: a temporary folder.
        breadth: candidate list size of the graph search, 1 to 10,000.

    Raises:
        InputError: another shape, rows that are not finite, or a number is out of range.
        DataError: the extra ``qdrant`` is not installed.

    Source: `qdrant-edge-py`, Apache-2.0, the engine of the Qdrant server as a library.
    """

    def __init__(
        self, vectors: NDArray[np.float32], *, folder: Path | None = None, breadth: int = 400
    ) -> None:
        rows = np.asarray(vectors, np.float32)
        if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
            raise InputError(
                f"vectors have shape {rows.shape}; expected (n, size) with size ≥ 1 and all "
                "numbers finite"
            )
        if not 1 <= breadth <= 10_000:
            raise InputError(f"breadth is {breadth!r}; allowed: 1 to 10,000")
        self.size = rows.shape[1]
        self._count, self._breadth = len(rows), breadth
        self._library: Any = extra("qdrant_edge", "qdrant")
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        path = self._temporary.name if self._temporary is not None else str(folder)
        self._shard = self._built(path, rows)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return self._count

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return approximately the `k` nearest vectors.

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
        if k < 1:
            raise InputError(f"k is {k!r}; the minimum is 1")
        edge = self._library
        asked = edge.QueryRequest(
            query=edge.Query.Nearest(query.tolist(), using=_FIELD),
            limit=min(k, self._count),
            params=edge.SearchParams(hnsw_ef=max(self._breadth, k)),
        )
        found = self._shard.query(asked) if self._count else []
        positions = np.array([point.id for point in found], np.intp)
        best = ordered(positions, np.array([point.score for point in found], np.float32))
        return best.positions, best.scores

    def close(self) -> None:
        """Close the files; delete a temporary folder."""
        self._shard.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _built(self, path: str, rows: NDArray[np.float32]) -> Any:
        edge = self._library
        vectors = edge.EdgeVectorParams(size=self.size, distance=edge.Distance.Cosine)
        shard = edge.EdgeShard.create(path, edge.EdgeConfig(vectors={_FIELD: vectors}))
        for first in range(0, len(rows), _BATCH):
            points = [
                edge.Point(first + place, {_FIELD: row.tolist()}, {})
                for place, row in enumerate(rows[first : first + _BATCH])
            ]
            shard.update(edge.UpdateOperation.upsert_points(points))
        while shard.optimize():  # builds the graph if there are enough vectors
            pass
        return shard
