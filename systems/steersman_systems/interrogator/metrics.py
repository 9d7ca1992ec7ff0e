"""Prometheus metrics of investigations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman_systems.interrogator.cache_chain import CacheInLine
    from steersman_systems.interrogator.investigation import Investigation, Step

End = Literal["solved", "exhausted", "drifted"]
_GAINS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
_SIMILARITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
_STEPS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50)


class InterrogatorMetrics:
    """Metrics of investigations; pass `on_step` to `investigate` and call `on_end` at the end.

    No label has a tenant or a target, so that readers cannot see the traffic of one tenant.

    Args:
        registry: Registry of the metrics, exposed for example by
            ``prometheus_client.start_http_server``.
        cache: Cache whose hits, misses and fallbacks are exposed too; default: none.
    """

    def __init__(self, registry: CollectorRegistry, cache: CacheInLine | None = None) -> None:
        self._questions = Counter(
            "steersman_interrogator_questions",
            "Questions asked.",
            ("template", "chooser", "cache"),
            registry=registry,
        )
        self._calls = Counter(
            "steersman_interrogator_embedder_calls",
            "Texts embedded because no cache had them.",
            registry=registry,
        )
        self._gain = Histogram(
            "steersman_interrogator_similarity_gain",
            "Cosine similarity gained by a question.",
            ("chooser",),
            buckets=_GAINS,
            registry=registry,
        )
        self._sessions = Counter(
            "steersman_interrogator_sessions", "Investigations by end.", ("end",), registry=registry
        )
        self._reached = Histogram(
            "steersman_interrogator_similarity",
            "Cosine similarity at the end of an investigation.",
            buckets=_SIMILARITIES,
            registry=registry,
        )
        self._length = Histogram(
            "steersman_interrogator_steps",
            "Questions of an investigation.",
            buckets=_STEPS,
            registry=registry,
        )
        if cache is not None:
            registry.register(_CacheCounts(cache))

    def on_step(self, step: Step) -> None:
        """Count a question."""
        hit = "hit" if step.answer.cache_hit else "miss"
        self._questions.labels(step.drawn.action, step.drawn.by, hit).inc()
        self._calls.inc(step.answer.embedder_calls)
        self._gain.labels(step.drawn.by).observe(step.gain)

    def on_end(self, investigation: Investigation, *, drifted: bool = False) -> None:
        """Count a finished investigation."""
        end: End = "solved" if investigation.solved else "drifted" if drifted else "exhausted"
        self._sessions.labels(end).inc()
        self._calls.inc(investigation.opening.embedder_calls)
        self._reached.observe(investigation.similarity)
        self._length.observe(len(investigation.steps))


class _CacheCounts:
    """Collector of a cache's counts."""

    def __init__(self, cache: CacheInLine) -> None:
        self._cache = cache

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counts by cache."""
        for name, about, counts in (
            ("hits", "Answers that a cache had.", self._cache.hits),
            ("misses", "Answers that a cache did not have.", self._cache.misses),
            ("fallbacks", "Calls that a cache could not take.", self._cache.fallbacks),
            ("refused", "Those of them that it refused though it works.", self._cache.refused),
            ("damaged", "Answers of a cache that could not be read.", self._cache.damaged),
        ):
            family = CounterMetricFamily(
                f"steersman_interrogator_cache_{name}", about, labels=["cache"]
            )
            for cache in self._cache.names:
                family.add_metric([cache], counts[cache])
            yield family
