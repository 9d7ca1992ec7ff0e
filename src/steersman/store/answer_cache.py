"""Cached answers of the interrogator in PostgreSQL: one tenant's, bounded in age and bytes."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from steersman.errors import InputError, StoreError
from steersman.store.database import AWAY, Database, as_tenant
from steersman.store.packed_vectors import (
    MAX_PACKED_BYTES,
    cache_key_bytes,
    pack_vectors,
    unpack_vectors,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
_READ = "SELECT substr(value, 1, $2) AS value, used_at FROM answer_cache WHERE key = $1"
_TOUCH = "UPDATE answer_cache SET used_at = now() WHERE key = $1"
_WRITE = (
    "INSERT INTO answer_cache (tenant, key, value) VALUES ($1, $2, $3) "
    "ON CONFLICT (tenant, key) DO UPDATE SET value = excluded.value, used_at = now()"
)
_TOO_MANY = (
    "DELETE FROM answer_cache AS c USING ("
    "SELECT key, sum(octet_length(value)) OVER (ORDER BY used_at DESC, key) AS total "
    "FROM answer_cache) AS o WHERE c.key = o.key AND o.total > $1"
)
_ALONE = (
    "SELECT pg_try_advisory_xact_lock("
    "hashtextextended('answers/' || current_setting('app.tenant'), 0))"
)
_TOUCHED_EVERY = timedelta(hours=1)  # a read that always wrote would cost ten times as much
_TRIMMED_EVERY = 1000


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """What cached answers of one tenant may take.

    Attributes:
        days: how long an answer that nobody asks for stays, 1 to 3,650.
        max_bytes: the most that all answers of a tenant take together, ≥ 1 MiB; what was used
            longest ago goes first.

    Raises:
        InputError: a number out of range.

    >>> AnswerLimits().days
    30
    """

    days: int = 30
    max_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("days", self.days, 1, 3650),
            ("max_bytes", self.max_bytes, MAX_PACKED_BYTES, 1 << 50),
        ):
            if not least <= value <= most:
                raise InputError(f"{name} is {value!r}; allowed is {least:,} to {most:,}")


class TableCache:
    """Cached answers of a tenant in PostgreSQL, for code that does not await.

    One connection, owned by one thread with an event loop of its own, is made at the first use and
    again after it was lost. Callers of several threads take turns.

    Args:
        database: migrated.
        tenant: whose answers; it never sees another's.
        limits: what is removed, every 1,000 answers written here and by the keeper.
        timeout_s: how long one call may take.

    No doctest: it needs a server; ``tests/store/test_answer_cache.py`` shows it.
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
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

    def close(self) -> None:
        """Close the connection and end the thread; both are made again when needed."""
        with self._turn:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._turn:
            if self._process != os.getpid():  # forked: thread and connection are the parent's
                self._process, self._loop, self._connection = os.getpid(), None, None
            if self._loop is None:
                self._loop = _loop_of_its_own()
            # The coroutine has a time limit of its own, so this does not wait for ever.
            return asyncio.run_coroutine_threadsafe(self._guarded(work), self._loop).result()

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except AWAY as error:
            await self._disconnect()
            message = f"PostgreSQL gives no cached answers: {error!r:.300}; answers are embedded "
            raise StoreError(message + "instead. `steersman doctor` tells what is wrong") from error

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
            self._written += 1
            if self._written % _TRIMMED_EVERY == 0:
                await trim_answers(connection, self._limits)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect("app", timeout=self._timeout_s)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def trim_answers(
    connection: Any, limits: AnswerLimits, *, now: datetime | None = None
) -> int:
    """Remove the cached answers of a tenant that are too old or too many.

    Args:
        connection: of role app or owner, within a transaction of the tenant.
        limits: what may stay.
        now: default: the clock.

    Returns:
        How many were removed; 0 too while somebody else is removing them.

    No doctest: it needs a server; ``tests/store/test_answer_cache.py`` shows it.
    """
    # Two that removed the same rows in another order would wait for each other.
    if not await connection.fetchval(_ALONE):
        return 0
    before = (now or datetime.now(UTC)) - timedelta(days=limits.days)
    old = await connection.execute("DELETE FROM answer_cache WHERE used_at < $1", before)
    many = await connection.execute(_TOO_MANY, limits.max_bytes)
    return int(old.split()[-1]) + int(many.split()[-1])


async def trim_all_answers(database: Database, limits: AnswerLimits | None = None) -> int:
    """Remove the cached answers of every tenant that are too old or too many.

    Args:
        database: migrated.
        limits: what may stay of each tenant; default: `AnswerLimits()`.

    Returns:
        How many were removed.

    Raises:
        StoreError: the server does not answer.

    No doctest: it needs a server; ``tests/store/test_answer_cache.py`` shows it.
    """
    connection = await database.connect("owner")
    removed = 0
    try:
        for row in await connection.fetch("SELECT id FROM tenant ORDER BY id"):
            async with as_tenant(connection, row["id"]):
                removed += await trim_answers(connection, limits or AnswerLimits())
    finally:
        await connection.close()
    return removed


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
