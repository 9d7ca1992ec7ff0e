"""One search under a configuration, with timeout and retry."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from steersman.retrieval.results import SearchSettings
from steersman_systems.rag_tuner.ranking_metrics import ndcg_at, recall_at
from steersman_systems.rag_tuner.recorded import COST_K
from steersman_systems.rag_tuner.reward import Batch
from steersman_systems.rag_tuner.timeout import WorkTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from steersman.retrieval.results import SearchResult
    from steersman.retrieval.searcher import Searcher
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.judged_collections import Question
    from steersman_systems.rag_tuner.limits import Limits

_NDCG_K = 10
PASSING = ("budget", "model", "unavailable", "refused", "embedder")
"""Reasons for a missing verdict that may pass on a retry."""


class QueryResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one query under a configuration.

    Attributes:
        quality: Two measures; None: not defined.
        latency_ms: Latency of search and answer in milliseconds.
        cost: Cost in units of the reference cost of one query; computed on reading.
        failed: Whether the answer is missing.
        violation: Whether an answer has forbidden content; detected on reading.
        unstable: Whether repeated answers differ; detected on reading.
        degraded: Parts of the search that were not available; such a search is not counted.
        why: Reason of an undefined measure or a missing answer.
        cost_usd: Cost of the answer in USD, without the judge.
        answer: Text of the answer; None: no answer.
        others: Repeated answers.
        contexts: Ids of the found passages, best first.
    """

    quality: tuple[float | None, float | None]
    latency_ms: float
    cost: float = 0.0
    failed: bool = False
    violation: bool = False
    unstable: bool = False
    degraded: tuple[str, ...] = ()
    why: str = ""
    cost_usd: float = 0.0
    answer: str | None = None
    others: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """All answers."""
        return () if self.answer is None else (self.answer, *self.others)

    @property
    def is_evidence(self) -> bool:
        """Whether it counts as evidence: no part of the search and no judge was unavailable."""
        return not self.degraded and self.why not in PASSING

    @property
    def is_whole(self) -> bool:
        """Whether no retry is needed."""
        return self.is_evidence and not self.failed


def batch_of(
    configuration: Configuration,
    told: Mapping[int, QueryResult],
    places: Sequence[int],
    measures: tuple[str, str],
) -> Batch:
    """Return the results of some queries as a batch.

    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> batch_of(
    ...     Configuration(), {7: QueryResult((0.5, None), 3.0)}, [7], ("recall", "ndcg")
    ... ).quality
    array([[0.5, nan]])
    """
    each = [told[place] for place in places]
    return Batch(
        configuration=configuration,
        queries=np.array(places, np.intp),
        # None becomes NaN: not defined.
        quality=np.array([one.quality for one in each], np.float64),
        latency_ms=np.array([one.latency_ms for one in each]),
        cost=np.array([one.cost for one in each]),
        failed=np.array([one.failed for one in each]),
        violations=np.array([one.violation for one in each]),
        unstable=np.array([one.unstable for one in each]),
        measures=measures,
    )


class JudgedSearch(NamedTuple):
    """Result of a search.

    Attributes:
        told: Result judged by its passages.
        passages: Texts of the passages, best first.
    """

    told: QueryResult
    passages: tuple[str, ...]


class SearchCall:
    """Call of a searcher with timeout and retry.

    Args:
        searcher: Searcher over one revision of a corpus.
        reranker: Reranker for "rerank: on".
        limits: Timeout and tries.
        sleep: Waits a number of seconds.
        core: Context for searching, after the question is embedded.
        served: True if the embedder is remote; its calls run outside `core`.
    """

    def __init__(
        self,
        searcher: Searcher,
        reranker: str,
        limits: Limits,
        sleep: Callable[[float], None],
        *,
        core: Callable[[], AbstractContextManager[object]] = nullcontext,
        served: bool = False,
    ) -> None:
        self._core, self._served = core, served
        self._searcher, self._reranker = searcher, reranker
        self._limits, self._sleep = limits, sleep
        self._in_time = WorkTimeout(limits.timeout_s, hanging=limits.hanging)

    def ask(self, question: Question, configuration: Configuration) -> JudgedSearch:
        """Return the result of a question under a configuration.

        Raises:
            InputError: The searcher does not support the configuration.
        """
        settings = settings_of(configuration, self._reranker)
        found, late = None, 0
        for tries in range(self._limits.tries):
            if tries:
                self._sleep(self._limits.pause_s)
            found = self._search(question, settings)
            late += found is None
            if found is not None and not found.degraded:
                break
        late_ms = 1e3 * self._limits.timeout_s * late
        if found is None:
            return JudgedSearch(self._late(question, settings, late_ms), ())
        told = judged_by_passages(found, question.gains, configuration.k)
        told = msgspec.structs.replace(told, latency_ms=told.latency_ms + late_ms)
        return JudgedSearch(told, tuple(hit.passage.text for hit in found.hits))

    def _search(self, question: Question, settings: SearchSettings) -> SearchResult | None:
        scored = self._searcher.scored(question.text)
        if self._served and settings.variant != "bm25":
            vector = SearchSettings(variant="dense", k=1)
            if self._in_time.within(lambda: scored.rank(vector)) is None:
                return None
        with self._core():
            return self._in_time.within(lambda: scored.find(settings))

    def _late(self, question: Question, settings: SearchSettings, late_ms: float) -> QueryResult:
        """Return a failed result; or no evidence, if a part hangs in a minimal search too."""
        away = "search" if self._in_time.is_stuck else self._hangs(question, settings)
        if away:
            return QueryResult((None, None), late_ms, degraded=(away,), why=f"{away} hangs")
        why = f"no hits within {self._limits.timeout_s:g} s"
        return QueryResult((0.0, 0.0), late_ms, failed=True, why=why)

    def _hangs(self, question: Question, settings: SearchSettings) -> str:
        """Return the part that hangs in a minimal search; "" for none."""
        least = SearchSettings(variant="bm25", k=1)
        parts = {"bm25": least}
        if settings.variant != "bm25":
            parts["dense"] = replace(least, variant="hybrid")
        if settings.rerank != "off":
            parts["rerank"] = replace(least, rerank=settings.rerank)
        for name, probe in parts.items():
            found = self._search(question, probe)
            if found is None or found.degraded:
                return name
        return ""


def judged_by_passages(found: SearchResult, gains: Mapping[str, float], k: int) -> QueryResult:
    """Return the result of a search by its judged passages: recall@k and nDCG@min(k, 10)."""
    ids = list(dict.fromkeys(hit.passage.doc_id for hit in found.hits))
    quality = recall_at(ids, gains, k), ndcg_at(ids, gains, min(k, _NDCG_K))
    took = sum(found.timings_ms.values())
    contexts = tuple(hit.passage.id for hit in found.hits)
    return QueryResult(quality, took, k / COST_K, degraded=tuple(found.degraded), contexts=contexts)


def settings_of(configuration: Configuration, reranker: str) -> SearchSettings:
    """Return the search settings of a configuration.

    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> settings_of(Configuration("rrf", k=3), "cosine").fusion
    'rrf'
    """
    fused = configuration.variant in {"hybrid", "rrf"}
    return SearchSettings(
        variant="hybrid" if fused else configuration.variant,  # type: ignore[arg-type]  # the two
        k=configuration.k,
        fusion="rrf" if configuration.variant == "rrf" else "convex",
        fusion_weight=configuration.fusion_weight,
        rerank=reranker if configuration.rerank else "off",
        expansion=configuration.expansion,
    )
