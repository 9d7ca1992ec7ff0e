"""Staged rollout of a candidate, based on evidence, with automatic rollback."""

from __future__ import annotations

from steersman.rollout.actions import Explained, act, close_incident, explain
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
from steersman.rollout.candidate import Candidate
from steersman.rollout.comparing import Compared, MetricEvidence, compare
from steersman.rollout.controller import ControllerSettings, run_controller
from steersman.rollout.counted import (
    Evidence,
    OffPolicyEvidence,
    ShadowEvidence,
    SourceEvidence,
)
from steersman.rollout.evidence import beyond_gates
from steersman.rollout.forecasting import Forecast, StageForecast, forecast
from steersman.rollout.judging import Judgement, Verdict, judge, rejudge
from steersman.rollout.logged import Traffic, traffic_of
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
from steersman.rollout.reasons import checked_reason
from steersman.rollout.recomputing import recompute
from steersman.rollout.sources import PrometheusSource, Source, StoreSource
from steersman.rollout.starting import Wanted, start
from steersman.rollout.turns import TurnDone
from steersman.rollout.units import Observed, Units, value_of
from steersman.rollout.valuing import (
    Log,
    Rows,
    Valued,
    baselines,
    find_candidates,
    read_log,
    value,
)

__all__ = [
    "ACTIONS",
    "STATUSES",
    "UNDER_WAY",
    "Action",
    "Arm",
    "Burn",
    "BurnWindow",
    "Candidate",
    "Compared",
    "ControllerSettings",
    "Counts",
    "Evidence",
    "Explained",
    "Forecast",
    "Judgement",
    "Log",
    "MetricEvidence",
    "Observed",
    "OffPolicyEvidence",
    "Placed",
    "PlannedBudget",
    "PlannedGuardrail",
    "PlannedStage",
    "PrometheusSource",
    "RolloutPlan",
    "Rows",
    "ShadowEvidence",
    "Source",
    "SourceEvidence",
    "StageForecast",
    "Status",
    "StoreSource",
    "Traffic",
    "TurnDone",
    "Units",
    "Valued",
    "Verdict",
    "Wanted",
    "act",
    "baselines",
    "beyond_gates",
    "burn_rate",
    "burn_windows",
    "burning",
    "checked_reason",
    "close_incident",
    "compare",
    "explain",
    "find_candidates",
    "forecast",
    "judge",
    "legal_actions",
    "next_of",
    "place",
    "plan_of",
    "position",
    "read_log",
    "recompute",
    "rejudge",
    "run_controller",
    "start",
    "stretches",
    "traffic_of",
    "value",
    "value_of",
]
