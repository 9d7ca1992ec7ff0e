"""Search results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.retrieval.documents.passage import Passage

CANDIDATES = 100
"""Number of candidates per engine; the last candidate is the zero of the convex fusion's scale."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Search settings.

    Args:
        variant: engine: ``bm25``, ``dense`` or both (``hybrid``).
        k: number of hits, 1 to 100.
        fusion: fusion of both rankings (`hybrid` only).
        fusion_weight: weight of dense search, 0 to 1 (`hybrid` only).
        rerank: ``off``, or the name of a reranker.
        expansion: whether to add passages linked by the best ones.

    Raises:
        InputError: a value is out of range.

    >>> SearchSettings(k=3).variant
    'hybrid'
    """

    variant: Literal["bm25", "dense", "hybrid"] = "hybrid"
    k: int = 10
    fusion: Literal["convex", "rrf"] = "convex"
    fusion_weight: float = 0.5
    rerank: str = "off"
    expansion: bool = False

    def __post_init__(self) -> None:
        if self.variant not in {"bm25", "dense", "hybrid"}:
            raise InputError(f"variant is {self.variant!r}; allowed: bm25, dense, hybrid")
        whole = hasattr(self.k, "__index__") and not isinstance(self.k, bool)
        if not whole or not 1 <= self.k <= CANDIDATES:
            raise InputError(f"k is {self.k!r}; allowed: 1 to {CANDIDATES}")
        if self.fusion not in {"convex", "rrf"}:
            raise InputError(f"fusion is {self.fusion!r}; allowed: convex, rrf")
        # This form also refuses NaN.
        if not 0.0 <= self.fusion_weight <= 1.0:
            raise InputError(f"fusion_weight is {self.fusion_weight!r}; allowed: 0 to 1")


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
class SearchResult:
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
