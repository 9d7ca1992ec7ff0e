"""How many units and days a rollout will take, before it is started."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scipy.special import ndtri

from steersman.errors import InputError
from steersman.rollout.comparing import steadied
from steersman.stats import Moments, two_arm_confidence_sequence

if TYPE_CHECKING:
    from steersman.rollout.plan import PlannedStage, RolloutPlan

_DAY_S = 86_400.0
_MOST_UNITS = 10**9
_HARM_POWER = 0.95


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One step, as it will probably go.

    Attributes:
        name: of the stage.
        share: of units that the candidate serves.
        units: of each arm that close in it.
        days: that it takes.
    """

    name: str
    share: float
    units: int
    days: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a rollout will probably take.

    Attributes:
        stages: step by step.
        units: of each arm until the objective is shown.
        days: from the start until the candidate has taken over.
        power: chance that this is enough.
        harm_units: of the candidate until a loss as large as the effect is rolled back, in 95 of
            100 rollouts.
        effect: that was assumed.
        sd: of one unit's number, that was assumed.
    """

    stages: tuple[StageForecast, ...]
    units: int
    days: float
    power: float
    harm_units: int
    effect: float
    sd: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def forecast(
    plan: RolloutPlan, sd: float, effect: float, units_per_day: float, *, power: float = 0.8
) -> Forecast:
    """Return how many units and days it takes to show that a candidate is better.

    The chance is that of one look at the end. Earlier looks find some candidates sooner, so with
    these units the objective is shown at least so often. Guardrails are taken to be unharmed and to
    be shown within their margins by then: a margin much smaller than the effect takes longer.

    Args:
        plan: of the rollout.
        sd: standard deviation of the reward of one unit, above 0, at most 0.5: it lies in [0, 1].
        effect: how much better the candidate's reward is; with ``non_inferior``, above minus the
            margin.
        units_per_day: new units of the decision point, above 0, on whichever arm.
        power: chance of showing it, in (0, 1).

    Returns:
        Units and days, in all and by step.

    Raises:
        InputError: a number outside its range, or an effect that no number of units shows.

    Example:
        >>> from steersman.rollout import PlannedGuardrail, PlannedStage, RolloutPlan
        >>> stages = tuple(
        ...     PlannedStage(*stage, 86_400.0)
        ...     for stage in (("canary", 0.05, 200), ("ab", 0.5, 200), ("live", 0.95, 0))
        ... )
        >>> plan = RolloutPlan("r1", stages, (PlannedGuardrail("reward", "reward", alpha=0.025),))
        >>> found = forecast(plan, sd=0.25, effect=0.03, units_per_day=2000)
        >>> found.units, round(found.days, 1), found.harm_units
        (1826, 4.7, 3349)
    """
    for name, value in (("sd", sd), ("units_per_day", units_per_day)):
        if not (math.isfinite(value) and value > 0.0):
            message = f"{name} is {value!r}; allowed is a finite number above 0; measure it"
            raise InputError(message)
    if sd > 0.5:
        message = f"sd is {sd!r}; allowed is at most 0.5, as rewards lie in 0 to 1"
        raise InputError(message)
    if not 0.0 < power < 1.0:
        message = f"power is {power!r}; allowed is 0 < power < 1; take e.g. 0.8"
        raise InputError(message)
    loss = plan.objective_margin if plan.objective == "non_inferior" else 0.0
    # Each arm: (alpha, n_star) as the verdict takes them.
    units = _needed(sd, effect + loss, power, plan.alpha, 2 * plan.planned_units)
    canary = _needed(
        sd, max(effect, 0.0) + plan.canary_margin, power, plan.alpha, 2 * plan.harm_units
    )
    size = abs(effect) or loss
    harm = _needed(sd, size, _HARM_POWER, plan.guardrails[0].alpha, 2 * plan.harm_units)
    stages = _stages(plan, max(units, plan.first_look_units), canary, units_per_day)
    days = sum(stage.days for stage in stages)
    shown = max(units, sum(stage.units for stage in stages if stage.name in {"canary", "ab"}))
    return Forecast(stages, shown, days, power, harm, effect, sd)


def _needed(sd: float, distance: float, power: float, alpha: float, n_star: int) -> int:
    """Return units per arm after which a bound is beyond a distance with the power asked for."""

    def enough(n: int) -> bool:
        arm = steadied(Moments(n, 0.5, sd * sd))
        low, high = two_arm_confidence_sequence(
            arm, arm, level=1.0 - alpha, n_star=n_star, one_sided=True
        )
        error = math.sqrt(2.0 * sd * sd / n)
        return distance - (high - low) / 2.0 >= float(ndtri(power)) * error

    if not distance > 0.0 or not enough(_MOST_UNITS):
        message = f"a difference of {distance!r} at a standard deviation of {sd!r} is not shown by "
        message += f"{_MOST_UNITS:,} units; allowed are effects above 0 (or above minus the margin)"
        raise InputError(message)
    low, high = 1, _MOST_UNITS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _stages(
    plan: RolloutPlan, units: int, canary: int, units_per_day: float
) -> tuple[StageForecast, ...]:
    """Return each step with the units and days that it takes, given those before it."""
    found = []
    closed = 0.0
    for step, stage in enumerate(plan.stages):
        rate = units_per_day * _piece(plan, stage)
        wanted = float(stage.min_units)
        if stage.name == "canary":
            wanted = max(wanted, canary - closed, plan.first_look_units - closed)
        if plan.needs_objective(step):
            wanted = max(wanted, units - closed)
        closing = 0.0 if stage.name == "shadow" else plan.closing_s / _DAY_S
        days = stage.min_s / _DAY_S
        if wanted > 0:
            days = max(days, wanted / rate + closing) if rate > 0.0 else math.inf
        # Those that came in last have not closed when the step ends.
        here = rate * max(0.0, days - closing) if stage.name != "shadow" else 0.0
        closed += here
        found.append(StageForecast(stage.name, stage.share, math.floor(here + 1e-6), days))
    return tuple(found)


def _piece(plan: RolloutPlan, stage: PlannedStage) -> float:
    """Return the share of units that enters each arm's analysis; all, in shadow."""
    if stage.name == "live":
        return plan.holdback
    return 1.0 if stage.name == "shadow" else stage.share
