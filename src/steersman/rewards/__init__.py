"""What a decision earned: outcomes within their window, weighed and brought to 0 to 1.

`evaluate` when all outcomes are in; `evaluate_window` and `credit` as they come, per decision and
per episode; `revision` for what a learner has to change.
"""

from __future__ import annotations

from steersman.rewards.evaluation import Reward, credit, evaluate, evaluate_window, revision
from steersman.rewards.outcomes import Outcome

__all__ = ["Outcome", "Reward", "credit", "evaluate", "evaluate_window", "revision"]
