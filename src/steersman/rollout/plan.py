"""Plan of one rollout: all numbers that its verdicts depend on, fixed before the first look.

It is made from the declaration (``rollout:`` of a decision point) and the overrides of the start,
stored with the rollout, and never changed: a margin, alpha or planned size chosen after seeing
results
breaks every guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic import ValidationError

from steersman.errors import InputError
from steersman.spec import Guardrail, Rollout, guardrail_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.spec import DecisionPoint

StageName = Literal["shadow", "canary", "ab", "live"]
MetricKind = Literal["reward", "errors", "above", "below", "mean"]
Worse = Literal["roll_back", "hold"]

# Half of the alpha watches what the candidate is for; the more guardrails, the less each has.
_REWARD_PART = 0.5


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One step of a rollout.

    Attributes:
        name: of the stage.
        share: of units that the candidate serves.
        min_units: of each arm, closed in this step; decisions in shadow.
        min_s: seconds before it may be left.
    """

    name: StageName
    share: float
    min_units: int
    min_s: float


@dataclass(frozen=True, slots=True)
class PlannedGuardrail:
    """A number between 0 and 1 per decision that must not get worse.

    Attributes:
        name: what it is called, unique in a plan.
        kind: ``reward``; ``errors``; the share of values ``above`` or ``below`` the target; or the
            ``mean`` of the outcome, cut to ``low`` and ``high`` and brought to 0 to 1.
        outcome: whose values; None for reward and errors.
        target: of ``above`` and ``below``.
        better: which direction is good.
        low: raw value that counts as 0.
        high: raw value that counts as 1.
        margin: how much worse the candidate may be to be promoted.
        tolerate: how much worse it may be shown to be without breaking it.
        worse: what happens when it is shown to be worse.
        alpha: chance that harmless candidates break it, over all looks.
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
        """1 where more is better, -1 where less is."""
        return 1.0 if self.better == "higher" else -1.0


@dataclass(frozen=True, slots=True)
class PlannedBudget:
    """How many decisions may fail, and how fast; see `steersman.spec.ErrorBudget`.

    Attributes:
        objective: share of decisions that must be free of errors.
        period_s: the budget's period in seconds.
        fast_burn: rate over 1/720 of the period that rolls back.
        medium_burn: rate over 1/120 of it that rolls back.
        slow_burn: rate over 1/10 of it that holds.
        min_errors: in the long window, before a rate is believed.
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
        salt: of the rollout; see `position`.
        stages: in order.
        guardrails: watched from canary on, the reward first.
        objective: what must be shown before live.
        objective_margin: loss of reward accepted with ``non_inferior``.
        canary_margin: loss of reward that the canary must exclude.
        alpha: chance of a false promotion.
        planned_units: per arm, where promotion is easiest to show.
        harm_units: per arm, where harm is easiest to show.
        first_look_units: per arm, before the first conclusion from means.
        sample_ratio_alpha: chance of a false stop for unequal arms.
        unit_window_s: how long a unit's decisions count, from its first.
        reward_window_s: how long outcomes of a decision count.
        stale_s: silence that counts as dead.
        budget: of errors.
        min_effective_sample_size: of off-policy evidence before the first live request.
        max_weight_share: of one importance weight in it.
        min_value: least lower bound of the candidate's value in it; None for none.
        concurrent: whether others of the skill may run beside it.
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
        """Seconds from a unit's first decision until its number is final."""
        return self.unit_window_s + self.reward_window_s

    def needs_objective(self, step: int) -> bool:
        """Return whether leaving a step lets the candidate serve most, without it being shown yet.

        Args:
            step: place in `stages`, from 0.
        """
        name = self.stages[step].name
        if name == "shadow":
            return False
        if name == "live":
            # Shown before, unless there was no stage to show it in.
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

        Args:
            values: JSON values.

        Raises:
            InputError: they are no plan.
        """
        try:
            return msgspec.convert(dict(values), cls)
        except msgspec.ValidationError as error:
            message = f"invalid rollout plan: {error}; use the output of to_json()"
            raise InputError(message) from error


def plan_of(
    spec: DecisionPoint, *, salt: str, overrides: Mapping[str, Any] | None = None
) -> RolloutPlan:
    """Return the plan that a declaration gives.

    The reward and the errors are watched whether they are declared or not. The reward takes half of
    alpha, the others equal parts of the other half: more guardrails do not make harm to the reward
    harder to see.

    Args:
        spec: the decision point.
        salt: of the rollout, any text of its own, such as its id.
        overrides: fields of the section ``rollout`` that replace the declared ones, written as in
            the declaration.

    Returns:
        The plan, with alphas split.

    Raises:
        InputError: the overrides are no valid section.
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
    """Return what is watched, the reward first and then errors, each once."""
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
