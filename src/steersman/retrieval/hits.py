"""What a search gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.retrieval.documents import Passage


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that was found.

    Args:
        position: of the passage in the collection.
        passage: itself.
        score: what it was ranked by: its engine's score, the fused one, or the reranker's share.
        ranks: its place, from 1, in each engine's candidates: ``bm25``, ``dense``.
        expanded_from: id of the passage that led to it, if no engine found it.
    """

    position: int
    passage: Passage
    score: float
    ranks: Mapping[str, int]
    expanded_from: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Args:
        hits: best first.
        degraded: parts that were wanted and could not be asked: ``dense``, ``rerank``.
        timings_ms: what each part took: ``bm25``, ``embed``, ``dense``, ``fuse``, ``expand``,
            ``rerank``; their sum is the search.
    """

    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
