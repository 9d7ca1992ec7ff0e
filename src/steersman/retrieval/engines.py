"""What a searcher searches with, and what becomes of a part that does not answer."""

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
    from steersman.retrieval.documents import Passage
    from steersman.retrieval.linking import Expanding, Links
    from steersman.retrieval.rerank import Reranker
    from steersman.retrieval.vectors import VectorIndex

_log = logging.getLogger(__name__)


class Failures:
    """How often a part could not be asked, by its name; told once until it works again."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._away: set[str] = set()
        self._lock = threading.Lock()

    def count(self, part: str, error: Exception) -> None:
        """Count one failure.

        Args:
            part: its name.
            error: what happened.
        """
        with self._lock:
            self.counts[part] += 1
            told = part in self._away
            self._away.add(part)
        if not told:
            _log.warning("searching without %s until it answers again: %s", part, error)

    def works(self, part: str) -> None:
        """Note that a part answered.

        Args:
            part: its name.
        """
        if part in self._away:
            with self._lock:
                self._away.discard(part)
            _log.warning("searching with %s again", part)


@dataclass(frozen=True, slots=True)
class Engines:
    """What a searcher searches with.

    Args:
        passages: of the collection.
        words: None if there is no passage.
        dense: the embedder of queries, and the vectors of the passages by their positions; None
            if there are none.
        links: between the passages.
        rerankers: by name.
        expanding: how far links are followed.
        clock: monotonic clock in seconds.
        failures: counts them.
    """

    passages: Sequence[Passage]
    words: Bm25 | None
    dense: tuple[Embedder, VectorIndex] | None
    links: Links | None
    rerankers: Mapping[str, Reranker]
    expanding: Expanding
    clock: Callable[[], float]
    failures: Failures
