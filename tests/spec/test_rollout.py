"""What a declaration may say about rollouts, and that saying nothing changes no hash."""

import re
from pathlib import Path

import pytest

from steersman.errors import SpecError
from steersman.spec.loader import load, loads
from steersman.spec.point import DecisionPoint
from steersman.spec.rollout import ErrorBudget, Guardrail, Rollout, guardrail_name

CONFIGS = Path(__file__).parents[2] / "configs"
POINT = """
format: 1
skill: support
decision: route
actions: {kind: choice, names: [micro, planner]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {otherwise: planner}
reward: {terms: {success: {weight: 1.0}}}
"""
BEFORE = """
  stages:
    - {name: shadow, share: 0.0, min_units: 100}
    - {name: canary, share: 0.05}
    - {name: ab, share: 0.25}
    - {name: live, share: 0.95}
"""


def with_rollout(written: str) -> DecisionPoint:
    return loads(f"{POINT}rollout: {written}\n")


def test_hashes_of_before_there_was_more_to_declare():
    # As they were when the stages were four and guardrails had five fields.
    known = {
        "cache": "1eb48c18af789fa6b5e2b6e04a9906a0402846ba61f0a8a07ac70bb20f3c6463",
        "route": "76639d77c118bf962787b87ffc348fe9c64dd19f53d5179d95cef1c454c50b4a",
        "tool": "1403fbc15d708743a4fee80a07ab2f3bfbc9c798ad73ac0bea971bb3f3e64ec4",
    }
    text = (CONFIGS / "assistant" / "route.yaml").read_text(encoding="utf-8")
    assert "rollout:" in text
    for name, digest in known.items():
        assert load(CONFIGS / "assistant" / f"{name}.yaml").spec_hash == digest, name


def test_what_is_written_as_the_default_changes_nothing():
    same = "{alpha: 0.05, planned_units: 2000, objective: {kind: superior}, concurrent: false}"
    assert with_rollout(same).spec_hash == loads(POINT).spec_hash
    assert with_rollout("{guardrails: []}").spec_hash == loads(POINT).spec_hash


def test_every_other_meaning_has_another_hash():
    written = [
        "{alpha: 0.1}",
        "{planned_units: 500}",
        "{objective: {kind: non_inferior, margin: 0.02}}",
        "{error_budget: {period_s: 7200}}",
        "{unit_window_s: 60}",
        "{guardrails: [{metric: errors}]}",
        "{guardrails: [{metric: errors, tolerate: 0.01}]}",
        "{guardrails: [{outcome: a, above: 1}]}",
        "{guardrails: [{outcome: a, better: lower}]}",
        "{guardrails: [{outcome: a, better: lower, high: 2}]}",
        "{stages: [{name: canary, share: 0.05}]}",
        "{stages: [{name: canary, share: 0.05, min_s: 60}]}",
        BEFORE,
    ]
    hashes = {with_rollout(text).spec_hash for text in written} | {loads(POINT).spec_hash}
    assert len(hashes) == len(written) + 1


def test_ab_may_have_several_steps():
    steps = ", ".join(f"{{name: ab, share: {share}}}" for share in (0.1, 0.25, 0.5))
    assert len(with_rollout(f"{{stages: [{steps}]}}").rollout.stages) == 3


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{stages: [{name: canary, share: 0.101}]}", "a canary stage serves few units; got 0.101"),
        ("{stages: [{name: ab, share: 0.51}]}", "the control arm must have the same size"),
        ("{stages: [{name: live, share: 0.4}]}", "a live stage serves most units"),
        (
            "{stages: [{name: ab, share: 0.5}, {name: ab, share: 0.25}]}",
            "less than the share 0.5 of the stage before (ab)",
        ),
        (
            "{stages: [{name: live, share: 0.9}, {name: live, share: 0.95}]}",
            "only ab may repeat",
        ),
        (
            "{guardrails: [{metric: errors}, {metric: errors}]}",
            "rollout.guardrails[1]: declared twice",
        ),
        ("{guardrails: [{metric: latency}]}", "'reward' or 'errors'"),
        ("{alpha: 0.5}", "rollout.alpha"),
        ("{first_look_units: 10}", "allowed 20 or more"),
        ("{objective: {kind: non_inferior}}", "above 0 with non_inferior"),
        (
            "{guardrails: [{outcome: a, above: 1234567}, {outcome: a, above: 1234567.0}]}",
            "rollout.guardrails[1]: declared twice",
        ),
        ("{error_budget: {objective: 1.0}}", "rollout.error_budget.objective"),
    ],
)
def test_mistakes_are_told(written, told):
    with pytest.raises(SpecError) as caught:
        with_rollout(written)
    assert told in str(caught.value)


