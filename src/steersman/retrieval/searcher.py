"""Searcher: BM25, dense and hybrid search over passages, with link expansion."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.retrieval.bm25 import Bm25, query_terms, stem, words
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.embedding_cache import unit_rows
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.passage_links import LinkExpansion
from steersman.retrieval.query import Engines, Failures, ScoredQuery
from steersman.retrieval.results import SearchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.documents.passage import Passage
    from steersman.retrieval.exact_index import VectorIndex
    from steersman.retrieval.passage_links import Links
    from steersman.retrieval.rerank import Reranker
    from steersman.retrieval.results import SearchResult

_MAX_QUERY = 20_000
_K1 = 1.2
"""nDCG@10 is .002 (scifact) and .004 (hotpotqa) higher than with 1.5, on training questions."""


class Searcher:
    """Searcher over a fixed collection of passages; thread-safe.

    If the embedder or the vector index fails, it searches with BM25 only. The failure is reported
    in the result, counted, and logged once.

    Args:
        passages: passages of the collection; not copied.
        embedder: query embedder; None: BM25 only.
        vectors: vector index by position; None: passages are embedded now and searched exactly.
        links: links between the passages, for `expansion`.
        rerankers: rerankers by name.
        expanding: link expansion settings.
        split: tokenizer of passages and queries. `searched_words` handles more names and scripts
            than `words`, which the published figures use.
        clock: monotonic clock in seconds, for reported times.

    Raises:
        InputError: vectors without an embedder; another dimension or number of vectors or links; or
            a reranker named ``off``.
        DataError: the extra ``rag`` is not installed.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        embedder: Embedder | None = None,
        vectors: VectorIndex | None = None,
        links: Links | None = None,
        rerankers: Mapping[str, Reranker] | None = None,
        expanding: LinkExpansion | None = None,
        split: Callable[[str], list[str]] = words,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        texts = [passage_text(passage) for passage in passages]
        dense = _dense(texts, embedder, vectors)
        if links is not None and len(links) != len(passages):
            raise InputError(
                f"the links cover {len(links):,} passages, but there are {len(passages):,}; "
                "link exactly the passages to search"
            )
        if rerankers is not None and "off" in rerankers:
            raise InputError("a reranker is named 'off', which is reserved; use another name")
        self._engines = Engines(
            passages=passages,
            words=passage_index(texts, split) if texts else None,
            dense=dense,
            links=links,
            rerankers=dict(rerankers or {}),
            expanding=expanding or LinkExpansion(),
            clock=clock,
            failures=Failures(),
        )

    @property
    def passages(self) -> Sequence[Passage]:
        """Passages of the collection, by position."""
        return self._engines.passages

    @property
    def embedder(self) -> str:
        """Name of the query embedder; "" without one."""
        return "" if self._engines.dense is None else self._engines.dense[0].name

    @property
    def failures(self) -> Mapping[str, int]:
        """Number of failures by part: ``dense``, ``rerank``."""
        return dict(self._engines.failures.counts)

    def search(self, query: str, settings: SearchSettings | None = None) -> SearchResult:
        """Return the best passages with their origins.

        Args:
            query: query text, 1 to 20,000 characters.
            settings: search settings; None: the defaults of `SearchSettings`.

        Raises:
            InputError: the query is empty or too long, or the searcher does not support the
                settings.
        """
        return self.scored(query).find(settings or SearchSettings())

    def rank(self, query: str, settings: SearchSettings | None = None) -> NDArray[np.intp]:
        """Return the positions of the best passages, best first.

        Args:
            query: query text, 1 to 20,000 characters.
            settings: search settings; None: the defaults of `SearchSettings`.

        Raises:
            InputError: as `search`.
        """
        return self.scored(query).rank(settings or SearchSettings())

    def scored(self, query: str) -> ScoredQuery:
        """Return a query for ranking under many settings; each engine is called at most once.

        Args:
            query: query text, 1 to 20,000 characters.

        Raises:
            InputError: the query is empty or too long.
        """
        if not query.strip() or len(query) > _MAX_QUERY:
            raise InputError(
                f"the query is {query[:40]!r}, {len(query):,} characters; allowed: 1 to "
                f"{_MAX_QUERY:,}, not all of them white space"
            )
        return ScoredQuery(self._engines, query)


def passage_index(texts: Sequence[str], split: Callable[[str], list[str]] = words) -> Bm25:
    """Return the BM25 index of passages, as `Searcher` builds it.

    Raises:
        InputError: no texts.
        DataError: the extra ``rag`` is not installed.
    """
    terms = partial(query_terms, split=split)
    return Bm25(texts, k1=_K1, stem=stem, query_terms=terms, split=split)


def _dense(
    texts: Sequence[str], embedder: Embedder | None, vectors: VectorIndex | None
) -> tuple[Embedder, VectorIndex] | None:
    if embedder is None:
        if vectors is None:
            return None
        raise InputError("vectors need an embedder for queries; pass the one that made them")
    if vectors is None:
        return embedder, ExactIndex(unit_rows(embedder.encode(texts), len(texts), embedder))
    if vectors.size != embedder.size:
        raise InputError(
            f"the embedder {embedder.name} has dimension {embedder.size}, but the passage "
            f"vectors have {vectors.size}; embed them again, or pass the embedder that made them"
        )
    if len(vectors) != len(texts):
        raise InputError(
            f"{len(vectors):,} vectors for {len(texts):,} passages; pass one vector per passage"
        )
    return embedder, vectors
