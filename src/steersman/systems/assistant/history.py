"""What each tool has done so far, and the features of (request, tool) that come of it.

A tool that was never used has its own text only; with every success the requests it served speak
for it more. All features that use the past shrink to what is known without it, so a tool met for
the first time competes by its scores and is not pushed aside for being new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.systems.assistant.engines import fuse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Embedding = NDArray[np.float32]

TOOL_FEATURES = (
    "bias",
    "bm25",
    "bm25_rank",
    "dense_rank",
    "name_match",
    "success_rate",
    "similarity",
    "neighbour_share",
    "neighbour_similarity",
    "fused",
    "fused_gap",
)
"""Names of the columns of `tool_features`, in their order."""

_MEMORY = 64
"""Past requests kept of each tool; the oldest makes room, so the past of a tool is bounded."""
_TEXT_WEIGHT = 2.0
"""A tool's own text counts as much as two requests it served."""
_PRIOR_USES, _PRIOR_RATE = 2.0, 0.7
"""A new tool is taken for one that was right .7 of two times, about the rate of the best engine."""
_BANDWIDTH = 0.05
"""Cosine distance over which a past request's say falls by the factor e."""
_PRIOR_SAY = 0.1


@dataclass(slots=True)
class _Past:
    """The latest requests a tool was used for, as a ring."""

    embeddings: Embedding
    right: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(_MEMORY, np.bool_))
    uses: int = 0


class ToolHistory:
    """Outcomes of the tools that were used, kept per tool.

    Only the outcome of a tool that was used is known, so only that one learns.

    Args:
        tool_embeddings: (tools, d) float32 unit vectors of the tools' texts.

    >>> history = ToolHistory(np.eye(3, dtype=np.float32))
    >>> request = np.array([0.6, 0.8, 0.0], np.float32)
    >>> history.add(1, request, right=True)
    >>> history.summary(np.array([0, 1]), request).round(2)
    array([[0.  , 0.6 , 0.  , 0.  ],
           [0.1 , 0.87, 0.91, 1.  ]])
    """

    def __init__(self, tool_embeddings: Embedding) -> None:
        self._tools = np.asarray(tool_embeddings, np.float32)
        self._pasts: dict[int, _Past] = {}

    def add(self, tool: int, embedding: Embedding, *, right: bool) -> None:
        """Remember one use of a tool.

        Args:
            tool: Its index, 0 ≤ tool < tools.
            embedding: (d,) unit vector of the request it was used for.
            right: Whether it was the right tool.

        Raises:
            InputError: No such tool, or an embedding of another shape or not finite.
        """
        count, size = self._tools.shape
        if not 0 <= tool < count:
            message = f"tool {tool} is not in the catalogue; allowed: 0..{count - 1}"
            raise InputError(message)
        if np.shape(embedding) != (size,) or not np.isfinite(embedding).all():
            message = f"embedding has shape {np.shape(embedding)}; wanted ({size},), finite"
            raise InputError(message)
        past = self._pasts.get(tool)
        if past is None:
            past = self._pasts[tool] = _Past(np.zeros((_MEMORY, size), np.float32))
        place = past.uses % _MEMORY
        past.embeddings[place] = embedding
        past.right[place] = right
        past.uses += 1

    def uses(self, tool: int) -> int:
        """How often a tool was used, whether it was right or not.

        Args:
            tool: Its index.

        Returns:
            The number of uses, those no longer remembered included.
        """
        past = self._pasts.get(tool)
        return 0 if past is None else past.uses

    def summary(self, tools: NDArray[np.int64], embedding: Embedding) -> Floats:
        """What the past says about some tools for one request.

        Args:
            tools: (n,) tool indices.
            embedding: (d,) the request's unit vector.

        Returns:
            (n, 4) float64: success rate minus its prior; similarity to text and served requests;
            the say of similar requests it served, in [0, 1); the largest similarity to one.
        """
        texts = self._tools[tools] @ np.asarray(embedding, np.float32)
        rows = [
            self._one(int(tool), float(text), embedding)
            for tool, text in zip(tools, texts, strict=True)
        ]
        return np.array(rows, np.float64).reshape(-1, 4)

    def _one(self, tool: int, text: float, embedding: Embedding) -> tuple[float, ...]:
        past = self._pasts.get(tool)
        if past is None:
            return 0.0, text, 0.0, 0.0
        kept = min(past.uses, _MEMORY)
        cosines = past.embeddings[:kept] @ embedding
        right = past.right[:kept]
        served = cosines[right]
        rate = (len(served) + _PRIOR_RATE * _PRIOR_USES) / (kept + _PRIOR_USES) - _PRIOR_RATE
        similarity = (_TEXT_WEIGHT * text + served.sum()) / (_TEXT_WEIGHT + len(served))
        say = np.exp((cosines - 1.0) / _BANDWIDTH)
        share = say[right].sum() / (say.sum() + _PRIOR_SAY)
        return rate, float(similarity), float(share), float(served.max(initial=0.0))


def tool_features(
    history: ToolHistory,
    tools: NDArray[np.int64],
    bm25: NDArray[np.float32],
    dense: NDArray[np.float32],
    name_match: Floats,
    embedding: Embedding,
) -> Floats:
    """Features of each candidate tool for one request; pure, the history is only read.

    Args:
        history: What the tools did so far.
        tools: (n,) candidate tool indices.
        bm25: (n,) their BM25 scores.
        dense: (n,) their cosines.
        name_match: (n,) share of the words of each tool's name that the request says, in [0, 1].
        embedding: (d,) the request's unit vector.

    Returns:
        (n, 11) float64 in the order of `TOOL_FEATURES`, all within about [-1, 1].
    """
    rate, similarity, share, nearest = history.summary(tools, embedding).T
    fused = fuse(bm25, similarity)
    columns = (
        np.ones(len(tools)),
        fuse(bm25, bm25),
        _reciprocal_rank(bm25),
        _reciprocal_rank(dense),
        name_match,
        rate,
        similarity,
        share,
        nearest,
        fused,
        lead(fused),
    )
    return np.column_stack(columns).astype(np.float64)


def lead(scores: NDArray[np.floating]) -> Floats:
    """How far each score is above the best of the others: positive for the best one alone.

    Args:
        scores: (n,) numbers, n ≥ 1.

    Returns:
        (n,) float64; zero where there is no other.

    >>> lead(np.array([0.5, 1.0, 0.25])).tolist()
    [-0.5, 0.5, -0.75]
    """
    if len(scores) < 2:
        return np.zeros(len(scores))
    wide = np.asarray(scores, np.float64)
    second, best = np.partition(wide, -2)[-2:]
    rival = np.full(len(wide), best)
    rival[wide.argmax()] = second
    ahead: Floats = wide - rival
    return ahead


def _reciprocal_rank(scores: NDArray[np.floating]) -> Floats:
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    return 1.0 / ranks
