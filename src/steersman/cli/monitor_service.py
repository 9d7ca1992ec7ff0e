"""State of the service in ``steersman monitor``, from its metrics."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import urllib3
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

_STATES = ("NORMAL", "BROWNOUT", "LOCKDOWN")
_ROUTE = "/v1/decide"
_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class ServiceView:
    """State of the service.

    Attributes:
        url: URL of the service.
        state: state of its guardian: NORMAL, BROWNOUT or LOCKDOWN; None: unreachable.
        processes: number of service processes.
        waiting: rows waiting to be written.
        p95_ms: of decide requests since the last reading or the start; None: no requests.
        why: why the service is unreachable; empty if it is reachable.
    """

    url: str
    state: str | None = None
    processes: int = 0
    waiting: int = 0
    p95_ms: float | None = None
    why: str = ""


class Scraper:
    """Reads the metrics of a service repeatedly."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S)
        self._before: dict[float, float] = {}

    def look(self) -> ServiceView:
        """Return the state of the service; report an unreachable one without raising."""
        token = os.environ.get("STEERSMAN_METRICS_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = self._pool.request("GET", f"{self._url}/metrics", headers=headers)
        except urllib3.exceptions.HTTPError as error:
            return ServiceView(self._url, why=f"does not answer ({type(error).__name__})")
        if answer.status != 200:
            why = f"answers {answer.status} (check STEERSMAN_METRICS_TOKEN)"
            return ServiceView(self._url, why=why)
        try:
            return self._view(text_string_to_metric_families(answer.data.decode()))
        except ValueError:
            return ServiceView(self._url, why="answers without Prometheus metrics: check the port")

    def _view(self, families: Iterable[Metric]) -> ServiceView:
        found = {family.name: family.samples for family in families}
        if not any(name.startswith("steersman_") for name in found):
            raise ValueError("another program's metrics")
        state = max(
            (sample.value for sample in found.get("steersman_guardian_state", ())), default=0
        )
        waiting = sum(sample.value for sample in found.get("steersman_queue_rows", ()))
        replicas = found.get("steersman_replica_age_seconds", ())
        return ServiceView(
            self._url,
            _STATES[int(state)],
            len({sample.labels.get("process") for sample in replicas}),
            int(waiting),
            self._p95_ms(found.get("steersman_http_seconds", ())),
        )

    def _p95_ms(self, samples: Iterable[Sample]) -> float | None:
        counts: dict[float, float] = {}
        for sample in samples:
            if sample.name.endswith("_bucket") and sample.labels.get("route") == _ROUTE:
                end = float(sample.labels["le"])
                counts[end] = counts.get(end, 0.0) + sample.value
        before, self._before = self._before, counts
        if sum(counts.values()) < sum(before.values()):
            before = {}  # a process restarted
        seconds = quantile({end: n - before.get(end, 0.0) for end, n in counts.items()}, 0.95)
        return None if seconds is None else 1000 * seconds


def quantile(counts: Mapping[float, float], share: float) -> float | None:
    """Return a quantile of a histogram, with linear interpolation within its buckets.

    Args:
        share: quantile, 0 to 1.

    Returns:
        The value, at most the last finite end; None: no values.

    >>> quantile({1.0: 0.0, 2.0: 10.0, math.inf: 10.0}, 0.5)
    1.5
    """
    ends = sorted(counts)
    if not ends or counts[ends[-1]] <= 0:
        return None
    wanted = share * counts[ends[-1]]
    lower, below = 0.0, 0.0
    for end in ends:
        if counts[end] >= wanted:
            if math.isinf(end):
                return lower
            within = counts[end] - below
            return lower + (end - lower) * ((wanted - below) / within if within else 1.0)
        lower, below = end, counts[end]
    return lower
