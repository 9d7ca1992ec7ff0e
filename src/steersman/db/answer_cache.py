"""PostgreSQL cache of answers, limited by age and size per tenant."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import struct
import threading
import zlib
from concurrent.futures import wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from steersman.errors import DataError, InputError, StoreError
from steersman.platform.postgres.database import AWAY, as_tenant

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.platform.postgres.database import Database

MAX_PACKED_BYTES = 1 << 20
"""Maximum bytes of one value: 1,365 vectors of 384 numbers."""
_HEAD = struct.Struct("<BIII")  # format, rows, columns, CRC-32 of the numbers
_FORMAT = 1
_KEY = re.compile(r"(?:[0-9a-f]{2}){1,64}")


def pack_vectors(vectors: NDArray[np.float16]) -> bytes:
    """Return vectors as bytes.

    Args:
        vectors: (rows, columns) float16, all finite, both 1 or more, together at most 1 MiB.

    Raises:
        InputError: wrong type or shape, too large, or not finite.

    >>> len(pack_vectors(np.zeros((2, 3), np.float16)))
    25
    """
    if vectors.dtype != np.float16 or vectors.ndim != 2 or 0 in vectors.shape:
        raise InputError(
            f"vectors are {vectors.dtype} of shape {vectors.shape}; "
            "they must be float16 of shape (rows, columns) with at least one of each"
        )
    if _HEAD.size + vectors.nbytes > MAX_PACKED_BYTES:
        raise InputError(
            f"vectors of shape {vectors.shape} take {vectors.nbytes:,} bytes; "
            f"the maximum is {MAX_PACKED_BYTES:,}; use fewer options"
        )
    if not np.isfinite(vectors).all():
        raise InputError("vectors have a number that is not finite; nothing was cached")
    numbers = vectors.astype("<f2").tobytes()
    return _HEAD.pack(_FORMAT, *vectors.shape, zlib.crc32(numbers)) + numbers


def unpack_vectors(packed: bytes) -> NDArray[np.float16]:
    """Return the vectors in bytes: (rows, columns) float16, all finite.

    Raises:
        DataError: the bytes are damaged.

    >>> unpack_vectors(pack_vectors(np.ones((1, 2), np.float16)))
    array([[1., 1.]], dtype=float16)
    """
    if not _HEAD.size <= len(packed) <= MAX_PACKED_BYTES:
        raise _damaged(f"it has {len(packed):,} bytes")
    kind, rows, columns, crc = _HEAD.unpack_from(packed)
    if kind != _FORMAT or 2 * rows * columns != len(packed) - _HEAD.size or not rows * columns:
        raise _damaged(f"{len(packed):,} bytes of format {kind} and shape ({rows}, {columns})")
    if zlib.crc32(packed[_HEAD.size :]) != crc:
        raise _damaged("its checksum differs")
    vectors = np.frombuffer(packed, "<f2", offset=_HEAD.size).reshape(rows, columns)
    if not np.isfinite(vectors).all():
        raise _damaged("a number is not finite")
    return vectors.astype(np.float16)


def cache_key_bytes(key: str) -> bytes:
    r"""Return the bytes of a hexadecimal key of 2 to 128 digits.

    Raises:
        InputError: the key is invalid.

    >>> cache_key_bytes("00ff")
    b'\x00\xff'
    """
    if not _KEY.fullmatch(key):
        raise InputError(f"key is {key[:140]!r}; it must have 2 to 128 hex digits")
    return bytes.fromhex(key)


def _damaged(why: str) -> DataError:
    return DataError(
        f"a cached answer is damaged: {why}; embedding it again. If this repeats, check whether "
        "another program writes to this cache"
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


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of a tenant's answer cache.

    Attributes:
        days: days after the last use until an answer is removed, 1 to 3,650.
        max_bytes: maximum total size, ≥ 1 MiB; the least recently used answers are removed
            first.

    Raises:
        InputError: a number is out of range.

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


async def trim_answers(
    connection: Any, limits: AnswerLimits, *, now: datetime | None = None
) -> int:
    """Remove the cached answers of a tenant that exceed the limits.

    Args:
        now: current time; default: system clock.

    Returns:
        Number of removed answers; 0 if another process is trimming.
    """
    # Prevents a deadlock of two processes that remove the same rows.
    if not await connection.fetchval(_ALONE):
        return 0
    before = (now or datetime.now(UTC)) - timedelta(days=limits.days)
    old = await connection.execute("DELETE FROM answer_cache WHERE used_at < $1", before)
    many = await connection.execute(_TOO_MANY, limits.max_bytes)
    return int(old.split()[-1]) + int(many.split()[-1])


async def trim_all_answers(database: Database, limits: AnswerLimits | None = None) -> int:
    """Remove the cached answers of every tenant that exceed the limits.

    Args:
        limits: cache limits per tenant; default: `AnswerLimits()`.

    Raises:
        StoreError: the database is unreachable.
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
