"""Redis cache of answers with expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from steersman.db.answer_cache import (
    MAX_PACKED_BYTES,
    cache_key_bytes,
    pack_vectors,
    unpack_vectors,
)
from steersman.errors import InputError, RefusedByStoreError, StoreError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

_SCHEMES = ("redis://", "rediss://", "unix://")
_MOST_S = 3650 * 86_400


class RedisCache:
    """Redis answer cache of one tenant.

    Every key starts with the tenant id. Redis does not separate tenants, so only Steersman may have
    its password.

    Args:
        url: ``redis://[user:password@]host[:port][/db]``, ``rediss://…`` for TLS, or
            ``unix:///path``; messages never show the password.
        tenant: tenant id; other tenants' answers are not visible.
        ttl_s: expiry after writing, 1 s to 10 years.
        timeout_s: timeout of a connection or request in seconds, > 0.

    Raises:
        InputError: the URL is invalid, or a number is out of range.
        StoreError: the extra ``redis`` is not installed.
    """

    def __init__(
        self, url: str, tenant: UUID, *, ttl_s: int = 7 * 86_400, timeout_s: float = 0.25
    ) -> None:
        if not 1 <= ttl_s <= _MOST_S:
            raise InputError(f"ttl_s is {ttl_s!r}; allowed is 1 to {_MOST_S:,}")
        if not 0 < timeout_s <= 60:
            raise InputError(f"timeout_s is {timeout_s!r}; allowed is above 0 and up to 60")
        self._prefix = f"steersman:answer:{tenant}:".encode()
        self._ttl_s = ttl_s
        self._redis = _client(url, timeout_s)

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the cached vectors of a key, or None.

        Args:
            key: cache key, 2 to 128 hex digits.

        Returns:
            (options, size) float16.

        Raises:
            InputError: invalid key.
            DataError: the cached value is damaged.
            StoreError: Redis is unreachable; `RefusedByStoreError`: it rejected the command.
        """
        # Limits the read, because another program may have written the value.
        packed = self._ask("getrange", self._place(key), 0, MAX_PACKED_BYTES)
        return unpack_vectors(packed) if packed else None

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Cache vectors under a key; an existing value is replaced.

        Args:
            key: cache key, 2 to 128 hex digits.
            vectors: (options, size) float16, all finite, at most 1 MiB.

        Raises:
            InputError: invalid key or vectors.
            StoreError: Redis is unreachable; `RefusedByStoreError`: it is full or rejected the
                command.
        """
        self._ask("set", self._place(key), pack_vectors(vectors), ex=self._ttl_s)

    def version(self) -> str:
        """Return the server's version, as a connection check.

        Raises:
            StoreError: Redis is unreachable.
        """
        return str(self._ask("info", "server")["redis_version"])

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self, key: str) -> bytes:
        return self._prefix + cache_key_bytes(key).hex().encode()

    def _ask(self, command: str, *arguments: Any, **options: Any) -> Any:
        from redis.exceptions import RedisError, ResponseError  # noqa: PLC0415 - an extra

        try:
            return getattr(self._redis, command)(*arguments, **options)
        except ResponseError as error:
            message = f"Redis rejects {command.upper()}: {error}"[:300]
            message += "; use a separate Redis database with free memory (maxmemory-policy)"
            raise RefusedByStoreError(message) from error
        except (RedisError, OSError) as error:
            message = f"cannot read the cache in Redis: {type(error).__name__}: {error}"[:300]
            message += "; check REDIS_URL and the "
            raise StoreError(message + "server, or run `steersman doctor`") from error


def _client(url: str, timeout_s: float) -> Any:
    if not url.startswith(_SCHEMES):
        # Not shown, because the invalid part may be the password.
        message = f"REDIS_URL must begin with one of {', '.join(_SCHEMES)}"
        raise InputError(message)
    try:
        import redis  # noqa: PLC0415 - an extra: the core must import without it
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as missing:
        message = "REDIS_URL is set, but the package redis is missing; install it with: "
        raise StoreError(message + how_to_install("redis")) from missing
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # Retry once: the server may have closed an idle connection.
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError:
        message = "invalid REDIS_URL: cannot parse its host, port or options; "
        message += "in a password write @ : / as %40 %3A %2F"
        raise InputError(message) from None
