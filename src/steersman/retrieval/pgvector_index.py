"""The nearest vectors of a large corpus, found by PostgreSQL: pgvector's HNSW for each corpus."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, StoreError
from steersman.retrieval.ranked import ordered
from steersman.store import AWAY, as_tenant, search_hnsw

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.store import Database


class PgvectorIndex:
    """Approximate search over the vectors of a revision, which stay in the database.

    It may be used by several threads, which take turns, and by code that does not await: its
    connection belongs to a thread with an event loop of its own, which is a daemon.

    Args:
        database: migrated; with the corpus's index made by `steersman.store.build_hnsw`.
        tenant: whose; nothing of another is seen.
        corpus: its id.
        revision: of it.
        size: how many numbers a vector has.
        hashes: of the passages, by their positions, none twice.
        breadth: how many candidates are kept while the graph is walked, 1 to 1,000.
        timeout_s: of a search.

    Raises:
        InputError: a number out of range.

    No doctest: it needs a server; ``tests/retrieval/test_pgvector_index.py`` shows it.
    """

    def __init__(
        self,
        database: Database,
        tenant: UUID,
        corpus: UUID,
        revision: int,
        *,
        size: int,
        hashes: Sequence[bytes],
        breadth: int = 100,
        timeout_s: float = 5.0,
    ) -> None:
        if not 1 <= breadth <= 1000:
            raise InputError(f"breadth is {breadth!r}; allowed is 1 to 1,000")
        self.size = size
        self._places = {key: place for place, key in enumerate(hashes)}
        self._database, self._tenant = database, tenant
        self._corpus, self._revision = corpus, revision
        self._breadth, self._timeout_s = breadth, timeout_s
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = threading.Lock()

    def __len__(self) -> int:
        """Return how many vectors there are."""
        return len(self._places)

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the nearest `k`, nearly always.

        Args:
            vector: (size,) of length one.
            k: ≥ 1.

        Returns:
            Positions and cosines, best first, equal ones by position.

        Raises:
            InputError: a vector of another size, or `k` is below 1.
            StoreError: the database does not answer, or the index is gone.
        """
        query = np.asarray(vector, np.float32)
        if query.shape != (self.size,):
            raise InputError(
                f"the query's vector has the shape {query.shape}; the corpus's vectors have "
                f"{self.size} numbers: embed both with the same embedder"
            )
        if k < 1:
            raise InputError(f"k is {k!r}; allowed is 1 or more")
        found = self._found(query, min(k, len(self)))
        positions = np.array([place for place, _ in found], np.intp)
        best = ordered(positions, np.array([score for _, score in found], np.float32))
        return best.positions, best.scores

    def close(self) -> None:
        """Close the connection and end the thread; both are made again when needed."""
        with self._turn:
            loop, self._loop = self._loop, None
            connection, self._connection = self._connection, None
            if loop is not None:
                loop.call_soon_threadsafe(_end, loop, connection)

    def __del__(self) -> None:
        """Leave no thread behind when a revision is forgotten."""
        loop = getattr(self, "_loop", None)
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_end, loop, self._connection)

    def _found(self, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Ask for more until there are enough that were not left out as near duplicates."""
        wanted = k
        while True:
            rows = self._ask(query, wanted) if wanted else []
            known = [(self._places[key], score) for key, score in rows if key in self._places]
            if len(known) >= k or len(rows) < wanted:
                return known[:k]
            wanted *= 2

    def _ask(self, query: NDArray[np.float32], k: int) -> list[tuple[bytes, float]]:
        with self._turn:
            if self._loop is None:
                self._loop = _loop_of_its_own()
            work = asyncio.run_coroutine_threadsafe(self._searched(query, k), self._loop)
            return work.result()

    async def _searched(self, query: NDArray[np.float32], k: int) -> list[tuple[bytes, float]]:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._database.connect("app", timeout=self._timeout_s)
                async with as_tenant(self._connection, self._tenant):
                    return await search_hnsw(
                        *(self._connection, self._tenant, self._corpus, self._revision),
                        *(query, k),
                        breadth=max(self._breadth, min(k, 1000)),
                    )
        except AWAY as error:
            if self._connection is not None:
                self._connection.terminate()
            message = f"PostgreSQL finds no vectors: {error!r:.300}; "
            raise StoreError(message + "`steersman doctor` tells what is wrong") from error


def _loop_of_its_own() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def live() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=live, name="pgvector", daemon=True).start()
    return loop


def _end(loop: asyncio.AbstractEventLoop, connection: Any) -> None:
    if connection is not None:
        connection.terminate()
    # The socket is closed in the loop's next round, so that one must come.
    loop.call_soon(loop.call_soon, loop.stop)