def test_guardrails_have_names():
    assert guardrail_name(Guardrail(metric="reward")) == "reward"
    assert guardrail_name(Guardrail(outcome="ms", above=900)) == "ms>900"
    assert guardrail_name(Guardrail(outcome="score", below=0.5)) == "score<0.5"
    assert guardrail_name(Guardrail(outcome="reward", better="higher")) == "mean(reward)"


def test_guardrails_have_names_of_their_own():
    assert guardrail_name(Guardrail(outcome="bytes", above=1e6)) == "bytes>1e+06"
    assert guardrail_name(Guardrail(outcome="bytes", above=1234567)) == "bytes>1234567"
    assert guardrail_name(Guardrail(outcome="score", below=0.12345678)) == "score<0.12345678"
    both = "{guardrails: [{outcome: bytes, above: 1234567}, {outcome: bytes, above: 1234568}]}"
    assert len(with_rollout(both).rollout.guardrails) == 2


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("objective: 0.9, fast_burn: 14.4", "fast_burn: unreachable with objective"),
        ("objective: 0.9, fast_burn: 14.4", "got 14.4; allowed 1 to 10, 1 / (1 - objective); low"),
        ("objective: 0.8, medium_burn: 6", "medium_burn: unreachable with objective"),
        ("objective: 0.95, fast_burn: 20", "got 20; allowed 1 to 19.999, 1 / (1 - objective)"),
        ("objective: 0.5, slow_burn: 2.1", "slow_burn: unreachable"),
        (
            "fast_burn: 101",
            "even if all decisions fail; got 101; allowed 1 to 99.999, 1 / (1 - ",
        ),
    ],
)
def test_a_burn_that_is_never_reached_is_refused(budget, told):
    with pytest.raises(SpecError, match=re.escape(told)):
        with_rollout(f"{{error_budget: {{{budget}}}}}")


@pytest.mark.parametrize("objective", [1e-9, 0.1, 0.5, 0.8, 0.9, 0.93, 0.95, 0.99, 0.99999])
def test_a_budget_whose_burns_are_not_declared_can_always_act(objective):
    budget = ErrorBudget(objective=objective)
    most = 1.0 / (1.0 - objective)
    assert 1.0 <= budget.medium_burn <= budget.fast_burn <= most
    assert ErrorBudget.model_validate(budget.model_dump()) == budget
    if objective >= 0.95:
        assert (budget.fast_burn, budget.medium_burn) == (14.4, 6.0)


def test_burns_that_are_lowered_by_themselves():
    budget = with_rollout("{error_budget: {objective: 0.8}}").rollout.error_budget
    assert (budget.fast_burn, budget.medium_burn) == pytest.approx((4.5, 3.0))
    budget = with_rollout("{error_budget: {objective: 0.8, fast_burn: 5}}").rollout.error_budget
    assert (budget.fast_burn, budget.medium_burn) == pytest.approx((5.0, 3.0))


def test_burns_that_are_lowered_change_no_hash():
    # As it was while such a budget had 14.4 and 6, which nothing reached.
    point = with_rollout("{error_budget: {objective: 0.8}}")
    digest = "056ca9bef4b90cdb15142464367d865b29c60e3e8928b7617e473b11059ad86a"
    assert point.spec_hash == digest
    assert DecisionPoint.model_validate(point.model_dump()).spec_hash == digest
    other = with_rollout("{error_budget: {objective: 0.8, fast_burn: 4}}")
    assert other.spec_hash != digest


def test_a_rollout_survives_its_own_dump():
    rollout = with_rollout("{guardrails: [{outcome: a, better: lower, tolerate: 0.01}]}").rollout
    assert Rollout.model_validate(rollout.model_dump()) == rollout
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout
