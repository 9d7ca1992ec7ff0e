"""The best candidates looked at once more, by something too slow to look at every passage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder


class Reranker(Protocol):
    """Whatever says how well passages answer a query, looking at both.

    No doctest: it is an interface; `CosineReranker` is one.
    """

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores of some passages.

        Args:
            query: what is asked.
            texts: of the passages, as `passage_text` gives them.

        Returns:
            (texts,) finite numbers, higher for better; each depends on its own text alone.
        """


class CosineReranker:
    """Order by the cosine of query and passage.

    Worth its time after BM25 alone, and with an embedder that is better than the one of the index;
    with the same embedder, hybrid search has said all this already.

    Args:
        embedder: best a `CachedEmbedder`, for it embeds every candidate.

    No doctest: it needs a model; ``tests/retrieval/test_rerank.py`` shows it.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosines of a query and some texts.

        Args:
            query: what is asked.
            texts: of the passages.

        Returns:
            (texts,) in [-1, 1].
        """
        if not texts:
            return np.zeros(0, np.float32)
        return np.asarray(
            self._embedder.encode(list(texts)) @ self._embedder.encode([query])[0], np.float32
        )
