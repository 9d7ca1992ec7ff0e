"""Off-policy evidence about routes, beside the exact truth that only this world knows.

The declared floor of the route is thin: it costs little and shows little, so a single stream under
it is refused. Evidence therefore comes from a stream replayed with a wider floor; both are told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.ope import evaluate
from steersman.systems.assistant import choosers
from steersman.systems.assistant.points import load_points
from steersman.systems.assistant.routes import ROUTES
from steersman.systems.assistant.trial import Job, replay_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.systems.assistant.log import Log
    from steersman.systems.assistant.points import Points
    from steersman.systems.assistant.stream import Stream
    from steersman.systems.assistant.world import World

    Floats = NDArray[np.float64]

EVIDENCE_FLOOR = 0.3
"""Floor of the route on the stream that evidence is read from: a tenth for each of three routes."""
LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a log says of one policy for the route, and what is true.

    Args:
        policy: Name.
        truth: Its exact mean reward over the logged decisions.
        estimate: The doubly robust estimate; ``None`` if refused.
        low: Lower end of the 99 % interval; ``None`` if refused.
        high: Upper end; ``None`` if refused.
        effective_sample_size: Logged decisions the log is worth for this policy.
        reasons: Why it was refused; empty otherwise.
    """

    policy: str
    truth: float
    estimate: float | None
    low: float | None
    high: float | None
    effective_sample_size: float
    reasons: tuple[str, ...] = ()


def evidence_log(world: World, stream: Stream, job: Job, *, floor: float = EVIDENCE_FLOOR) -> Log:
    """Replay the learned set with another floor at the route, every decision kept.

    Args:
        world: The requests.
        stream: The arrivals.
        job: Names the order and the assumption about escalation.
        floor: In (0, 1).
    """
    points = load_points()
    wide = replace(points, route=points.route.model_copy(update={"floor": floor}))
    return replay_set(world, stream, "learned", job, points=wide, keep=True)


def route_evidence(log: Log, points: Points | None = None) -> list[Evidence]:
    """Return what a log of route decisions says of the rules and of two fixed routes.

    The log's policies learned from its own rewards, so the evaluation is told that it is adaptive:
    reward models see the past only, and intervals use the martingale variance.

    Args:
        log: Kept decisions.
        points: The declared decision points; default: those that are shipped.
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
