"""One question asked of a searcher under a configuration: in time, and again if a part was away."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from steersman.retrieval import SearchSettings, ndcg_at, recall_at
from steersman.systems.rag_tuner.recorded import COST_K

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.retrieval import Found, Question, Searcher
    from steersman.systems.rag_tuner.configuration import Configuration
    from steersman.systems.rag_tuner.limits import Limits

T = TypeVar("T")
_NDCG_K = 10
PASSING = ("budget", "unavailable", "embedder")
"""Why an answer was not judged, where it may well be another time."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one query gave under a configuration.

    Attributes:
        quality: Two measures; None: not defined.
        latency_ms: Of search and answer.
        cost: In units of the reference cost of one query.
        failed: Whether there was no answer.
        violation: Whether the answer held what must not be in it.
        degraded: Parts of the search that did not answer: then it is no evidence.
        why: A measure is not defined, or there was no answer.
        cost_usd: Of answer and judgement.
    """

    quality: tuple[float | None, float | None]
    latency_ms: float
    cost: float
    failed: bool = False
    violation: bool = False
    degraded: tuple[str, ...] = ()
    why: str = ""
    cost_usd: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether it need not be tried again."""
        return not self.degraded and not self.failed and self.why not in PASSING


class Searched(NamedTuple):
    """What a search gave.

    Attributes:
        told: Judged by its passages.
        passages: Their texts, best first.

    No doctest: a pair of values, made by `Asking`.
    """

    told: Told
    passages: tuple[str, ...]


class Asking:
    """Asks a searcher.

    Args:
        searcher: Over one revision of a corpus.
        reranker: The one that "rerank: on" means.
        limits: Time-out and tries.
        sleep: Waits that many seconds.

    No doctest: it needs a searcher; ``tests/systems/rag_tuner/test_evaluating.py`` shows it.
    """

    def __init__(
        self, searcher: Searcher, reranker: str, limits: Limits, sleep: Callable[[float], None]
    ) -> None:
        self._searcher, self._reranker = searcher, reranker
        self._limits, self._sleep = limits, sleep

    def ask(self, question: Question, configuration: Configuration) -> Searched:
        """Return what a question gave under a configuration.

        Args:
            question: With its right documents.
            configuration: How to search.

        Returns:
            What was found; marked, if a part of the search was away in every try, and failed, if
            it took too long.

        Raises:
            InputError: The searcher has not what the configuration asks for.
        """
        settings = settings_of(configuration, self._reranker)
        for tries in range(self._limits.tries):
            if tries:
                self._sleep(self._limits.pause_s)
            found = _within(
                self._limits.timeout_s, lambda: self._searcher.search(question.text, settings)
            )
            if found is None:
                late_ms = 1e3 * self._limits.timeout_s
                why = f"no hits within {self._limits.timeout_s:g} s"
                cost = configuration.k / COST_K
                return Searched(Told((0.0, 0.0), late_ms, cost, failed=True, why=why), ())
            if not found.degraded:
                break
        assert found is not None  # noqa: S101 (there is one try or more)
        return Searched(
            judged_by_passages(found, question.gains, configuration.k),
            tuple(hit.passage.text for hit in found.hits),
        )


def judged_by_passages(found: Found, gains: Mapping[str, float], k: int) -> Told:
    """Return what a search gave by its judged passages: recall@k and nDCG@min(k, 10).

    Args:
        found: By the search.
        gains: Document id -> gain, of those that are right.
        k: Passages that were wanted.

    No doctest: it needs a search; ``tests/systems/rag_tuner/test_evaluating.py`` shows it.
    """
    ids = list(dict.fromkeys(hit.passage.doc_id for hit in found.hits))
    quality = recall_at(ids, gains, k), ndcg_at(ids, gains, min(k, _NDCG_K))
    took = sum(found.timings_ms.values())
    return Told(quality, took, k / COST_K, degraded=tuple(found.degraded))


def settings_of(configuration: Configuration, reranker: str) -> SearchSettings:
    """Return how a configuration is searched.

    Args:
        configuration: Any.
        reranker: The one that "rerank: on" means.

    >>> from steersman.systems.rag_tuner.configuration import Configuration
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


def _within(seconds: float, work: Callable[[], T]) -> T | None:
    """Return what work gives, or None if it takes longer; its thread then ends by itself."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            done.put((None, error))

    threading.Thread(target=run, name="searching", daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        return None
    if error is not None:
        raise error
    return result
