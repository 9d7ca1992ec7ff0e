"""Search engines of a searcher, and failure counts of their parts."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.retrieval.bm25 import Bm25
    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents.passage import Passage
    from steersman.retrieval.exact_index import VectorIndex
    from steersman.retrieval.passage_links import LinkExpansion, Links
    from steersman.retrieval.rerank import Reranker

_log = logging.getLogger(__name__)


class Failures:
    """Failure counts by part; a failure is logged once until the part works again."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._away: set[str] = set()
        self._lock = threading.Lock()

    def count(self, part: str, error: Exception) -> None:
        """Count one failure."""
        with self._lock:
            self.counts[part] += 1
            told = part in self._away
            self._away.add(part)
        if not told:
            _log.warning("searching without %s until it answers again: %s", part, error)

    def works(self, part: str) -> None:
        """Note that a part responded."""
        if part in self._away:
            with self._lock:
                self._away.discard(part)
            _log.warning("searching with %s again", part)


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of a searcher.

    Args:
        passages: passages of the collection.
        words: BM25 index; None without passages.
        dense: query embedder and vector index; None without vectors.
        links: links between passages.
        rerankers: rerankers by name.
        expanding: link expansion settings.
        clock: monotonic clock in seconds.
        failures: failure counts.
    """

    passages: Sequence[Passage]
    words: Bm25 | None
    dense: tuple[Embedder, VectorIndex] | None
    links: Links | None
    rerankers: Mapping[str, Reranker]
    expanding: LinkExpansion
    clock: Callable[[], float]
    failures: Failures
