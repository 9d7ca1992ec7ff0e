"""Gauges of queues, breakers, replicas and rollouts, read at scrape time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.api.service import Service
    from steersman.db.group_commit import GroupCommit
    from steersman.serving.arms import Arms
    from steersman.serving.draw import Served
    from steersman.serving.replicas import Replicas

_PLACE = ("skill", "point")
_OPEN = {"open": 1.0, "half_open": 0.5, "closed": 0.0}
_STAGES = ("shadow", "canary", "ab", "live")


def add_gauges(service: Service) -> None:
    """Add the gauges of a service that is assembled but not started."""
    gauge, guard, replicas = service.metrics.gauge, service.guard, service.replicas
    gauge(
        "guardian_state",
        "State of the load guard: 0 normal, 1 brownout, 2 lockdown",
        lambda: int(guard.state),
    )
    gauge(
        "guardian_latency_ms",
        "Mean decision latency seen by the load guard",
        lambda: guard.latency_ms,
    )
    queues: dict[tuple[str, ...], GroupCommit[Any, Any]]
    queues = {("decisions",): service.decisions, ("events",): service.event_rows}
    gauge(
        "queue_rows",
        "Rows queued or being written",
        lambda: {kind: queue.depth for kind, queue in queues.items()},
        ("kind",),
    )
    gauge(
        "breaker_open",
        "State of a circuit breaker: 1 open, 0.5 half-open, 0 closed",
        lambda: {(name,): _OPEN[breaker.state] for name, breaker in service.breakers.items()},
        ("breaker",),
    )
    gauge(
        "replica_age_seconds",
        "Time since the last refresh of the replicas",
        lambda: time.monotonic() - replicas.refreshed_at,
    )
    wrong = "Decision points whose wanted snapshot cannot be loaded"
    gauge("replica_problems", wrong, replicas.problems)
    stages = "Stage of a rollout: 1 shadow, 2 canary, 3 ab, 4 live"
    gauge("rollout_stage", stages, partial(_rollouts, replicas, _stage_number), _PLACE)
    share = "Share of units that the candidate serves"
    gauge("rollout_share", share, partial(_rollouts, replicas, _share), _PLACE)
    loaded = "Whether this process serves the candidate"
    gauge("rollout_candidate_loaded", loaded, partial(_rollouts, replicas, _is_loaded), _PLACE)
    corpora = service.corpora
    gauge("corpora_held", "Corpus revisions in memory", lambda: len(corpora))
    gauge("corpora_bytes", "Approximate memory of the corpus revisions", lambda: corpora.bytes)
    failed = "Corpus revisions that failed to load"
    gauge("corpora_load_failures", failed, lambda: corpora.counts.failures)
    service.metrics.arms_of(partial(_under_way, replicas))


def _under_way(replicas: Replicas) -> list[tuple[str, str]]:
    """Return skill and name of the points with an active rollout."""
    return [(it.arms.row.skill, it.arms.row.point) for _, it in replicas if it.arms is not None]


def _rollouts(
    replicas: Replicas, read: Callable[[Arms[Served]], float]
) -> dict[tuple[str, ...], float]:
    """Return a number per active rollout; the largest for tenants with equal names."""
    found: dict[tuple[str, ...], float] = {}
    for _, served in replicas:
        if served.arms is not None:
            row = served.arms.row
            place = row.skill, row.point
            found[place] = max(read(served.arms), found.get(place, 0.0))
    return found


def _stage_number(arms: Arms[Served]) -> float:
    return 1.0 + _STAGES.index(arms.row.stage)


def _share(arms: Arms[Served]) -> float:
    return arms.row.share


def _is_loaded(arms: Arms[Served]) -> float:
    return float(arms.candidate is not None)
