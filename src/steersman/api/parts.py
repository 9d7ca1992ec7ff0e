"""What a system's HTTP part is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from asyncpg import Pool

    from steersman.api.app import Route
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
    """HTTP part of a system."""

    def routes(self) -> Sequence[tuple[str, Route]]:
        """Return its routes: (method, route)."""

    async def sweep(self) -> object:
        """Remove expired entries; called once a minute."""

    def close(self) -> None:
        """Begin nothing further; the process stops."""
