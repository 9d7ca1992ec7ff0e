"""The demo's answer cache, which outlives a run, and what an investigation counted."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from prometheus_client import CollectorRegistry, write_to_textfile

from steersman.cli.options import actor, run
from steersman.errors import DataError, StoreError
from steersman.store import Database, RedisCache, TableCache, create_tenant, list_tenants
from steersman.systems.interrogator import (
    CacheInLine,
    Guarded,
    InterrogatorMetrics,
    MemoryCache,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from steersman.store import Tenant
    from steersman.systems.interrogator import AnswerCache, Chooser, Investigation

TENANT = "demo-interrogator"
"""Whose answers the demo's are, in every run: a run finds what those before it embedded."""


@contextmanager
def demo_cache(database: Database | None, *, say: Callable[[str], None]) -> Iterator[CacheInLine]:
    """Keep answers in Redis where ``REDIS_URL`` is set, else in PostgreSQL, else in memory.

    Each stands in for the one before it. PostgreSQL takes part where the demo runs a store, or
    ``DATABASE_URL`` names one that is migrated.

    Args:
        database: The store that the demo runs; None: that of ``DATABASE_URL``, if it is set.
        say: Is told why PostgreSQL does not take part although it is named.

    Yields:
        The cache.

    Raises:
        InputError: ``REDIS_URL`` is none of Redis.
        StoreError: It is set, and the extra ``redis`` is not installed.
    """
    caches: dict[str, AnswerCache] = {}
    if url := os.environ.get("REDIS_URL"):
        # A tenant's id is another in every new store, and Redis is to be found from all of them.
        caches["redis"] = RedisCache(url, uuid5(NAMESPACE_URL, f"steersman:{TENANT}"))
    if database is None and (named := os.environ.get("DATABASE_URL")):
        database = Database(named)
    if database is not None:
        try:
            caches["postgresql"] = TableCache(database, run(_tenant(database)).id)
        except StoreError as error:
            say(f"PostgreSQL keeps no answers of this run: {error}")
    caches["memory"] = MemoryCache()
    with CacheInLine(caches) as cache:
        yield cache


class Counting:
    """Counts an investigation as an application would, and shows what its cache did.

    Args:
        cache: The answers'.
        file: Where the counts are written, in the format of Prometheus; None: nowhere.
        console: Where the cache's part is shown.

    Attributes:
        metrics: What `investigate` tells its steps.
    """

    def __init__(self, cache: CacheInLine, file: Path | None, console: Console) -> None:
        self._cache, self._file, self._console = cache, file, console
        self._registry = CollectorRegistry()
        self.metrics = InterrogatorMetrics(self._registry, cache)

    def end(self, done: Investigation, chooser: Chooser) -> None:
        """Count the end of an investigation, and write the file.

        Args:
            done: As `investigate` returned it.
            chooser: Who picked; a guard tells whether it gave over.

        Raises:
            DataError: The file cannot be written.
        """
        drifted = isinstance(chooser, Guarded) and chooser.reason is not None
        self.metrics.on_end(done, drifted=drifted)
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_to_textfile(str(self._file), self._registry)
        except OSError as error:
            message = f"{self._file} cannot be written: {error}"
            raise DataError(f"{message}; name a file in a folder that can be") from error

    def shown(self) -> dict[str, Any]:
        """Print where answers are kept and which cache could not be asked; return it for JSON."""
        cache = self._cache
        self._console.print(f"answers are kept in {cache.serving or 'nothing'}", highlight=False)
        for name, times in cache.fallbacks.items():
            self._console.print(f"{name} could not be asked {times} times", highlight=False)
        counts = ("hits", "misses", "fallbacks", "refused", "damaged")
        return {"cache": {name: dict(getattr(cache, name)) for name in counts}}


async def _tenant(database: Database) -> Tenant:
    for tenant in await list_tenants(database):
        if tenant.name == TENANT:
            return tenant
    return await create_tenant(database, TENANT, actor=actor())
