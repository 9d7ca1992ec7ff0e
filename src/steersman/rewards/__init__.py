"""Rewards of decisions from outcomes within a time window.

`evaluate` takes complete outcomes. `evaluate_window` and `credit` take outcomes as they arrive, per
decision and per episode. `revision` returns the change for a learner.
"""

from __future__ import annotations

from steersman.rewards.evaluation import (
    Outcome,
    Reward,
    credit,
    evaluate,
    evaluate_window,
    revision,
)

__all__ = ["Outcome", "Reward", "credit", "evaluate", "evaluate_window", "revision"]
