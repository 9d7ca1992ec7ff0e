"""Cached answers of the interrogator in PostgreSQL: one tenant's, bounded in age and bytes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from steersman.errors import StoreError
from steersman.store.answer_limits import AnswerLimits, trim_answers
from steersman.store.database import AWAY, as_tenant
from steersman.store.packed_vectors import (
    MAX_PACKED_BYTES,
    cache_key_bytes,
    pack_vectors,
    unpack_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from steersman.store.database import Database

T = TypeVar("T")
_log = logging.getLogger(__name__)
_READ = "SELECT substr(value, 1, $2) AS value, used_at FROM answer_cache WHERE key = $1"
_TOUCH = "UPDATE answer_cache SET used_at = now() WHERE key = $1"
_WRITE = (
    "INSERT INTO answer_cache (tenant, key, value) VALUES ($1, $2, $3) "
    "ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value, used_at = now()"
)
_TOUCHED_EVERY = timedelta(hours=1)  # a read that always wrote would cost ten times as much
_TRIMMED_EVERY = 1000
_TRIM_S = 60.0


class TableCache:
    """Cached answers of a tenant in PostgreSQL, for code that does not await.

    One connection, owned by one thread with an event loop of its own, is made at the first use and
    again after it was lost. Callers of several threads take turns.

    Args:
        database: migrated.
        tenant: whose answers; it never sees another's.
        limits: what is removed, by the keeper, and beside the calls every 1,000 answers written
            here; that it failed is logged, and no failure of a call.
        timeout_s: how long one call may take.
    """

    def __init__(
        self,
        database: Database,
        tenant: UUID,
        *,
        limits: AnswerLimits | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        self._database, self._tenant = database, tenant
        self._limits = limits or AnswerLimits()
        self._timeout_s = timeout_s
        self._connection: Any = None
        self._written = 0
        self._trimming: Future[None] | None = None
        self._trimmer: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._parents: list[object] = []
        self._turn = threading.Lock()

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the vectors kept under a key, or None.

        Args:
            key: 2 to 128 hex digits.

        Returns:
            (options, size) float16.

        Raises:
            InputError: the key is not of that kind.
            DataError: what is kept is damaged.
            StoreError: the server does not answer.
        """
        packed = self._run(self._get(cache_key_bytes(key)))
        return None if packed is None else unpack_vectors(packed)

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Keep vectors under a key; what was there is replaced.

        Args:
            key: 2 to 128 hex digits.
            vectors: (options, size) float16, all finite, at most 1 MiB.

        Raises:
            InputError: key or vectors are not of that kind.
            StoreError: the server does not answer.
        """
        self._run(self._put(cache_key_bytes(key), pack_vectors(vectors)))
        self._written += 1
        if self._written % _TRIMMED_EVERY == 0:
            self._trim_apart()

    def close(self) -> None:
        """Close the connection and end the thread; both are made again when needed."""
        with self._turn:
            loop, self._loop = self._loop, None
            if loop is None or self._process != os.getpid():  # a parent's thread is not here
                return
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result()
            if self._trimming is not None:
                loop.call_soon_threadsafe(self._end_trimming)
                wait([self._trimming], self._timeout_s + 1.0)
                self._trimming = self._trimmer = None
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_trimming(self) -> None:
        if self._trimmer is not None:
            self._trimmer.terminate()

    def _trim_apart(self) -> None:
        """Begin to remove what is too old or too many; nobody waits for it, nor for its turn."""
        with self._turn:
            running = self._trimming is not None and not self._trimming.done()
            if self._loop is not None and not running:
                self._trimming = asyncio.run_coroutine_threadsafe(self._trim(), self._loop)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._turn:
            if self._process != os.getpid():
                self._leave_to_parent()
            if self._loop is None:
                self._loop = _loop_of_its_own()
            # The coroutine has a time limit of its own, so this does not wait for ever.
            return asyncio.run_coroutine_threadsafe(self._guarded(work), self._loop).result()

    def _leave_to_parent(self) -> None:
        """Begin anew after a fork: the thread is not here, and the connection is the parent's.

        Both are kept alive: what their end would undo is shared with the parent.
        """
        self._parents.append((self._loop, self._connection, self._trimming, self._trimmer))
        self._process, self._loop, self._connection = os.getpid(), None, None
        self._trimming = self._trimmer = None

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except AWAY as error:
            await self._disconnect()
            message = f"cannot read the cache in PostgreSQL: {error!r:.300}; answers are embedded "
            raise StoreError(
                message + "instead. Run `steersman doctor` to find the cause"
            ) from error

    async def _get(self, key: bytes) -> bytes | None:
        connection = await self._connected()
        async with as_tenant(connection, self._tenant):
            row = await connection.fetchrow(_READ, key, MAX_PACKED_BYTES + 1)
            if row is None:
                return None
            if row["used_at"] < datetime.now(UTC) - _TOUCHED_EVERY:
                await connection.execute(_TOUCH, key)
        value: bytes = row["value"]
        return value

    async def _put(self, key: bytes, packed: bytes) -> None:
        connection = await self._connected()
        async with as_tenant(connection, self._tenant):
            await connection.execute(_WRITE, self._tenant, key, packed)

    async def _trim(self) -> None:
        # Over a connection of its own, so that nobody's turn is held up meanwhile.
        try:
            self._trimmer = await self._database.connect("app", timeout=self._timeout_s)
            # A server that hangs keeps no time.
            asyncio.get_running_loop().call_later(2 * _TRIM_S, self._trimmer.terminate)
            async with as_tenant(self._trimmer, self._tenant):
                await self._trimmer.execute(f"SET LOCAL statement_timeout = {_TRIM_S * 1000:.0f}")
                await trim_answers(self._trimmer, self._limits)
        except (*AWAY, StoreError) as error:
            _log.warning("cannot trim the cache, will retry: %r", error)
        finally:
            if self._trimmer is not None:
                self._trimmer.terminate()

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect("app", timeout=self._timeout_s)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _loop_of_its_own() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def live() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    # A daemon: a program that forgets to close the cache ends all the same.
    threading.Thread(target=live, name="answer-cache", daemon=True).start()
    return loop
