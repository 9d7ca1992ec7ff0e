"""Plan of one rollout: all numbers that its verdicts depend on, fixed before the first look.

It comes from the declaration (``rollout:`` of a decision point) and the overrides of the start. It
is stored with the rollout and never changes: a margin, alpha or planned size chosen after seeing
results breaks every guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic import ValidationError

from steersman.errors import InputError
from steersman.spec.rollout import Guardrail, Rollout, guardrail_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.spec.point import DecisionPoint

StageName = Literal["shadow", "canary", "ab", "live"]
MetricKind = Literal["reward", "errors", "above", "below", "mean"]
Worse = Literal["roll_back", "hold"]

# The reward is the goal of the candidate, so it gets half of alpha; guardrails share the rest.
_REWARD_PART = 0.5


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One step of a rollout.

    Attributes:
        name: stage.
        share: share of units that the candidate serves.
        min_units: minimum number of closed units per arm in this step; decisions in shadow.
        min_s: minimum duration in seconds.
    """

    name: StageName
    share: float
    min_units: int
    min_s: float


@dataclass(frozen=True, slots=True)
class PlannedGuardrail:
    """Metric between 0 and 1 per decision that must not get worse.

    Attributes:
        name: unique name in the plan.
        kind: ``reward``; ``errors``; share of values ``above`` or ``below`` the target; or ``mean``
            of the outcome, clipped to ``low`` and ``high`` and scaled to 0 to 1.
        outcome: outcome that is read; None for reward and errors.
        target: target of ``above`` and ``below``.
        better: good direction.
        low: raw value that counts as 0.
        high: raw value that counts as 1.
        margin: accepted loss for a promotion.
        tolerate: loss that may be shown without breaking the guardrail.
        worse: consequence of a broken guardrail.
        alpha: probability that a harmless candidate breaks it, over all looks.
    """

    name: str
    kind: MetricKind
    outcome: str | None = None
    target: float | None = None
    better: Literal["higher", "lower"] = "lower"
    low: float = 0.0
    high: float = 1.0
    margin: float = 0.03
    tolerate: float = 0.0
    worse: Worse = "roll_back"
    alpha: float = 0.05

    @property
    def sign(self) -> float:
        """1 if higher is better, -1 if lower is better."""
        return 1.0 if self.better == "higher" else -1.0


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """Error budget: allowed errors and burn rates; see `steersman.spec.rollout.ErrorBudget`.

    Attributes:
        objective: share of decisions that must be free of errors.
        period_s: period of the budget in seconds.
        fast_burn: burn rate over 1/720 of the period that rolls back.
        medium_burn: burn rate over 1/120 of the period that rolls back.
        slow_burn: burn rate over 1/10 of the period that holds.
        min_errors: minimum number of errors in the long window.
    """

    objective: float = 0.99
    period_s: float = 30 * 86_400.0
    fast_burn: float = 14.4
    medium_burn: float = 6.0
    slow_burn: float = 1.0
    min_errors: int = 10


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """All numbers of one rollout.

    Attributes:
        salt: salt of the rollout; see `position`.
        stages: steps in order.
        guardrails: guardrails from canary on, the reward first.
        objective: condition for live.
        objective_margin: accepted loss of reward with ``non_inferior``.
        canary_margin: loss of reward that the canary must exclude.
        alpha: probability of a false promotion.
        planned_units: units per arm at which promotion is easiest to show.
        harm_units: units per arm at which harm is easiest to show.
        first_look_units: units per arm before the first conclusion from means.
        sample_ratio_alpha: probability of a false stop for unequal arms.
        unit_window_s: time in seconds from a unit's first decision in which its decisions count.
        reward_window_s: time in seconds in which outcomes of a decision count.
        stale_s: time in seconds without decisions that counts as failure of the traffic.
        budget: error budget.
        min_effective_sample_size: minimum effective sample size of off-policy evidence.
        max_weight_share: maximum share of one importance weight.
        min_value: minimum lower bound of the candidate's mean reward; None: no minimum.
        concurrent: whether other rollouts of the skill may be active.
    """

    salt: str
    stages: tuple[PlannedStage, ...]
    guardrails: tuple[PlannedGuardrail, ...]
    objective: Literal["superior", "non_inferior"] = "superior"
    objective_margin: float = 0.0
    canary_margin: float = 0.1
    alpha: float = 0.05
    planned_units: int = 2000
    harm_units: int = 300
    first_look_units: int = 50
    sample_ratio_alpha: float = 0.001
    unit_window_s: float = 600.0
    reward_window_s: float = 600.0
    stale_s: float = 3600.0
    budget: PlannedBudget = PlannedBudget()
    min_effective_sample_size: float = 100.0
    max_weight_share: float = 0.05
    min_value: float | None = None
    concurrent: bool = False

    @property
    def holdback(self) -> float:
        """Share of units that stay on control at live; 0 without that stage."""
        last = self.stages[-1]
        return round(1.0 - last.share, 12) if last.name == "live" else 0.0

    @property
    def closing_s(self) -> float:
        """Seconds from a unit's first decision until its value is final."""
        return self.unit_window_s + self.reward_window_s

    def needs_objective(self, step: int) -> bool:
        """Return whether the objective must be shown before the rollout may leave a step.

        Args:
            step: index in `stages`, from 0.
        """
        name = self.stages[step].name
        if name == "shadow":
            return False
        if name == "live":
            # An earlier canary or ab stage has already shown it.
            return not any(stage.name in {"canary", "ab"} for stage in self.stages[:step])
        later = self.stages[step + 1 :]
        return not later or later[0].name == "live"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RolloutPlan:
        """Return the plan that `to_json` wrote.

        Raises:
            InputError: invalid plan.
        """
        try:
            return msgspec.convert(dict(values), cls)
        except msgspec.ValidationError as error:
            message = f"invalid rollout plan: {error}; use the output of to_json()"
            raise InputError(message) from error


