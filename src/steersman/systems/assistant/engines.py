"""The assistant's two search engines, and how their scores become one ranking.

An engine scores the whole catalogue. Both scores are divided by their largest, so the best tool of
each engine scores one, and the mean of the two is the fused score: nothing to tune, and
independent of how many tools the catalogue has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.retrieval import Bm25, MiniLM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.systems.assistant.requests import Catalogue

PER_ENGINE = 10
"""Tools each engine puts on the shortlist; twice this is its largest length."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the engines say about one request.

    Args:
        shortlist: (n,) tool indices, n ≤ 20: BM25's best ten, then those of the encoder's best ten
            that are not among them; each part best first.
        bm25: (n,) BM25 scores, ≥ 0.
        dense: (n,) cosines of request and tool.
        embedding: (384,) the request's unit vector.
        bm25_ms: Time of BM25.
        dense_ms: Time of the encoder and its dot products.
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
    """BM25 and MiniLM over one catalogue.

    Args:
        catalogue: The tools to find.
        home: Directory of the caches, see `steersman.retrieval.state_directory`.

    Raises:
        DataError: The extra ``rag`` is missing, or the model cannot be fetched.
    """

    def __init__(self, catalogue: Catalogue, home: Path | None = None) -> None:
        texts = [tool.text for tool in catalogue.tools]
        self._words = Bm25(texts)
        self._encoder = MiniLM(home)
        self.tool_embeddings = self._encoder.encode(texts)

    def find(self, text: str, *, clock: Callable[[], float], repeats: int = 1) -> Found:
        """Scores, shortlist and times of one request.

        Args:
            text: The request.
            clock: Seconds, monotonic; ``time.perf_counter`` outside tests.
            repeats: Times each engine runs, ≥ 1; the median time is kept, so one interruption by
                another process does not become a latency.

        Returns:
            What the engines found.
        """
        runs = [self._timed(text, clock) for _ in range(repeats)]
        first = runs[0]
        shortlist = shortlisted(first.bm25, first.dense)
        return Found(
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
    """The best ten tools of each engine, without repeats.

    Args:
        bm25: (tools,) scores of BM25.
        dense: (tools,) scores of the encoder.

    Returns:
        (n,) tool indices, 10 ≤ n ≤ 20; among equal scores the tool listed first comes first.

    >>> scores = np.arange(12.0, dtype=np.float32)
    >>> shortlisted(scores, scores).tolist()
    [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]
    """
    first, second = (np.argsort(-scores, kind="stable")[:PER_ENGINE] for scores in (bm25, dense))
    return np.concatenate([first, second[~np.isin(second, first)]]).astype(np.int64)


def fuse(bm25: NDArray[np.float32], dense: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean of the two engines' scores, each divided by its largest.

    Args:
        bm25: (n,) scores of BM25, ≥ 0; all zero where no word is known, and then they say nothing.
        dense: (n,) cosines; the largest is positive for any request in a language the encoder
            knows, and a request without a positive cosine is ranked by words alone.

    Returns:
        (n,) float64 in [0, 1]; cosines below zero count as zero.

    >>> fuse(np.array([4, 2], np.float32), np.array([0.4, 0.8], np.float32)).tolist()
    [0.75, 0.75]
    """
    return 0.5 * (_scaled(bm25) + _scaled(dense))


def _scaled(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    wide = np.asarray(scores, np.float64)
    largest = wide.max(initial=0.0)
    # A cosine below zero says no more than zero does, and must not weigh more than the best score.
    return np.maximum(wide / largest, 0.0) if largest > 0 else np.zeros_like(wide)
