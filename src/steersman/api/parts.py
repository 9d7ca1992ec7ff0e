"""Interface between the service and the HTTP part of an installed system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from asyncpg import Pool

    from steersman.platform.breaker import Breaker
    from steersman.retrieval.embedders import Embedders
    from steersman.serving.corpus_cache import CorpusCache
    from steersman.serving.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a service process that a system may use.

    Attributes:
        home: directory of state and caches; None in tests without one.
        pool: connections of role ``app``, for reading and writing as one tenant.
        corpora: corpora in memory.
        embedders: embedders by name.
        breaker: circuit breaker around the database.
        metrics: counters and gauges of the process.
    """

    home: Path | None
    pool: Pool[Any]
    corpora: CorpusCache
    embedders: Embedders
    breaker: Breaker
    metrics: Metrics


class SystemPart(Protocol):
    """HTTP part of a system; its handlers carry their routes, see `steersman.api.route`."""

    @classmethod
    def open(cls, parts: Parts, settings: Any) -> Self:
        """Return the part of a service process.

        Args:
            settings: settings of the system; None: read the environment.
        """

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return a context that the server holds while it answers requests."""

    async def sweep(self) -> object:
        """Remove expired entries; called once a minute."""
