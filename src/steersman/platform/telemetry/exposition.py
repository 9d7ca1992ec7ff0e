"""Metrics in Prometheus' text format, for one process or all that share a port.

Each process writes its metrics to a file (`Exchange`), so any of them can answer for all, with the
label ``process``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BESIDE = "metrics"
"""Folder in a home directory for the metrics of processes next to the service."""
_STALE_S = 10.0


class Family(msgspec.Struct, array_like=True):
    """One metric of one process.

    Attributes:
        name: metric name without ``_total``.
        kind: counter, gauge or histogram.
        about: help text.
        labels: label names.
        rows: label values, then the number, or the bucket counts and the sum.
        bounds: bucket bounds without infinity.
    """

    name: str
    kind: str
    about: str
    labels: tuple[str, ...]
    rows: list[tuple[tuple[str, ...], float | tuple[list[int], float]]]
    bounds: tuple[float, ...] = ()


_left = msgspec.json.Decoder(tuple[float, list[Family]]).decode


def render(processes: Mapping[str, Iterable[Family]]) -> bytes:
    """Return the metrics of several processes in text format 0.0.4.

    >>> family = Family("up", "gauge", "Whether it runs", (), [((), 1.0)])
    >>> render({"0": [family], "1": [family]}).splitlines()[-1]
    b'steersman_up{process="1"} 1.0'
    """
    merged: dict[str, Any] = {}
    for process, families in processes.items():
        for family in families:
            metric = merged.setdefault(family.name, None) or _metric(family)
            merged[family.name] = metric
            for labels, value in family.rows:
                _add(metric, (*labels, process), family, value)
    registry = CollectorRegistry()
    registry.register(_Collected(merged.values()))
    return generate_latest(registry)


class Exchange:
    """Folder through which processes on one port share their metrics.

    Args:
        folder: folder used for nothing else.
        own: name of this process.
        wall: seconds since 1970.
    """

    def __init__(self, folder: Path, own: str, wall: Callable[[], float] = time.time) -> None:
        self.own = own
        self._folder = folder
        self._wall = wall

    def leave(self, families: Iterable[Family]) -> None:
        """Write this process's metrics; call it about every second."""
        path = self._folder / f"{self.own}.json"
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode((self._wall(), list(families))))
        part.replace(path)

    def remove(self) -> None:
        """Delete this process's metrics at shutdown."""
        (self._folder / f"{self.own}.json").unlink(missing_ok=True)

    def others(self) -> dict[str, list[Family]]:
        """Return the recent metric families of the other processes.

        Files that are deleted meanwhile or have another format are skipped.
        """
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            if path.stem != self.own:
                try:
                    at, families = _left(path.read_bytes())
                except (OSError, msgspec.DecodeError):
                    continue
                if self._wall() - at < _STALE_S:
                    found[path.stem] = families
        return found


class _Collected:
    """Adapter of metric families for prometheus-client."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _metric(family: Family) -> Metric:
    kinds: dict[str, type[Any]] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    own = family.name.startswith(("process_", "steersman_"))
    name = family.name if own else f"steersman_{family.name}"
    metric: Metric = kinds[family.kind](name, family.about, labels=(*family.labels, "process"))
    return metric


def _add(metric: Any, labels: tuple[str, ...], family: Family, value: Any) -> None:
    if family.kind != "histogram":
        metric.add_metric(labels, value)
        return
    counts, total = value
    ends = [*(repr(bound) for bound in family.bounds), "+Inf"]
    running = 0
    buckets = []
    for end, count in zip(ends, counts, strict=True):
        running += count
        buckets.append((end, running))
    metric.add_metric(labels, buckets, total)
