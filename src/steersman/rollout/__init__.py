"""Ships a candidate in stages, on evidence, and takes it back when it does harm."""

from __future__ import annotations

from steersman.rollout.arms import Arm, Placed, place, position
from steersman.rollout.machine import (
    ACTIONS,
    STATUSES,
    UNDER_WAY,
    Action,
    Status,
    legal_actions,
    next_of,
)
from steersman.rollout.plan import (
    PlannedBudget,
    PlannedGuardrail,
    PlannedStage,
    RolloutPlan,
    plan_of,
)

__all__ = [
    "ACTIONS",
    "STATUSES",
    "UNDER_WAY",
    "Action",
    "Arm",
    "Placed",
    "PlannedBudget",
    "PlannedGuardrail",
    "PlannedStage",
    "RolloutPlan",
    "Status",
    "legal_actions",
    "next_of",
    "place",
    "plan_of",
    "position",
]
