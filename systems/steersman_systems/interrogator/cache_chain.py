"""Answer cache with fallbacks: Redis, PostgreSQL and memory in order."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from steersman.db.answer_cache import TableCache
from steersman.db.answer_cache_redis import RedisCache
from steersman.errors import DataError, InputError, RefusedByStoreError, StoreError
from steersman.platform.breaker import Breaker
from steersman_systems.interrogator.answer_cache import AnswerCache, MemoryCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from steersman.platform.breaker import Turn
    from steersman.platform.postgres.database import Database

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    cache: AnswerCache
    breaker: Breaker


class CacheInLine:
    """`AnswerCache` that uses the first working cache of several.

    A failed cache is not called for ``retry_s`` seconds; then one call tries it again. A cache that
    works but rejects a call stays in use, and the next cache takes this call. After a miss, other
    caches are not called. If no cache works, nothing is cached and the investigation continues.

    Args:
        caches: Caches by name, the preferred one first.
        retry_s: Seconds until a failed cache is tried again, > 0.
        clock: Monotonic clock in seconds.

    Attributes:
        hits: Hits, by the name of the cache.
        misses: Misses, by the name of the cache.
        fallbacks: Calls that a cache did not take, by its name.
        refused: Rejected calls among them, for example because the cache is full.
        damaged: Unreadable entries, by the name of the cache; they count as misses.

    Raises:
        InputError: No cache, or `retry_s` is not above 0.

    >>> cache = CacheInLine({"memory": MemoryCache()})
    >>> cache.get("00") is None, dict(cache.misses), cache.serving
    (True, {'memory': 1}, 'memory')
    """

    def __init__(
        self,
        caches: Mapping[str, AnswerCache],
        *,
        retry_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not caches or not retry_s > 0:
            message = f"{len(caches)} caches, retry_s {retry_s!r}; "
            raise InputError(message + "allowed: one or more caches, and retry_s above 0")
        self._places = [
            _Place(name, cache, Breaker(name, clock, failures=1, open_s=retry_s))
            for name, cache in caches.items()
        ]
        self._retry_s = retry_s
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.damaged: Counter[str] = Counter()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the caches, the preferred one first."""
        return tuple(place.name for place in self._places)

    @property
    def serving(self) -> str | None:
        """Name of the first cache whose last call did not fail; None if all failed."""
        working = (place.name for place in self._places if place.breaker.state == "closed")
        return next(working, None)

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the vectors of a key from the first working cache, or None.

        Raises:
            InputError: Invalid key.
        """
        found, name = self._ask(lambda cache: cache.get(key), looking=True)
        if name is not None:
            (self.misses if found is None else self.hits)[name] += 1
        return found

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Store vectors in the first working cache.

        Args:
            vectors: (options, size) float16.

        Raises:
            InputError: Invalid key or vectors.
        """
        self._ask(lambda cache: cache.put(key, vectors))

    def close(self) -> None:
        """Close the connections of the caches."""
        for place in self._places:
            if isinstance(place.cache, RedisCache | TableCache):
                place.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self, ask: Callable[[AnswerCache], NDArray[np.float16] | None], *, looking: bool = False
    ) -> tuple[NDArray[np.float16] | None, str | None]:
        missed: str | None = None
        for place in self._places:
            turn = place.breaker.turn()
            if not turn.wait_s:
                try:
                    found = ask(place.cache)
                except RefusedByStoreError as error:
                    self._answered(place, turn)
                    self._refused(place, error)
                except StoreError as error:
                    self._failed(place, turn, error)
                except DataError as error:
                    self._answered(place, turn)
                    self.damaged[place.name] += 1
                    _log.warning("%s: %s", place.name, error)
                    return None, missed or place.name
                except BaseException:
                    self._answered(place, turn)
                    raise
                else:
                    self._answered(place, turn)
                    if found is not None:
                        return found, place.name
                    missed = missed or place.name
                    # An entry that this cache rejected is in the next one.
                    if looking and self.refused[place.name]:
                        continue
                    return None, missed
            self.fallbacks[place.name] += 1
        return None, missed

    def _refused(self, place: _Place, error: RefusedByStoreError) -> None:
        self.refused[place.name] += 1
        times = self.refused[place.name]
        # A full cache stays full: log only the 1st, 10th, 100th … time.
        if str(times).strip("0") == "1":
            _log.warning("the answer cache %s refused %d calls: %s", place.name, times, error)

    def _failed(self, place: _Place, turn: Turn, error: StoreError) -> None:
        # A failed probe is not logged again.
        if place.breaker.state == "closed":
            _log.warning(
                "the answer cache %s is left alone and tried again every %g s: %s",
                *(place.name, self._retry_s, error),
            )
        place.breaker.failed(turn)

    def _answered(self, place: _Place, turn: Turn) -> None:
        if place.breaker.state != "closed":
            _log.warning("the answer cache %s works again", place.name)
        place.breaker.succeeded(turn)


def open_answer_cache(
    database: Database, tenant: UUID, *, redis_url: str | None = None
) -> CacheInLine:
    """Return the answer cache of a tenant: Redis if configured, else PostgreSQL.

    PostgreSQL is the fallback of Redis, and memory is the fallback of both.

    Args:
        redis_url: URL of Redis; default: `REDIS_URL`; without it PostgreSQL is first.

    Raises:
        InputError: The URL is not a URL of Redis.
        StoreError: Redis is configured, but the extra ``redis`` is not installed.
    """
    url = redis_url or os.environ.get("REDIS_URL")
    caches: dict[str, AnswerCache] = {"redis": RedisCache(url, tenant)} if url else {}
    caches["postgresql"] = TableCache(database, tenant)
    caches["memory"] = MemoryCache()
    return CacheInLine(caches)
