"""PostgreSQL cache of interrogator answers, limited by age and size per tenant."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from steersman.db.answer_limits import AnswerLimits, trim_answers
from steersman.db.packed_vectors import (
    MAX_PACKED_BYTES,
    cache_key_bytes,
    pack_vectors,
    unpack_vectors,
)
from steersman.errors import StoreError
from steersman.platform.postgres.database import AWAY, as_tenant

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from steersman.platform.postgres.database import Database

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
    """PostgreSQL answer cache of one tenant for synchronous code.

    It uses one connection, in a thread with its own event loop. The connection opens at first use
    and after a loss. Calls from several threads are serialised.

    Args:
        database: a migrated database.
        tenant: tenant id; other tenants' answers are not visible.
        limits: cache limits, enforced by the janitor and after every 1,000 writes; a
            failure is only logged.
        timeout_s: timeout of one call in seconds.
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
        """Return the cached vectors of a key, or None.

        Args:
            key: cache key, 2 to 128 hex digits.

        Returns:
            (options, size) float16.

        Raises:
            InputError: invalid key.
            DataError: the cached value is damaged.
            StoreError: the database is unreachable.
        """
        packed = self._run(self._get(cache_key_bytes(key)))
        return None if packed is None else unpack_vectors(packed)

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Cache vectors under a key; an existing value is replaced.

        Args:
            key: cache key, 2 to 128 hex digits.
            vectors: (options, size) float16, all finite, at most 1 MiB.

        Raises:
            InputError: invalid key or vectors.
            StoreError: the database is unreachable.
        """
        self._run(self._put(cache_key_bytes(key), pack_vectors(vectors)))
        self._written += 1
        if self._written % _TRIMMED_EVERY == 0:
            self._trim_apart()

    def close(self) -> None:
        """Close the connection and end the thread; the next call opens them again."""
        with self._turn:
            loop, self._loop = self._loop, None
            if (
                loop is None or self._process != os.getpid()
            ):  # the parent's thread does not exist here
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
            # The coroutine has its own timeout, so this wait is bounded.
            return asyncio.run_coroutine_threadsafe(self._guarded(work), self._loop).result()

    def _leave_to_parent(self) -> None:
        """Reset after a fork; the parent owns the thread and the connection.

        Both objects stay referenced, because closing them would affect the parent.
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
        # Over a separate connection, so that calls do not wait.
        try:
            self._trimmer = await self._database.connect("app", timeout=self._timeout_s)
            # A hanging server does not enforce its timeout.
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

    # A daemon thread, so that a program can exit without closing the cache.
    threading.Thread(target=live, name="answer-cache", daemon=True).start()
    return loop
