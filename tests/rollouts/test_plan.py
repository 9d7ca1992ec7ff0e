"""A declaration, with what somebody overrode, becomes numbers that are fixed and can be stored."""

import json
import math

import pytest

from steersman.errors import InputError
from steersman.rollouts.plan import PlannedGuardrail, RolloutPlan, plan_of
from steersman.spec.loader import loads

POINT = """
format: 1
skill: support
decision: route
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: epsilon_greedy}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}, window_s: 300}
"""
FIVE = """
rollout:
  guardrails:
    - {metric: errors, margin: 0.005}
    - {outcome: success, better: higher}
    - {outcome: latency_ms, above: 900, margin: 0.02, tolerate: 0.01}
    - {outcome: cost_usd, better: lower, high: 0.1, action: hold}
"""


def test_the_defaults():
    plan = plan_of(loads(POINT), salt="s")
    stages = [(stage.name, stage.share, stage.min_units, stage.min_s) for stage in plan.stages]
    assert stages == [
        ("shadow", 0.0, 100, 86_400.0),
        ("canary", 0.05, 200, 86_400.0),
        ("ab", 0.25, 200, 86_400.0),
        ("ab", 0.5, 200, 86_400.0),
        ("live", 0.95, 0, 86_400.0),
    ]
    assert (plan.holdback, plan.unit_window_s, plan.closing_s) == (0.05, 300.0, 600.0)
    assert [guardrail.name for guardrail in plan.guardrails] == ["reward", "errors"]
    assert [guardrail.alpha for guardrail in plan.guardrails] == [0.025, 0.025]
    assert (plan.objective, plan.alpha, plan.sample_ratio_alpha) == ("superior", 0.05, 0.001)


def test_half_of_alpha_watches_the_reward_and_the_rest_is_split():
    plan = plan_of(loads(POINT + FIVE), salt="s")
    assert [guardrail.name for guardrail in plan.guardrails] == [
        *("reward", "errors", "mean(success)", "latency_ms>900", "mean(cost_usd)")
    ]
    alphas = [guardrail.alpha for guardrail in plan.guardrails]
    assert alphas[0] == 0.025
    assert alphas[1:] == [0.025 / 4] * 4
    assert math.fsum(alphas) == pytest.approx(plan.alpha, abs=1e-15)
    assert [guardrail.margin for guardrail in plan.guardrails] == [0.03, 0.005, 0.03, 0.02, 0.03]
    assert plan.guardrails[3] == PlannedGuardrail(
        "latency_ms>900", "above", "latency_ms", 900.0, margin=0.02, tolerate=0.01, alpha=0.025 / 4
    )
    assert (plan.guardrails[4].worse, plan.guardrails[4].better) == ("hold", "lower")
    assert plan.guardrails[2].better == "higher"


@pytest.mark.parametrize("declared", [POINT, POINT + FIVE])
def test_a_plan_survives_being_stored(declared):
    plan = plan_of(loads(declared), salt="s")
    assert RolloutPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_overrides_are_written_as_in_the_declaration():
    stages = [{"name": "canary", "share": 0.1, "min_s": 5.0}, {"name": "live", "share": 1.0}]
    changes = {"stages": stages, "error_budget": {"period_s": 7200.0}, "unit_window_s": 2.0}
    plan = plan_of(loads(POINT + FIVE), salt="s", overrides=changes)
    assert [stage.min_s for stage in plan.stages] == [5.0, 86_400.0]
    assert (plan.budget.period_s, plan.unit_window_s, plan.holdback) == (7200.0, 2.0, 0.0)
    assert len(plan.guardrails) == 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alpha": 0.7}, "rollout.alpha: .*got 0.7"),
        ({"stages": [{"name": "canary", "share": 0.2}]}, "rollout.stages.0.share: .*got 0.2"),
        ({"stagse": []}, "rollout.stagse"),
    ],
)
def test_overrides_that_are_none_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        plan_of(loads(POINT), salt="s", overrides=changes)


def test_what_was_not_a_plan_is_refused():
    with pytest.raises(InputError, match="invalid rollout plan"):
        RolloutPlan.from_json({"salt": 3})


def test_the_objective_is_needed_where_the_candidate_takes_over():
    def needed(*names):
        shares = {"shadow": 0.0, "canary": 0.05, "ab": 0.5, "live": 0.95}
        stages = [{"name": name, "share": shares[name]} for name in names]
        plan = plan_of(loads(POINT), salt="s", overrides={"stages": stages})
        return [plan.needs_objective(step) for step in range(len(names))]

    assert needed("shadow", "canary", "ab", "live") == [False, False, True, False]
    assert needed("canary", "ab") == [False, True]
    assert needed("canary", "live") == [True, False]
    assert needed("live") == [True]
    assert needed("shadow", "live") == [False, True]
    assert needed("shadow") == [False]
