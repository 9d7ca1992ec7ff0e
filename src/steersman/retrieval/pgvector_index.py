"""pgvector index: approximate vector search in PostgreSQL, one HNSW index per corpus."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from steersman.db.corpus_hnsw import search_hnsw
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import AWAY, as_tenant
from steersman.retrieval.ranking import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.platform.postgres.database import Database

T = TypeVar("T")
_REST_S = 5.0


class PgvectorIndex:
    """Approximate vector search over a revision in the database.

    Thread-safe (searches are serialised) and synchronous: its connection belongs to a daemon thread
    with an event loop.

    Args:
        database: database with an index built by `steersman.db.corpus_hnsw.build_hnsw`.
        tenant: tenant id; other tenants' rows are not visible.
        corpus: corpus id.
        revision: revision number.
        size: dimension of the vectors.
        hashes: unique passage hashes by position.
        breadth: candidate list size of the graph search, 1 to 1,000.
        timeout_s: timeout of a search, and of waiting for other searches, in seconds.
        idle_s: idle time in seconds after which the connection is closed.
        clock: monotonic clock in seconds.

    Raises:
        InputError: a number is out of range.
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
        breadth: int = 400,
        timeout_s: float = 1.0,
        idle_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= breadth <= 1000:
            raise InputError(f"breadth is {breadth!r}; allowed: 1 to 1,000")
        self.size = size
        self._places = {key: place for place, key in enumerate(hashes)}
        self._database, self._tenant = database, tenant
        self._corpus, self._revision = corpus, revision
        self._breadth, self._timeout_s, self._idle_s = breadth, timeout_s, idle_s
        self._clock = clock
        self._rests: tuple[float, str] | None = None
        self._line: _ConnectionThread | None = None
        self._turn = threading.Lock()

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._places)

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return approximately the `k` nearest vectors.

        Args:
            vector: (size,) query vector of norm 1.
            k: number of results, ≥ 1.

        Raises:
            InputError: a vector of another dimension, or `k` is below 1.
            StoreError: the database does not respond, or the index was removed; then searches fail
                at once for five seconds.
        """
        query = np.asarray(vector, np.float32)
        if query.shape != (self.size,):
            raise InputError(
                f"the query vector has shape {query.shape}, but the corpus has dimension "
                f"{self.size}: embed both with the same embedder"
            )
        if k < 1:
            raise InputError(f"k is {k!r}; the minimum is 1")
        found = self._found(query, min(k, len(self)))
        positions = np.array([place for place, _ in found], np.intp)
        best = ordered(positions, np.array([score for _, score in found], np.float32))
        return best.positions, best.scores

    def close(self) -> None:
        """Close the connection and stop the thread; both restart when needed."""
        with self._turn:
            line, self._line = self._line, None
            if line is not None:
                line.end()

    def __del__(self) -> None:
        """Stop the thread."""
        line = getattr(self, "_line", None)
        if line is not None:
            line.end()

    def _found(self, query: NDArray[np.float32], k: int) -> list[tuple[int, float]]:
        """Fetch more rows until enough are not duplicates."""
        wanted = k
        while True:
            rows = self._ask(query, wanted) if wanted else []
            known = [(self._places[key], score) for key, score in rows if key in self._places]
            if len(known) >= k or len(rows) < wanted:
                return known[:k]
            wanted *= 2

    def _ask(self, query: NDArray[np.float32], k: int) -> list[tuple[bytes, float]]:
        if not self._turn.acquire(timeout=self._timeout_s):
            message = f"timeout after {self._timeout_s:g} s behind other searches of the index; "
            raise StoreError(message + "retry in a moment")
        try:
            return self._answered(query, k)
        finally:
            self._turn.release()

    def _answered(self, query: NDArray[np.float32], k: int) -> list[tuple[bytes, float]]:
        if self._rests is not None and self._clock() < self._rests[0]:
            raise StoreError(self._rests[1])
        if self._line is None:
            self._line = _ConnectionThread(self._database, self._timeout_s, self._idle_s)
        try:
            rows = self._line.run(self._searched(self._line, query, k))
        except StoreError as error:
            self._rests = self._clock() + _REST_S, str(error)
            raise
        self._rests = None
        return rows

    async def _searched(
        self, line: _ConnectionThread, query: NDArray[np.float32], k: int
    ) -> list[tuple[bytes, float]]:
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await line.connected()
                async with as_tenant(connection, self._tenant):
                    return await search_hnsw(
                        *(connection, self._tenant, self._corpus, self._revision),
                        *(query, k),
                        breadth=max(self._breadth, min(k, 1000)),
                    )
        except AWAY as error:
            line.drop()
            message = f"vector search in PostgreSQL failed: {error!r:.300}; "
            raise StoreError(message + "run `steersman doctor` to find the cause") from error
        finally:
            line.rest()


class _ConnectionThread:
    """Connection with its thread and event loop.

    The thread holds this object, so the connection outlives its index until it is closed in its
    thread.
    """

    def __init__(self, database: Database, timeout_s: float, idle_s: float) -> None:
        self._database, self._timeout_s, self._idle_s = database, timeout_s, idle_s
        self._connection: Any = None
        self._idle: asyncio.TimerHandle | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._live, name="pgvector", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def connected(self) -> Any:
        if self._idle is not None:
            self._idle.cancel()
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect("app", timeout=self._timeout_s)
        return self._connection

    def rest(self) -> None:
        """Close the connection when idle, because many corpora may be in memory."""
        self._idle = self._loop.call_later(self._idle_s, self.drop)

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def end(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.drop()
        # The socket is closed in the next loop iteration, so run one more.
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)

    def _live(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