def plan_of(
    spec: DecisionPoint, *, salt: str, overrides: Mapping[str, Any] | None = None
) -> RolloutPlan:
    """Return the plan of a declaration.

    The reward and the errors are always guardrails. The reward takes half of alpha, the others
    equal parts of the other half: more guardrails do not make harm to the reward harder to detect.

    Raises:
        InputError: the overrides are not a valid section.
    """
    declared = _overridden(spec.rollout, overrides or {})
    guardrails = _guardrails(declared)
    others = len(guardrails) - 1
    parts = [_REWARD_PART] + [(1.0 - _REWARD_PART) / others] * others
    window = declared.unit_window_s
    return RolloutPlan(
        salt=salt,
        stages=tuple(
            PlannedStage(stage.name, stage.share, stage.min_units, stage.min_s)
            for stage in declared.stages
        ),
        guardrails=tuple(
            _planned(guardrail, declared.alpha * part)
            for guardrail, part in zip(guardrails, parts, strict=True)
        ),
        objective=declared.objective.kind,
        objective_margin=declared.objective.margin,
        canary_margin=declared.canary_margin,
        alpha=declared.alpha,
        planned_units=declared.planned_units,
        harm_units=declared.harm_units,
        first_look_units=declared.first_look_units,
        sample_ratio_alpha=declared.sample_ratio_alpha,
        unit_window_s=spec.reward.window_s if window is None else window,
        reward_window_s=spec.reward.window_s,
        stale_s=declared.stale_s,
        budget=PlannedBudget(**declared.error_budget.model_dump()),
        min_effective_sample_size=spec.gates.min_effective_sample_size,
        max_weight_share=spec.gates.max_weight_share,
        min_value=spec.gates.min_value,
        concurrent=declared.concurrent,
    )


def _overridden(declared: Rollout, overrides: Mapping[str, Any]) -> Rollout:
    if not overrides:
        return declared
    try:
        return Rollout.model_validate({**declared.model_dump(), **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"rollout.{where}: {first['msg']}; got {first['input']!r:.100}"
        raise InputError(message) from error


def _guardrails(declared: Rollout) -> list[Guardrail]:
    """Return the guardrails, the reward first, then errors, each once."""
    own = {guardrail.metric: guardrail for guardrail in declared.guardrails if guardrail.metric}
    always = [
        own.get("reward", Guardrail(metric="reward")),
        own.get("errors", Guardrail(metric="errors", margin=0.01)),
    ]
    return always + [guardrail for guardrail in declared.guardrails if not guardrail.metric]


def _planned(guardrail: Guardrail, alpha: float) -> PlannedGuardrail:
    kind: MetricKind = "mean"
    if guardrail.metric is not None:
        kind = guardrail.metric
    elif guardrail.better is None:
        kind = "above" if guardrail.above is not None else "below"
    better = "higher" if kind == "reward" else guardrail.better
    return PlannedGuardrail(
        name=guardrail_name(guardrail),
        kind=kind,
        outcome=guardrail.outcome,
        target=guardrail.above if guardrail.above is not None else guardrail.below,
        better=better or "lower",
        low=guardrail.low,
        high=guardrail.high,
        margin=guardrail.margin,
        tolerate=guardrail.tolerate,
        worse=guardrail.action,
        alpha=alpha,
    )
