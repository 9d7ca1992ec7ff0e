"""Off-policy evaluation of routes, compared with the exact value in the simulated world.

The declared exploration floor of the route is small, so the log of one stream has too little data
and gives no estimate. The estimates come from a stream replayed with a wider floor; the report has
both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.ope import evaluate
from steersman_systems.assistant import choosers
from steersman_systems.assistant.points import load_points
from steersman_systems.assistant.routes import ROUTES
from steersman_systems.assistant.trial import Job, replay_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.assistant.log import Log
    from steersman_systems.assistant.points import Points
    from steersman_systems.assistant.stream import Stream
    from steersman_systems.assistant.world import World

    Floats = NDArray[np.float64]

EVIDENCE_FLOOR = 0.3
"""Exploration floor of the route on the evaluated stream: 0.1 for each of the three routes."""
LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Evidence:
    """Estimated and exact value of one policy for the route.

    Args:
        policy: Name of the policy.
        truth: Exact mean reward over the logged decisions.
        estimate: Doubly robust estimate; ``None`` with too little data.
        low: Lower end of the 99 % interval; ``None`` with too little data.
        high: Upper end of the 99 % interval; ``None`` with too little data.
        effective_sample_size: Effective sample size of the log for this policy.
        reasons: Why the estimate is missing; empty otherwise.
    """

    policy: str
    truth: float
    estimate: float | None
    low: float | None
    high: float | None
    effective_sample_size: float
    reasons: tuple[str, ...] = ()


def evidence_log(world: World, stream: Stream, job: Job, *, floor: float = EVIDENCE_FLOOR) -> Log:
    """Replay the learned set with another floor at the route, and keep every decision.

    Args:
        floor: Exploration floor in (0, 1).
    """
    points = load_points()
    wide = replace(points, route=points.route.model_copy(update={"floor": floor}))
    return replay_set(world, stream, "learned", job, points=wide, keep=True)


def route_evidence(log: Log, points: Points | None = None) -> list[Evidence]:
    """Return the evidence of a log for the rules and two fixed routes.

    The policy learned from the rewards of this log, so the evaluation is adaptive: reward models
    read the past only, and intervals use the martingale variance.

    Args:
        points: Decision points; default: the shipped ones.
    """
    rows = log.of("route")
    declared = load_points() if points is None else points
    rules = choosers.rules(declared).route
    contexts = np.stack([np.asarray(row.drawn.x) for row in rows])
    rng = np.random.default_rng(0)
    targets = {
        "rules": np.stack([rules.choose(row.seen, rng).distribution for row in rows]),
        "always planner": _always("planner", len(rows)),
        "always micro": _always("micro", len(rows)),
    }
    return [_evaluated(log, name, target, contexts) for name, target in targets.items()]


def _evaluated(log: Log, name: str, target: Floats, contexts: Floats) -> Evidence:
    data = log.logged_data("route", target, contexts=contexts)
    report = evaluate(data, estimators=("dr",), level=LEVEL, adaptive=True)
    found = report["dr"]
    return Evidence(
        name,
        log.truth("route", target),
        found.value,
        found.low,
        found.high,
        report.ess,
        tuple(report.reasons),
    )


def _always(route: str, count: int) -> Floats:
    return np.tile(np.eye(len(ROUTES))[ROUTES.index(route)], (count, 1))
