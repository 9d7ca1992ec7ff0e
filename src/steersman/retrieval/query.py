"""Query with cached engine results, for ranking under many settings."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from steersman.errors import BackendError, DataError, InputError, StoreError
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.embedding_cache import unit_rows
from steersman.retrieval.passage_links import expand
from steersman.retrieval.ranking import Ranking, convex, ordered, rrf
from steersman.retrieval.results import CANDIDATES, Hit, SearchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.passage_links import Links
    from steersman.retrieval.rerank import Reranker
    from steersman.retrieval.results import SearchSettings

    T = TypeVar("T")
    from collections.abc import Sequence

    from steersman.retrieval.bm25 import Bm25
    from steersman.retrieval.documents.passage import Passage
    from steersman.retrieval.exact_index import VectorIndex
    from steersman.retrieval.passage_links import LinkExpansion

_log = logging.getLogger(__name__)


class Failures:
    """Failure counts by part; a failure is logged once until the part works again."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._away: set[str] = set()
        self._lock = threading.Lock()

    def count(self, part: str, error: Exception) -> None:
        """Count a failure, and log the first one."""
        with self._lock:
            self.counts[part] += 1
            logged = part in self._away
            self._away.add(part)
        if not logged:
            _log.warning("searching without %s until it answers again: %s", part, error)

    def works(self, part: str) -> None:
        """Record that a part responded."""
        if part in self._away:
            with self._lock:
                self._away.discard(part)
            _log.warning("searching with %s again", part)


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of a searcher.

    Args:
        passages: passages of the collection.
        words: BM25 index; None without passages.
        dense: query embedder and vector index; None without vectors.
        links: links between passages.
        rerankers: rerankers by name.
        expanding: link expansion settings.
        clock: monotonic clock in seconds.
        failures: failure counts.
    """

    passages: Sequence[Passage]
    words: Bm25 | None
    dense: tuple[Embedder, VectorIndex] | None
    links: Links | None
    rerankers: Mapping[str, Reranker]
    expanding: LinkExpansion
    clock: Callable[[], float]
    failures: Failures


RERANKED = 20
"""Number of reranked passages; the rest follows in unchanged order."""
_FUSIONS = {"convex": convex, "rrf": rrf}
# Temporary failures. `InputError` is not one: it does not go away.
_AWAY = (BackendError, DataError, StoreError, OSError)
_NONE = Ranking(np.zeros(0, np.intp), np.zeros(0, np.float32))


@dataclass(slots=True)
class _Search:
    """Ranking in progress."""

    ranked: Ranking
    origins: Mapping[int, int] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)


class ScoredQuery:
    """Query with cached engine results; each engine is called at most once, when first needed.

    For recorders and tuners, which try many settings on one query. Use it from one thread only.
    Cached results keep the time of their call, so reported times equal those of a single search.

    Args:
        engines: engines of the searcher.
        query: query text.
    """

    def __init__(self, engines: Engines, query: str) -> None:
        self._engines = engines
        self._query = query
        self._asked: dict[str, tuple[Any, float]] = {}
        self._rescored: dict[str, dict[int, tuple[float, float]]] = {}

    def rank(self, settings: SearchSettings) -> NDArray[np.intp]:
        """Return the positions of the best passages, best first.

        Raises:
            InputError: the searcher does not support the settings.
        """
        return self._search(settings).ranked.positions

    def find(self, settings: SearchSettings) -> SearchResult:
        """Return the best passages with their origins.

        Raises:
            InputError: the searcher does not support the settings.
        """
        done = self._search(settings)
        places = self._places()
        passages = self._engines.passages
        hits = tuple(
            Hit(
                position=position,
                passage=passages[position],
                score=score,
                ranks=MappingProxyType(
                    {name: of[position] for name, of in places.items() if position in of}
                ),
                expanded_from=(
                    passages[done.origins[position]].id if position in done.origins else None
                ),
            )
            for position, score in zip(
                done.ranked.positions.tolist(), done.ranked.scores.tolist(), strict=True
            )
        )
        return SearchResult(hits, tuple(done.degraded), done.timings_ms)

    # -- stages -----------------------------------------------------------------------------------

    def _search(self, settings: SearchSettings) -> _Search:
        links, reranker = self._links(settings), self._reranker(settings)
        done = self._candidates(settings)
        if links is not None:
            self._expand(done, links)
        if reranker is not None:
            self._rerank(done, settings.rerank, reranker)
        done.ranked = done.ranked.first(settings.k)
        return done

    def _links(self, settings: SearchSettings) -> Links | None:
        if settings.expansion and self._engines.links is None:
            raise InputError(
                "expansion is on, but these passages have no links; create the searcher with "
                "links=link_titles(passages), or turn expansion off"
            )
        return self._engines.links if settings.expansion else None

    def _reranker(self, settings: SearchSettings) -> Reranker | None:
        known = self._engines.rerankers
        if settings.rerank != "off" and settings.rerank not in known:
            names = ", ".join(["off", *known])
            raise InputError(f"rerank is {settings.rerank!r}; this searcher has {names}")
        return known.get(settings.rerank)

    def _candidates(self, settings: SearchSettings) -> _Search:
        if settings.variant == "dense" and self._engines.dense is None:
            raise InputError(
                "variant is dense, but these passages have no vectors; embed them, or use bm25"
            )
        done = _Search(_NONE)
        meaning = self._meaning(done) if settings.variant != "bm25" else None
        if settings.variant == "dense" and meaning is not None:
            done.ranked = meaning
            return done
        words = self._words(done)
        if meaning is None:
            done.ranked = words
            return done
        start = self._engines.clock()
        done.ranked = _FUSIONS[settings.fusion](words, meaning, settings.fusion_weight)
        done.timings_ms["fuse"] = self._since(start)
        return done

    def _words(self, done: _Search) -> Ranking:
        words = self._engines.words
        if words is None:
            return _NONE
        return self._once("bm25", lambda: words.ranked(self._query, CANDIDATES), done)

    def _meaning(self, done: _Search) -> Ranking | None:
        """Return the nearest passages; None if dense search failed."""
        found = None
        if self._engines.dense is not None:
            embedder, vectors = self._engines.dense
            try:
                vector = self._once("embed", lambda: self._embedded(embedder), done)
                found = self._once(
                    "dense", lambda: Ranking(*vectors.search(vector, CANDIDATES)), done
                )
            except _AWAY as error:
                self._engines.failures.count("dense", error)
            else:
                self._engines.failures.works("dense")
        if found is None:
            done.degraded.append("dense")
        return found

    def _embedded(self, embedder: Embedder) -> NDArray[np.float32]:
        row: NDArray[np.float32] = unit_rows(embedder.encode([self._query]), 1, embedder)[0]
        return row

    def _expand(self, done: _Search, links: Links) -> None:
        start = self._engines.clock()
        done.ranked, done.origins = expand(done.ranked, links, self._engines.expanding)
        done.timings_ms["expand"] = self._since(start)

    def _rerank(self, done: _Search, name: str, reranker: Reranker) -> None:
        """Rerank the best candidates; the rest follows in unchanged order."""
        first = done.ranked.first(RERANKED)
        try:
            scores, took = self._rescore(name, reranker, first.positions.tolist())
        except _AWAY as error:
            self._engines.failures.count("rerank", error)
            done.degraded.append("rerank")
            return
        self._engines.failures.works("rerank")
        done.timings_ms["rerank"] = took
        again = ordered(first.positions, scores)
        rest = len(first.positions)
        below = again.scores.min(initial=0.0) - 1.0 - np.arange(len(done.ranked.positions) - rest)
        done.ranked = Ranking(
            np.concatenate([again.positions, done.ranked.positions[rest:]]),
            np.concatenate([again.scores, below]).astype(np.float32),
        )

    def _rescore(
        self, name: str, reranker: Reranker, positions: list[int]
    ) -> tuple[NDArray[np.float32], float]:
        """Return the reranker's scores and their time in ms; compute only missing ones."""
        known = self._rescored.setdefault(name, {})
        missing = [position for position in positions if position not in known]
        if missing:
            texts = [passage_text(self._engines.passages[position]) for position in missing]
            start = self._engines.clock()
            scores = np.asarray(reranker.scores(self._query, texts))
            each = self._since(start) / len(missing)
            if scores.shape != (len(missing),) or not np.isfinite(scores).all():
                raise InputError(
                    f"the reranker {name} returned shape {scores.shape} for "
                    f"{len(missing)} texts; it must return one finite number per text"
                )
            known.update(
                (position, (score, each))
                for position, score in zip(missing, scores.tolist(), strict=True)
            )
        found = [known[position] for position in positions]
        return np.array([score for score, _ in found], np.float32), sum(ms for _, ms in found)

    # -- cached results ---------------------------------------------------------------------------

    def _once(self, part: str, ask: Callable[[], T], done: _Search) -> T:
        if part not in self._asked:
            start = self._engines.clock()
            answer = ask()
            self._asked[part] = answer, self._since(start)
        answer, done.timings_ms[part] = self._asked[part]
        return cast("T", answer)

    def _since(self, start: float) -> float:
        return 1e3 * (self._engines.clock() - start)

    def _places(self) -> dict[str, dict[int, int]]:
        found = {part: self._asked[part][0] for part in ("bm25", "dense") if part in self._asked}
        return {
            part: {position: place for place, position in enumerate(one.positions.tolist(), 1)}
            for part, one in found.items()
        }
