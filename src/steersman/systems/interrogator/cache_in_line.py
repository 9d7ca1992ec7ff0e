"""Several caches behind one: the first that works answers, and one that died is tried again."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from steersman.errors import DataError, InputError, RefusedByStoreError, StoreError
from steersman.store import Breaker, RedisCache, TableCache
from steersman.systems.interrogator.answer_cache import AnswerCache, MemoryCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from steersman.store import Database

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    cache: AnswerCache
    breaker: Breaker


class CacheInLine:
    """An `AnswerCache` that asks the first of several that works.

    A cache that fails is left alone for a while; then one call tries it, and its fate decides. What
    it missed meanwhile is embedded again. One that works but refuses a call is not left alone: the
    next takes this call, and is asked from then on for what the first has not. Otherwise a miss is
    a miss: the next cache is asked only when one fails. When none works, nothing is kept and the
    investigation goes on.

    Args:
        caches: by name, the preferred first.
        retry_s: how long one that failed is left alone, > 0.
        clock: seconds that never step back.

    Attributes:
        hits: answers that were found, by the name of the cache.
        misses: answers that were not there, by the name of the cache.
        fallbacks: calls that a cache could not take, by its name.
        refused: those of them that it refused though it works, as when it is full.
        damaged: answers that could not be read, by the name of the cache; they count as misses.

    Raises:
        InputError: no cache, or `retry_s` is not above 0.

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
            raise InputError(message + "allowed are one cache or more and a number above 0")
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
        """Return the names of the caches, the preferred first."""
        return tuple(place.name for place in self._places)

    @property
    def serving(self) -> str | None:
        """Return the name of the first cache that did not fail last; None if all did."""
        working = (place.name for place in self._places if place.breaker.state == "closed")
        return next(working, None)

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the vectors kept under a key by the first cache that works, or None.

        Args:
            key: as `cache_key` makes it.

        Raises:
            InputError: the key is not of that kind.
        """
        found, name = self._ask(lambda cache: cache.get(key), looking=True)
        if name is not None:
            (self.misses if found is None else self.hits)[name] += 1
        return found

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Keep vectors in the first cache that works; in none if none does.

        Args:
            key: as `cache_key` makes it.
            vectors: (options, size) float16.

        Raises:
            InputError: key or vectors are not of that kind.
        """
        self._ask(lambda cache: cache.put(key, vectors))

    def close(self) -> None:
        """Close the caches that hold a connection."""
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
            if place.breaker.allow():
                try:
                    found = ask(place.cache)
                except RefusedByStoreError as error:
                    self._answered(place)
                    self._refused(place, error)
                except StoreError as error:
                    self._failed(place, error)
                except DataError as error:
                    self._answered(place)
                    self.damaged[place.name] += 1
                    _log.warning("%s: %s", place.name, error)
                    return None, missed or place.name
                except BaseException:
                    self._answered(place)
                    raise
                else:
                    self._answered(place)
                    if found is not None:
                        return found, place.name
                    missed = missed or place.name
                    # What it refused to keep lies in the next.
                    if looking and self.refused[place.name]:
                        continue
                    return None, missed
            self.fallbacks[place.name] += 1
        return None, missed

    def _refused(self, place: _Place, error: RefusedByStoreError) -> None:
        self.refused[place.name] += 1
        times = self.refused[place.name]
        # What is full stays full for long: said at the 1st, 10th, 100th … time.
        if str(times).strip("0") == "1":
            _log.warning("the answer cache %s refused %d calls: %s", place.name, times, error)

    def _failed(self, place: _Place, error: StoreError) -> None:
        # A probe that fails says nothing new.
        if place.breaker.state == "closed":
            _log.warning(
                "the answer cache %s is left alone and tried again every %g s: %s",
                *(place.name, self._retry_s, error),
            )
        place.breaker.failed()

    def _answered(self, place: _Place) -> None:
        if place.breaker.state != "closed":
            _log.warning("the answer cache %s works again", place.name)
        place.breaker.succeeded()


def open_answer_cache(
    database: Database, tenant: UUID, *, redis_url: str | None = None
) -> CacheInLine:
    """Return the cache of a tenant's answers: Redis if it is named, else PostgreSQL.

    PostgreSQL stands in when Redis does not answer, and this process's memory when neither does.

    Args:
        database: migrated.
        tenant: whose answers.
        redis_url: of Redis; default: `REDIS_URL`, and without it PostgreSQL is first.

    Returns:
        A cache; close it. Nothing is connected to before the first question.

    Raises:
        InputError: the URL is none of Redis.
        StoreError: a Redis is named and the extra ``redis`` is not installed.
    """
    url = redis_url or os.environ.get("REDIS_URL")
    caches: dict[str, AnswerCache] = {"redis": RedisCache(url, tenant)} if url else {}
    caches["postgresql"] = TableCache(database, tenant)
    caches["memory"] = MemoryCache()
    return CacheInLine(caches)
