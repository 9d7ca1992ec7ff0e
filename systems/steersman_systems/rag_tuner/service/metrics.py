"""Metrics of ``POST /tuner/evaluate``: results and findings of evaluations.

Labels contain no tenant, corpus or question. All label values are known beforehand, so that every
series exists, as 0, before the first evaluation.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.platform.telemetry.exposition import Family
from steersman.serving.metrics import Histogram
from steersman_systems.rag_tuner.service.messages import AskedWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman_systems.rag_tuner.service.evaluation import Found
    from steersman_systems.rag_tuner.service.messages import (
        AskedConfiguration,
        EvaluatedConfiguration,
        EvaluateRequest,
    )

RESULTS = ("done", "budget", "busy", "refused", "late", "away", "failed")
"""Results of an evaluation; see `TunerCounts.ended`."""
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0)
_QUERY_SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    30.0,
)
_JUDGED = ("passages", "answers")
_OF = ("variant", "rerank", "judged")
_KINDS = tuple(product(("bm25", "dense", "hybrid", "rrf"), ("true", "false"), _JUDGED))
_GATES = ("faithfulness", "relevancy", "p95_latency_ms", "error_rate")
_STATES = ("held", "broken", "unknown")
_QUESTIONS = ("counted", "degraded", "unjudged", "failed")


class TunerCounts:
    """Metrics of one process, used by one event loop.

    >>> counts = TunerCounts()
    >>> counts.ended("busy")
    >>> [family.rows[2] for family in counts.families() if family.name == "tuner_evaluations"]
    [(('busy',), 1)]
    """

    def __init__(self) -> None:
        self._ended = _zeros((result,) for result in RESULTS)
        self._took = Histogram(_SECONDS)
        self._waited = Histogram(_SECONDS)
        self._queries = Histogram(_QUERY_SECONDS)
        for judged in _JUDGED:
            self._took.add((judged,), np.empty(0))
            self._queries.add((judged,), np.empty(0))
        self._waited.add((), np.empty(0))
        self._configurations = _zeros((*kind, state) for kind, state in product(_KINDS, _STATES))
        self._rewards, self._gained, self._lost = (_zeros(_KINDS) for _ in range(3))
        self._breaches = _zeros((gate,) for gate in _GATES)
        self._questions = _zeros((result,) for result in _QUESTIONS)
        self._model_calls, self._model_usd = _zeros([()]), _zeros([()])

    def ended(self, result: str) -> None:
        """Count an evaluation without findings."""
        self._ended[(result,)] += 1

    def spent(self, calls: int, cost_usd: float) -> None:
        """Count model calls and their cost in US dollars."""
        self._model_calls[()] += calls
        self._model_usd[()] += cost_usd

    def waited(self, seconds: float) -> None:
        """Count the seconds that an evaluation waited for its turn."""
        self._waited.observe((), seconds)

    def answered(self, asked: EvaluateRequest, found: Found, seconds: float) -> None:
        """Count a finished evaluation and its findings.

        Rewards are counted for the default weights only, because other weights have other scales.

        Args:
            seconds: duration in seconds, including the wait.
        """
        judged = _JUDGED[asked.answers is not None]
        each = found.answer.configurations
        short = any("budget" in one.unjudged for one in each)
        self._ended["budget" if short else "done",] += 1
        self._took.observe((judged,), seconds)
        comparable = asked.weights == AskedWeights()
        for one in each:
            kind = (*_kind(one.configuration), judged)
            self._configurations[*kind, _state(one)] += 1
            self._breaches.update((gate,) for gate in one.breaches)
            self._count_questions(one)
            if comparable and one.reward is not None:
                self._count_reward(kind, one.reward.value)
        for took_ms in found.took_ms:
            self._queries.add((judged,), took_ms / 1e3)

    def families(self) -> Iterator[Family]:
        """Return all metric families."""
        counters: tuple[tuple[str, str, tuple[str, ...], Any], ...] = (
            ("evaluations", "Evaluations by result", ("result",), self._ended),
            ("configurations", "Evaluated", (*_OF, "gates"), self._configurations),
            ("rewards", "Rewards with the default weights", _OF, self._rewards),
            ("reward_gained", "Sum of the positive rewards", _OF, self._gained),
            ("reward_lost", "Absolute sum of the negative rewards", _OF, self._lost),
            ("breaches", "Gates that configurations failed", ("gate",), self._breaches),
            ("questions", "Questions of evaluated configurations", ("result",), self._questions),
            ("model_calls", "Model calls of the RAG tuner", (), self._model_calls),
            ("model_usd", "Cost of model calls in US dollars", (), self._model_usd),
        )
        for name, about, labels, counter in counters:
            yield Family(f"tuner_{name}", "counter", about, labels, list(counter.items()))
        histograms: tuple[tuple[str, str, tuple[str, ...], Histogram], ...] = (
            ("evaluation_seconds", "Latency of an answer", ("judged",), self._took),
            ("wait_seconds", "Waiting time of evaluations", (), self._waited),
            (
                "query_seconds",
                "Latency of an evaluated query",
                ("judged",),
                self._queries,
            ),
        )
        for name, about, labels, histogram in histograms:
            rows, bounds = histogram.rows(), histogram.bounds
            yield Family(f"tuner_{name}", "histogram", about, labels, rows, bounds)

    def _count_reward(self, kind: tuple[str, ...], reward: float) -> None:
        # A sum that falls would look like a counter reset to Prometheus.
        self._rewards[kind] += 1
        (self._gained if reward > 0 else self._lost)[kind] += abs(reward)

    def _count_questions(self, one: EvaluatedConfiguration) -> None:
        self._questions["counted",] += one.questions - one.failed
        self._questions["failed",] += one.failed
        self._questions["degraded",] += one.degraded
        self._questions["unjudged",] += sum(one.unjudged.values())


def _zeros(labels: Any) -> Any:
    """Return float counters with all label values at 0."""
    return Counter(dict.fromkeys(labels, 0))


def _kind(configuration: AskedConfiguration) -> tuple[str, str]:
    return configuration.variant, "true" if configuration.rerank else "false"


def _state(one: EvaluatedConfiguration) -> str:
    if not one.questions:
        return "unknown"
    return "broken" if one.breaches else "held"
