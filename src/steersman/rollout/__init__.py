"""Ships a candidate in stages, on evidence, and takes it back when it does harm."""

from __future__ import annotations

from steersman.rollout.arms import Arm, Placed, place, position
from steersman.rollout.burn import (
    Burn,
    BurnWindow,
    Counts,
    burn_rate,
    burn_windows,
    burning,
    stretches,
)
from steersman.rollout.comparing import Compared, MetricEvidence, compare
from steersman.rollout.forecasting import Forecast, StageForecast, forecast
from steersman.rollout.judging import (
    Evidence,
    Judgement,
    OffPolicyEvidence,
    ShadowEvidence,
    SourceEvidence,
    Verdict,
    judge,
    rejudge,
)
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
from steersman.rollout.units import Observed, Units, value_of

__all__ = [
    "ACTIONS",
    "STATUSES",
    "UNDER_WAY",
    "Action",
    "Arm",
    "Burn",
    "BurnWindow",
    "Compared",
    "Counts",
    "Evidence",
    "Forecast",
    "Judgement",
    "MetricEvidence",
    "Observed",
    "OffPolicyEvidence",
    "Placed",
    "PlannedBudget",
    "PlannedGuardrail",
    "PlannedStage",
    "RolloutPlan",
    "ShadowEvidence",
    "SourceEvidence",
    "StageForecast",
    "Status",
    "Units",
    "Verdict",
    "burn_rate",
    "burn_windows",
    "burning",
    "compare",
    "forecast",
    "judge",
    "legal_actions",
    "next_of",
    "place",
    "plan_of",
    "position",
    "rejudge",
    "stretches",
    "value_of",
]
