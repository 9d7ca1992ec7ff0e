"""A forecast is the closed form of one look; simulated rollouts are in test_error_rates."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steersman.errors import InputError
from steersman.rollouts.arm_comparison import MetricEvidence, compare, steadied
from steersman.rollouts.forecast import forecast
from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
from steersman.stats import Moments, two_arm_confidence_sequence

DAY = 86_400.0
PLAN = RolloutPlan(
    "s",
    (
        PlannedStage("shadow", 0.0, 100, DAY),
        PlannedStage("canary", 0.05, 200, DAY),
        PlannedStage("ab", 0.5, 200, DAY),
        PlannedStage("live", 0.95, 0, DAY),
    ),
    (
        PlannedGuardrail("reward", "reward", better="higher", alpha=0.025),
        PlannedGuardrail("errors", "errors", margin=0.01, alpha=0.0125),
        PlannedGuardrail("cost", "mean", "cost", worse="hold", alpha=0.0125),
    ),
    unit_window_s=1.0,
    reward_window_s=1.0,
)


@pytest.mark.slow
@given(st.floats(0.02, 0.2), st.floats(0.1, 0.5), st.floats(0.5, 0.95))
def test_units_are_the_fewest_that_have_the_power(effect, sd, power):
    found = forecast(PLAN, sd, effect, 1e12, power=power)

    def chance(n):
        arm = steadied(Moments(n, 0.5 - math.sqrt(0.25 - sd * sd), sd * sd))
        low, high = two_arm_confidence_sequence(arm, arm, level=0.95, n_star=4000, one_sided=True)
        return stats.norm.cdf((effect - (high - low) / 2) / (sd * math.sqrt(2 / n)))

    needed = next(n for n in range(1, 10**6) if chance(n) >= power) if effect > 0.1 else None
    if needed is not None:
        # Traffic is endless, so stages of a day see more than they need.
        assert found.units >= needed
        assert chance(needed - 1) < power
    assert found.power == power


def test_what_the_effect_takes_is_told_apart_from_what_stages_wait_for():
    few, many = (forecast(PLAN, 0.25, 0.03, rate) for rate in (1e3, 1e6))
    assert few.needed_units == few.units == many.needed_units
    assert many.units > 10 * many.needed_units  # a day for each stage is many units then


def test_days_follow_from_shares_and_traffic():
    found = forecast(PLAN, 0.25, 0.03, 2000)
    assert [stage.name for stage in found.stages] == ["shadow", "canary", "ab", "live"]
    canary, last = found.stages[1:3]
    assert (canary.units, canary.days) == (200, pytest.approx(2.0, abs=1e-3))
    assert last.days == pytest.approx(last.units / 1000, abs=1e-3)
    assert found.units == canary.units + last.units == 1830
    assert found.days == pytest.approx(1 + canary.days + last.days + 1)
    slower = forecast(PLAN, 0.25, 0.03, 200)
    assert slower.units == pytest.approx(found.units, abs=2)
    assert slower.stages[2].days == pytest.approx(10 * last.days, rel=0.01)


def test_a_margin_may_take_longer_than_the_objective():
    alone = forecast(PLAN, 0.25, 0.05, 1000)
    both = forecast(PLAN, 0.25, 0.05, 1000, spreads={"errors": 0.1, "cost": 0.5})
    assert both.guardrail_units == {"errors": pytest.approx(2700, abs=100)}
    assert both.units == both.guardrail_units["errors"] > 2 * alone.units


def test_an_objective_that_asks_for_less_takes_fewer():
    plan = replace(PLAN, objective="non_inferior", objective_margin=0.03)
    assert forecast(plan, 0.25, 0.0, 1000).units == pytest.approx(1830, abs=2)
    assert forecast(plan, 0.25, 0.03, 1000).units < 700


def test_half_of_an_effect_takes_four_times_as_long_and_a_little_more():
    first, second = (forecast(PLAN, 0.25, effect, 1e3).units for effect in (0.02, 0.01))
    assert 4.0 < second / first < 5.0


def _with_reward(**changes):
    return replace(PLAN, guardrails=(replace(PLAN.guardrails[0], **changes), *PLAN.guardrails[1:]))


@pytest.mark.parametrize("tolerate", [0.0, 0.01, 0.02])
def test_a_loss_is_rolled_back_by_then_beyond_what_is_tolerated(tolerate):
    plan = _with_reward(tolerate=tolerate)
    n, rng, hits = forecast(plan, 0.25, 0.03, 2000).harm_units, np.random.default_rng(0), 0
    for _ in range(300):
        # Of a mean over n units of half and half at a distance of sd from their mean.
        means = [m + 0.25 * (2.0 * rng.binomial(n, 0.5) / n - 1.0) for m in (0.47, 0.5)]
        arms = [Moments(n, mean, 0.0625) for mean in means]
        (seen, *_) = compare(plan, {"reward": MetricEvidence(*arms)})
        hits += seen.harm_high < -tolerate
    assert 0.91 <= hits / 300 <= 0.98


@pytest.mark.parametrize(
    "changes", [{"tolerate": 0.03}, {"tolerate": 0.1}, {"tolerate": 0.03 - 1e-9}, {"worse": "hold"}]
)
def test_what_is_tolerated_or_held_is_never_rolled_back(changes):
    assert forecast(_with_reward(**changes), 0.25, 0.03, 2000).harm_units is None


IDLE = replace(PLAN, stages=(*PLAN.stages[:3], PlannedStage("live", 1.0, 5, DAY)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"sd": 0.0}, "invalid sd 0.0"),
        ({"sd": 0.6}, "0 to 0.5"),
        ({"sd": math.nan}, "invalid sd nan"),
        ({"units_per_day": -1.0}, "invalid units_per_day -1.0"),
        ({"power": 1.0}, "invalid power 1.0"),
        ({"effect": 0.0}, "needs more than"),
        ({"effect": -0.1}, "needs more than"),
        ({"effect": math.nan}, "invalid effect nan"),
        ({"spreads": {"errors": 0.7}}, "errors 0.7"),
        ({"plan": IDLE}, "live waits for 5 units per arm but gets none"),
    ],
)
def test_forecast_with_bad_arguments_says_what_is_wrong(arguments, says):
    asked = {"plan": PLAN, "sd": 0.25, "effect": 0.03, "units_per_day": 1000.0} | arguments
    with pytest.raises(InputError, match=says):
        forecast(**asked)
