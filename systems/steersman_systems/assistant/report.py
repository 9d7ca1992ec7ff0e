"""Report of the assistant as JSON values, see ``steersman demo assistant --json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman_systems.assistant.evidence import Evidence
    from steersman_systems.assistant.log import Decision
    from steersman_systems.assistant.trial import Trial

TARGETS: dict[str, tuple[float, str]] = {
    "tool_precision": (0.85, ">="),
    "p95_latency_ms": (900.0, "<"),
    "routing_precision": (1.0, ">="),
    "hit_rate": (0.6, ">="),
}
"""Targets of requirement 004, section "Performance Targets"."""


def compile_report(
    trial: Trial,
    sweep: Sequence[Trial],
    evidence: Sequence[Evidence],
    refused: Sequence[Evidence],
) -> dict[str, Any]:
    """Return the report of a trial."""
    names = {"learned": "learned", "rules": "rules", "best_fixed": trial.best_fixed}
    names["oracle"] = "oracle"
    policies: dict[str, dict[str, Any]] = {
        label: {**trial.figures(name)} for label, name in names.items()
    }
    policies["best_fixed"]["name"] = trial.best_fixed
    use = {label: trial.by_use(name) for label, name in names.items()}
    learned = policies["learned"]
    rivals = [name for name in trial.orders[0].sets if name == "beta_tools"]
    return {
        "requests": len(trial.orders[0].requests),
        "distinct_requests": int(trial.orders[0].requests.max()) + 1,
        "orders": len(trial.orders),
        "deep": asdict(trial.deep),
        "policies": policies,
        "rivals": {name: trial.figures(name) for name in rivals},
        "first_seen": {label: rows["first_seen"]["success"] for label, rows in use.items()},
        "by_tool_use": use,
        "cache": {key: learned[key] for key in ("hit_rate", "wrong_hit_rate")},
        "ope": [asdict(row) for row in evidence],
        "ope_declared_floor": [asdict(row) for row in refused],
        "learned_minus_best_fixed": trial.gain("learned", trial.best_fixed),
        "learned_minus_rules": trial.gain("learned", "rules"),
        "targets": {name: _target(name, learned[name]) for name in TARGETS},
        "sweep": [_swept(other) for other in (trial, *sweep)],
    }


def _target(name: str, reached: float) -> dict[str, Any]:
    goal, relation = TARGETS[name]
    holds = reached >= goal if relation == ">=" else reached < goal
    return {"goal": f"{relation} {goal:g}", "reached": reached, "holds": holds}


def _swept(trial: Trial) -> dict[str, Any]:
    return {
        "worth": trial.deep.worth,
        "free_and_instant": trial.deep.cost_usd == 0.0,
        "best_fixed": trial.best_fixed,
        "orders": len(trial.orders),
        "learned_minus_best_fixed": trial.gain("learned", trial.best_fixed),
    }


def explain(decisions: Sequence[Decision], *, most: int = 8) -> list[dict[str, Any]]:
    """Return the explanation of the decisions about one arrival.

    Returns:
        One entry per decision: point, context, actions with score and probability, the chosen
        action, its propensity, the random number that drew it, outcomes, reward.
    """
    return [_explained(decision, most) for decision in decisions]


def _explained(decision: Decision, most: int) -> dict[str, Any]:
    drawn = decision.drawn
    order = sorted(range(len(drawn.distribution)), key=lambda i: -drawn.distribution[i])
    shown = order[:most] if drawn.index in order[:most] else [*order[: most - 1], drawn.index]
    return {
        "point": decision.point,
        "context": dict(decision.seen.context),
        "actions": [
            {
                "action": decision.seen.eligible[i],
                # An answer of the service has no scores.
                "score": None if np.isnan(drawn.scores[i]) else float(drawn.scores[i]),
                "probability": float(drawn.distribution[i]),
                "chosen": i == drawn.index,
            }
            for i in shown
        ],
        "more_actions": len(order) - len(shown),
        "chosen": decision.action,
        "propensity": drawn.propensity,
        "u": drawn.u,
        "outcomes": dict(decision.outcomes),
        "reward": decision.reward,
    }
