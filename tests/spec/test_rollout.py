"""What a declaration may say about rollouts, and that saying nothing changes no hash."""

from pathlib import Path

import pytest

from steersman.errors import SpecError
from steersman.spec import DecisionPoint, Guardrail, Rollout, guardrail_name, load, loads

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
        ("{stages: [{name: canary, share: 0.101}]}", "a canary serves few; got 0.101"),
        ("{stages: [{name: ab, share: 0.51}]}", "the control arm has the same size"),
        ("{stages: [{name: live, share: 0.4}]}", "live serves most"),
        ("{stages: [{name: ab, share: 0.5}, {name: ab, share: 0.25}]}", "less than the 0.5 of ab"),
        (
            "{stages: [{name: live, share: 0.9}, {name: live, share: 0.95}]}",
            "each once but ab",
        ),
        (
            "{guardrails: [{metric: errors}, {metric: errors}]}",
            "rollout.guardrails[1]: watched twice",
        ),
        ("{guardrails: [{metric: latency}]}", "'reward' or 'errors'"),
        ("{alpha: 0.5}", "rollout.alpha"),
        ("{first_look_units: 10}", "allowed 20 or more"),
        ("{objective: {kind: non_inferior}}", "above 0 with non_inferior"),
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


def test_a_rollout_survives_its_own_dump():
    rollout = with_rollout("{guardrails: [{outcome: a, better: lower, tolerate: 0.01}]}").rollout
    assert Rollout.model_validate(rollout.model_dump()) == rollout
    assert Rollout.model_validate_json(rollout.model_dump_json()) == rollout
