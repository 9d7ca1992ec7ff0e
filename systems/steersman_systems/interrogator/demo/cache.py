"""Answer cache and metrics of the interrogator's demo."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from prometheus_client import CollectorRegistry, write_to_textfile

from steersman.cli.options import actor, run
from steersman.db.answer_cache import TableCache
from steersman.db.answer_cache_redis import RedisCache
from steersman.db.tenants import create_tenant, list_tenants
from steersman.errors import DataError, StoreError
from steersman.platform.postgres.database import Database
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.cache_chain import CacheInLine
from steersman_systems.interrogator.drift import GuardedChooser
from steersman_systems.interrogator.metrics import InterrogatorMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from steersman.db.tenants import Tenant
    from steersman_systems.interrogator.answer_cache import AnswerCache
    from steersman_systems.interrogator.choosers import Chooser
    from steersman_systems.interrogator.investigation import Investigation

TENANT = "demo-interrogator"
"""Tenant of the cached answers, the same in every run: later runs reuse earlier embeddings."""


@contextmanager
def demo_cache(database: Database | None, *, say: Callable[[str], None]) -> Iterator[CacheInLine]:
    """Yield a cache in Redis if ``REDIS_URL`` is set, else in PostgreSQL, else in memory.

    Each is the fallback of the one before it. PostgreSQL is used if the demo runs a store, or if
    ``DATABASE_URL`` names a migrated one.

    Args:
        database: The demo's store; None: the one of ``DATABASE_URL``, if set.

    Raises:
        InputError: ``REDIS_URL`` is not a URL of Redis.
        StoreError: ``REDIS_URL`` is set, but the extra ``redis`` is not installed.
    """
    caches: dict[str, AnswerCache] = {}
    if url := os.environ.get("REDIS_URL"):
        # Every new store gives the tenant another id; the key in Redis must stay the same.
        caches["redis"] = RedisCache(url, uuid5(NAMESPACE_URL, f"steersman:{TENANT}"))
    if database is None and (named := os.environ.get("DATABASE_URL")):
        database = Database(named)
    if database is not None:
        try:
            caches["postgresql"] = TableCache(database, run(_tenant(database)).id)
        except StoreError as error:
            say(f"PostgreSQL does not cache answers in this run: {error}")
    caches["memory"] = MemoryCache()
    with CacheInLine(caches) as cache:
        yield cache


class DemoMetrics:
    """Metrics of an investigation and of its cache.

    Args:
        file: Output file in the format of Prometheus; None: no file.

    Attributes:
        metrics: Collector for `investigate`.
    """

    def __init__(self, cache: CacheInLine, file: Path | None, console: Console) -> None:
        self._cache, self._file, self._console = cache, file, console
        self._registry = CollectorRegistry()
        self.metrics = InterrogatorMetrics(self._registry, cache)

    def end(self, done: Investigation, chooser: Chooser) -> None:
        """Count the end of an investigation and write the file.

        Raises:
            DataError: The file cannot be written.
        """
        drifted = isinstance(chooser, GuardedChooser) and chooser.reason is not None
        self.metrics.on_end(done, drifted=drifted)
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_to_textfile(str(self._file), self._registry)
        except OSError as error:
            message = f"{self._file} cannot be written: {error}"
            raise DataError(f"{message}; give a file in a writable folder") from error

    def shown(self) -> dict[str, Any]:
        """Print the cache in use and failed requests to caches; return the counts for JSON."""
        cache = self._cache
        self._console.print(f"answer cache: {cache.serving or 'none'}", highlight=False)
        for name, times in cache.fallbacks.items():
            self._console.print(
                f"answer cache {name}: not reachable {times} times", highlight=False
            )
        counts = ("hits", "misses", "fallbacks", "refused", "damaged")
        return {"cache": {name: dict(getattr(cache, name)) for name in counts}}


async def _tenant(database: Database) -> Tenant:
    for tenant in await list_tenants(database):
        if tenant.name == TENANT:
            return tenant
    return await create_tenant(database, TENANT, actor=actor())
