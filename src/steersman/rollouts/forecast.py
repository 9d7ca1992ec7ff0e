"""Forecast of a rollout's units and days."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.special import ndtr

from steersman.db.decision_queries import unit_counts
from steersman.errors import InputError
from steersman.rollouts.arm_comparison import steadied
from steersman.rollouts.unit_outcomes import first_id
from steersman.stats import Moments, two_arm_confidence_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.db.points import PointRow
    from steersman.rollouts.plan import PlannedStage, RolloutPlan


_LEAST_S = 3600.0
_LARGEST_SD = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """Recent traffic of a decision point.

    Attributes:
        days: length of the log in days, at most the requested number.
        decisions: number of decisions.
        units: number of units.
        units_per_day: units per day; 0 without decisions.
        sd: standard deviation of the units' mean rewards, at most 0.5; None with fewer than two
            units.
        mean: mean of the units' mean rewards; None without units.
    """

    days: float
    decisions: int
    units: int
    units_per_day: float
    sd: float | None
    mean: float | None


async def traffic_of(connection: Any, point: PointRow, *, now: float, days: float = 7.0) -> Traffic:
    """Return the recent traffic of a decision point.

    Args:
        now: seconds since 1970.
        days: length of the period in days, above 0.
    """
    moment = datetime.fromtimestamp(now, UTC)
    since = moment - timedelta(days=days)
    key = point.tenant, point.skill, point.point
    found = await unit_counts(connection, key, since, moment, first=first_id(since))
    covered_s = 0.0 if found.first is None else (moment - found.first).total_seconds()
    covered = max(covered_s, _LEAST_S) / _DAY_S
    daily = found.units / covered
    # With divisor n - 1, the value for zeros and ones may slightly exceed its limit.
    sd = None if found.sd is None else min(found.sd, _LARGEST_SD)
    return Traffic(covered, found.decisions, found.units, daily, sd, found.mean)


_DAY_S = 86_400.0
_MOST_UNITS = 10**9
_HARM_POWER = 0.95


@dataclass(frozen=True, slots=True)
class StageForecast:
    """Forecast of one step.

    Attributes:
        name: stage.
        share: share of units that the candidate serves.
        units: units per arm that close in the step.
        days: duration in days.
    """

    name: str
    share: float
    units: int
    days: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a rollout.

    Attributes:
        stages: forecast of each step.
        units: units per arm until the objective is shown and all stages have enough units.
        needed_units: units per arm until the objective is shown.
        days: days from the start until the candidate becomes the live policy.
        power: probability that this is enough.
        harm_units: units of the candidate until a loss as large as the effect is rolled back, in 95
            of 100 rollouts; None: never, because the reward's guardrail tolerates it or only holds.
        effect: assumed effect.
        sd: assumed standard deviation of one unit's reward.
        guardrail_units: units per arm until a guardrail is shown within its margin, by guardrail.
    """

    stages: tuple[StageForecast, ...]
    units: int
    needed_units: int
    days: float
    power: float
    harm_units: int | None
    effect: float
    sd: float
    guardrail_units: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def forecast(
    plan: RolloutPlan,
    sd: float,
    effect: float,
    units_per_day: float,
    *,
    power: float = 0.8,
    spreads: Mapping[str, float] | None = None,
) -> Forecast:
    """Return the units and days needed to show that a candidate is better.

    The power is that of one look at the end that shows all claims at once, for independent metrics.
    Earlier looks promote some candidates sooner, so the real power is at least as high. Guardrails
    without a given spread are assumed to be shown by then. Often small margins decide the duration,
    not the objective.

    Args:
        sd: standard deviation of one unit's reward in [0, 1]; above 0, at most 0.5.
        units_per_day: new units of the decision point on both arms, above 0.
        power: probability of showing all claims, in (0, 1).
        spreads: standard deviation of one unit's value by the guardrail's name, 0 to 0.5; the
            assumed effect on these is 0.

    Raises:
        InputError: a number out of range, or an effect that no number of units can show.

    Example:
        >>> from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
        >>> stages = tuple(
        ...     PlannedStage(*stage, 86_400.0)
        ...     for stage in (("canary", 0.05, 200), ("ab", 0.5, 200), ("live", 0.95, 0))
        ... )
        >>> plan = RolloutPlan("r1", stages, (PlannedGuardrail("reward", "reward", alpha=0.025),))
        >>> found = forecast(plan, sd=0.25, effect=0.03, units_per_day=2000)
        >>> found.units, round(found.days, 1), found.harm_units
        (1830, 4.7, 3353)

    ``python -m benchmarks.rollout`` confirms the number by simulation.
    """
    spreads = {} if spreads is None else spreads
    _check(sd, effect, units_per_day, power, spreads)
    loss = plan.objective_margin if plan.objective == "non_inferior" else 0.0
    objective, margins = _Claim(sd, effect + loss), _margins(plan, spreads)
    planned, early = 2 * plan.planned_units, 2 * plan.harm_units
    units = _needed([objective, *margins.values()], power, plan.alpha, planned)
    canary = _needed([_Claim(sd, max(effect, 0.0) + plan.canary_margin)], power, plan.alpha, early)
    stages = _stages(plan, max(units, plan.first_look_units), canary, units_per_day)
    tested = sum(stage.units for stage in stages if stage.name in {"canary", "ab"})
    return Forecast(
        stages,
        units=max(units, tested),
        needed_units=units,
        days=sum(stage.days for stage in stages),
        power=power,
        harm_units=_harm_units(plan, sd, abs(effect) or loss),
        effect=effect,
        sd=sd,
        guardrail_units={
            name: _needed([claim], power, plan.alpha, planned) for name, claim in margins.items()
        },
    )


