"""How to search: what is asked of a searcher beside the query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steersman.errors import InputError

CANDIDATES = 100
"""Passages that each engine gives; the zero of the convex fusion's scale is the last of them."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How to search.

    Args:
        variant: rank by words, by meaning, or by both.
        k: hits wanted, a whole number from 1 to 100.
        fusion: how both become one ranking; `hybrid` alone has it.
        fusion_weight: of meaning, 0 to 1; `hybrid` alone has it.
        rerank: ``off``, or the name of one of the searcher's rerankers.
        expansion: whether passages that the best ones lead to are added.

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
        # Written so that NaN is refused too.
        if not 0.0 <= self.fusion_weight <= 1.0:
            raise InputError(f"fusion_weight is {self.fusion_weight!r}; allowed: 0 to 1")
