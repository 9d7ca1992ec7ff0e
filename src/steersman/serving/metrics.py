"""Metrics of the service in Prometheus' format.

Every request counts, so counting is one addition to a dictionary; prometheus-client runs only at
scrape time (`exposition`). Labels contain no tenant, so that readers cannot see other tenants'
traffic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import ProcessCollector

from steersman.platform.telemetry.exposition import Family, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DRAW_SECONDS = (5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
ROWS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
_ARM = ("skill", "point", "arm", "result")
_ARMS = tuple(
    (arm, result)
    for arm in ("control", "candidate")
    for result in ("ok", "failed", "fallback", "unstored")
)
_SEARCHES = (("ok",), ("refused",), ("late",))


class Histogram:
    """Histogram with labels.

    Args:
        bounds: rising upper bounds of the buckets; the last bucket is open.

    >>> histogram = Histogram((1.0, 2.0))
    >>> histogram.observe(("a",), 1.5)
    >>> histogram.rows()
    [(('a',), ([0, 1, 0], 1.5))]
    """

    __slots__ = ("_counts", "_sums", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Count one number."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self.bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def add(self, labels: tuple[str, ...], values: NDArray[np.float64]) -> None:
        """Count many numbers."""
        places = np.searchsorted(self.bounds, values)
        more = np.bincount(places, minlength=len(self.bounds) + 1).tolist()
        before = self._counts.get(labels, [0] * len(more))
        self._counts[labels] = [one + other for one, other in zip(before, more, strict=True)]
        self._sums[labels] = self._sums.get(labels, 0.0) + float(values.sum())

    def rows(self) -> list[tuple[tuple[str, ...], float | tuple[list[int], float]]]:
        """Return the counts by label values."""
        return [(labels, (counts, self._sums[labels])) for labels, counts in self._counts.items()]


class Metrics:
    """Metrics of one process.

    >>> metrics = Metrics()
    >>> metrics.decision("chat", "route", "true", degraded=False)
    >>> print(metrics.text().decode())
    # HELP ...
    steersman_decisions_total{...skill="chat"} 1.0
    ...
    """

    def __init__(self) -> None:
        self.requests = Histogram(SECONDS)
        self.flushes = Histogram(SECONDS)
        self.flush_rows = Histogram(ROWS)
        self.arm_seconds = Histogram(DRAW_SECONDS)
        self._decisions: Counter[tuple[str, ...]] = Counter()
        self._events: Counter[tuple[str, ...]] = Counter()
        self._answers: Counter[tuple[str, ...]] = Counter()
        self._fallbacks: Counter[tuple[str, ...]] = Counter()
        self._arms: Counter[tuple[str, ...]] = Counter()
        self._scrubbed: Counter[tuple[str, ...]] = Counter()
        self._flush_failures: Counter[tuple[str, ...]] = Counter()
        self.search_seconds = Histogram(SECONDS)
        self._searches: Counter[tuple[str, ...]] = Counter(dict.fromkeys(_SEARCHES, 0))
        self._degraded: Counter[tuple[str, ...]] = Counter({("dense",): 0, ("rerank",): 0})
        self._under_way: Callable[[], Iterable[tuple[str, str]]] = tuple
        self._gauges: dict[str, tuple[str, tuple[str, ...], Callable[[], Any]]] = {}
        self._beside: list[Callable[[], Iterable[Family]]] = []
        self._process = ProcessCollector(registry=None)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request.

        Args:
            seconds: duration in seconds.
        """
        self._answers[route, str(status)] += 1
        self.requests.observe((route,), seconds)

    def decision(self, skill: str, point: str, logged: str, *, degraded: bool) -> None:
        """Count a decision."""
        self._decisions[skill, point, logged, "true" if degraded else "false"] += 1

    def arm(self, skill: str, point: str, arm: str, result: str, seconds: float) -> None:
        """Count a decision of a point with an active rollout.

        Args:
            seconds: time for encoding and drawing in seconds.
        """
        self._arms[skill, point, arm, result] += 1
        if result == "ok":
            self.arm_seconds.observe((skill, point, arm), seconds)

    def arms_of(self, under_way: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Set the source of points whose arms are exported as 0 before their first decision.

        A rate needs a first value. A candidate is rolled back within seconds; without the 0 all its
        failures could precede the first scrape.
        """
        self._under_way = under_way

    def event(self, kind: str, status: str, count: int = 1) -> None:
        """Count events or records."""
        self._events[kind, status] += count

    def search(
        self, result: str, degraded: Iterable[str] = (), seconds: float | None = None
    ) -> None:
        """Count a search.

        Args:
            seconds: duration in seconds; None: no answer.
        """
        self._searches[(result,)] += 1
        self._degraded.update((part,) for part in degraded)
        if seconds is not None:
            self.search_seconds.observe((), seconds)

    def fallback(self, reason: str) -> None:
        """Count an answer of the fallback."""
        self._fallbacks[(reason,)] += 1

    def scrubbed(self, counts: Mapping[str, int]) -> None:
        """Count personal data items removed from texts."""
        for kind, count in counts.items():
            self._scrubbed[(kind,)] += count

    def on_flush(self, kind: str) -> Callable[[int, float, bool], None]:
        """Return a callback for `GroupCommit` that counts its flushes."""
        labels = (kind,)
        self._flush_failures[labels] += 0  # exported as 0 first, because a rate needs a first value

        def count(rows: int, seconds: float, answered: bool) -> None:  # noqa: FBT001 (callback signature)
            if answered:
                self.flushes.observe(labels, seconds)
                self.flush_rows.observe(labels, rows)
            else:
                self._flush_failures[labels] += 1

        return count

    def gauge(
        self, name: str, about: str, read: Callable[[], Any], labels: tuple[str, ...] = ()
    ) -> None:
        """Add a gauge that is read at scrape time."""
        self._gauges[name] = (about, labels, read)

    def add(self, families: Callable[[], Iterable[Family]]) -> None:
        """Add the metrics of another part of the service."""
        self._beside.append(families)

    def families(self) -> list[Family]:
        """Return all metric families."""
        beside = [family for families in self._beside for family in families()]
        own = *self._counters(), *self._histograms(), *self._read_gauges(), *self._of_process()
        return [*own, *beside]

    def text(self, others: Mapping[str, Iterable[Family]] | None = None, own: str = "0") -> bytes:
        """Return all metrics in text format 0.0.4."""
        return render({own: self.families(), **(others or {})})

    def _counters(self) -> Iterator[Family]:
        for place in self._under_way():
            self._arms.update(dict.fromkeys(((*place, *of_arm) for of_arm in _ARMS), 0))
        point = ("skill", "point", "logged", "degraded")
        for name, about, labels, counter in (
            ("decisions", "Decisions answered", point, self._decisions),
            ("events", "Events and records received", ("type", "status"), self._events),
            ("fallbacks", "Decisions answered by the fallback", ("reason",), self._fallbacks),
            ("arm_decisions", "Decisions in a rollout", _ARM, self._arms),
            ("scrubbed", "Personal data items removed from texts", ("kind",), self._scrubbed),
            (
                "http_answers",
                "HTTP requests by route and status",
                ("route", "status"),
                self._answers,
            ),
            ("searches", "Corpus searches", ("result",), self._searches),
            (
                "search_degraded",
                "Corpus searches without one of their parts",
                ("part",),
                self._degraded,
            ),
            (
                "flush_failures",
                "Flushes without an answer of the store",
                ("kind",),
                self._flush_failures,
            ),
        ):
            yield Family(name, "counter", about, labels, list(counter.items()))

    def _histograms(self) -> Iterator[Family]:
        for name, about, labels, histogram in (
            ("http_seconds", "Latency of an answer", ("route",), self.requests),
            ("flush_seconds", "Duration of a flush", ("kind",), self.flushes),
            ("flush_rows", "Rows per flush", ("kind",), self.flush_rows),
            ("search_seconds", "Latency of an answered search", (), self.search_seconds),
            ("arm_decide_seconds", "Time to draw in a rollout", _ARM[:3], self.arm_seconds),
        ):
            yield Family(name, "histogram", about, labels, histogram.rows(), histogram.bounds)

    def _read_gauges(self) -> Iterator[Family]:
        for name, (about, labels, read) in self._gauges.items():
            value = read()
            rows = list(value.items()) if labels else [((), float(value))]
            yield Family(name, "gauge", about, labels, rows)

    def _of_process(self) -> Iterator[Family]:
        for metric in self._process.collect():
            rows: list[Any] = [((), sample.value) for sample in metric.samples]
            yield Family(metric.name, "gauge", metric.documentation, (), rows)