class _Claim(NamedTuple):
    """Claim that a difference is smaller than ``distance``."""

    sd: float
    distance: float


def _check(
    sd: float, effect: float, units_per_day: float, power: float, spreads: Mapping[str, float]
) -> None:
    for name, value in (("sd", sd), ("units_per_day", units_per_day)):
        if not (math.isfinite(value) and value > 0.0):
            message = f"invalid {name} {value!r}: expected a finite number above 0; measure it"
            raise InputError(message)
    for name, value in {"sd": sd, **spreads}.items():
        if not 0.0 <= value <= 0.5:
            message = f"invalid standard deviation {name} {value!r}: expected 0 to 0.5, because "
            raise InputError(message + "rewards lie in 0 to 1")
    if not 0.0 < power < 1.0:
        message = f"invalid power {power!r}: expected 0 < power < 1, for example 0.8"
        raise InputError(message)
    if not math.isfinite(effect):
        message = (
            f"invalid effect {effect!r}: expected a finite difference of rewards, for example 0.03"
        )
        raise InputError(message)


def _margins(plan: RolloutPlan, spreads: Mapping[str, float]) -> dict[str, _Claim]:
    """Return the claims for guardrails with a known spread, except the reward."""
    return {
        each.name: _Claim(spreads[each.name], each.margin)
        for each in plan.guardrails[1:]
        if each.name in spreads and each.worse == "roll_back"
    }


def _harm_units(plan: RolloutPlan, sd: float, loss: float) -> int | None:
    """Return units of the candidate until a loss of reward causes a rollback.

    Only a loss above ``tolerate`` rolls back; a guardrail that holds never does.
    """
    reward, early = plan.guardrails[0], 2 * plan.harm_units
    beyond = _Claim(sd, loss - reward.tolerate)
    most = _chance(beyond, _MOST_UNITS, reward.alpha, early)
    if reward.worse == "hold" or most < _HARM_POWER:
        return None
    return _needed([beyond], _HARM_POWER, reward.alpha, early)


def _needed(claims: Sequence[_Claim], power: float, alpha: float, n_star: int) -> int:
    """Return the units per arm at which one look shows all claims with this power."""

    def enough(n: int) -> bool:
        return math.prod(_chance(claim, n, alpha, n_star) for claim in claims) >= power

    if not enough(_MOST_UNITS):
        smallest = min(claims, key=lambda claim: claim.distance)
        message = f"a difference of {smallest.distance!r} with standard deviation "
        message += f"{smallest.sd!r} needs more than {_MOST_UNITS:,} units; give an effect "
        raise InputError(message + "above 0 (or above minus the margin) and margins above 0")
    low, high = 1, _MOST_UNITS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _chance(claim: _Claim, n: int, alpha: float, n_star: int) -> float:
    """Return the probability that a bound excludes the distance at n units per arm."""
    # The mean of a 0/1 value with this spread: rare errors have a small mean.
    mean = 0.5 - math.sqrt(0.25 - claim.sd**2)
    arm = steadied(Moments(n, mean, claim.sd**2))
    low, high = two_arm_confidence_sequence(
        arm, arm, level=1.0 - alpha, n_star=n_star, one_sided=True
    )
    room = claim.distance - (high - low) / 2.0
    error = claim.sd * math.sqrt(2.0 / n)
    if error == 0.0:
        return float(room > 0.0)
    return float(ndtr(room / error))


def _stages(
    plan: RolloutPlan, units: int, canary: int, units_per_day: float
) -> tuple[StageForecast, ...]:
    """Return the units and days of each step, given the steps before it."""
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
            days = max(days, _days(stage, wanted, rate) + closing)
        # The newest units are still open when the step ends.
        here = rate * max(0.0, days - closing) if stage.name != "shadow" else 0.0
        closed += here
        found.append(StageForecast(stage.name, stage.share, math.floor(here + 1e-6), days))
    return tuple(found)


def _days(stage: PlannedStage, wanted: float, rate: float) -> float:
    if rate > 0.0:
        return wanted / rate
    message = f"{stage.name} waits for {wanted:.0f} units per arm but gets none; declare a "
    raise InputError(message + "holdback, or no minimum number of units for this stage")


def _piece(plan: RolloutPlan, stage: PlannedStage) -> float:
    """Return the share of units that is analysed per arm; 1 in shadow."""
    if stage.name == "live":
        return plan.holdback
    return 1.0 if stage.name == "shadow" else stage.share
