"""History of each tool, and the features of (request, tool) computed from it.

An unused tool has only its text. Each success adds weight to the requests that it served. Features
of the past shrink to a prior, so a new tool competes by its scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.assistant.engines import fuse

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
"""Column names of `tool_features`, in order."""

_MEMORY = 64
"""Maximum number of past requests per tool; the oldest is replaced."""
_TEXT_WEIGHT = 2.0
"""Weight of a tool's text, in served requests."""
_PRIOR_USES, _PRIOR_RATE = 2.0, 0.7
"""Prior of a new tool: two uses with success rate .7, about the rate of the best engine."""
_BANDWIDTH = 0.05
"""Cosine distance over which the weight of a past request falls by the factor e."""
_PRIOR_SAY = 0.1


@dataclass(slots=True)
class _Past:
    """Ring buffer of the latest requests of a tool."""

    embeddings: Embedding
    right: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(_MEMORY, np.bool_))
    uses: int = 0


class ToolHistory:
    """Outcomes of the used tools.

    Only the outcome of the used tool is known, so only its history grows.

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
        """Add one use of a tool.

        Args:
            tool: Index of the tool, 0 ≤ tool < tools.

        Raises:
            InputError: Unknown tool, or an embedding of another shape or not finite.
        """
        count, size = self._tools.shape
        if not 0 <= tool < count:
            message = f"tool {tool} is not in the catalogue; allowed: 0..{count - 1}"
            raise InputError(message)
        if np.shape(embedding) != (size,) or not np.isfinite(embedding).all():
            message = f"embedding has shape {np.shape(embedding)}; expected ({size},), all finite"
            raise InputError(message)
        past = self._pasts.get(tool)
        if past is None:
            past = self._pasts[tool] = _Past(np.zeros((_MEMORY, size), np.float32))
        place = past.uses % _MEMORY
        past.embeddings[place] = embedding
        past.right[place] = right
        past.uses += 1

    def uses(self, tool: int) -> int:
        """Return the number of uses of a tool, with those that left the ring buffer."""
        past = self._pasts.get(tool)
        return 0 if past is None else past.uses

    def summary(self, tools: NDArray[np.int64], embedding: Embedding) -> Floats:
        """Return history features of some tools for one request.

        Returns:
            (n, 4) float64: success rate minus its prior; similarity to text and served requests;
            weighted success of similar requests, in [0, 1); largest similarity to a served one.
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
    """Return the features of each candidate tool for one request; the history is only read.

    Args:
        bm25: (n,) BM25 scores.
        name_match: (n,) share of the words of each tool's name in the request, in [0, 1].

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
    """Return each score minus the best of the others; only the best one is positive.

    Args:
        scores: (n,) numbers, n ≥ 1.

    Returns:
        (n,) float64; zero for a single score.

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
