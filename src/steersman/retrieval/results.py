"""Search results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.retrieval.documents.passage import Passage


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result.

    Args:
        position: position of the passage in the collection.
        passage: the passage.
        score: ranking score: the engine's, the fused, or the reranker's.
        ranks: rank, from 1, in each engine's candidates: ``bm25``, ``dense``.
        expanded_from: id of the passage that links to it, if no engine found it.
    """

    position: int
    passage: Passage
    score: float
    ranks: Mapping[str, int]
    expanded_from: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a search.

    Args:
        hits: results, best first.
        degraded: requested parts that did not respond: ``dense``, ``rerank``.
        timings_ms: duration of each part in ms: ``bm25``, ``embed``, ``dense``, ``fuse``,
            ``expand``, ``rerank``; their sum is the search time.
    """

    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
