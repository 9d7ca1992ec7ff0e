"""Configurations: ours, those of the original, and what is wrong with bad ones, line by line."""

import json

import pytest

from steersman.errors import SpecError
from steersman.rollouts.pipeline.candidate_declaration import (
    candidate_of,
    check_points,
    document_of,
)
from steersman.rollouts.pipeline.config import load_config
from steersman.rollouts.pipeline.release_steps import overrides_of
from steersman.spec.loader import loads
from steersman_systems.assistant.points import load_points
from steersman_systems.configs import assistant_pipeline
from tests.rollouts.pipeline.world import ASSISTANT, config

POINTS = load_points()
ORIGINAL = {
    "dataset": {"min_episodes": 5, "lookback_days": 30},
    "training": {
        "routing": {"alpha": 0.5, "feature_dim": 64},
        "tools": {"algorithm": "beta_thompson", "alpha_prior": 1.0, "beta_prior": 1.0},
    },
    "evaluation": {"min_policy_value": 0.4},
    "deployment": {"canary_traffic_pct": 5.0, "prod_after_canary": True},
}


def test_the_shipped_one_changes_nothing_of_what_is_declared():
    loaded = load_config(assistant_pipeline())
    check_points(loaded, ASSISTANT)
    for spec in (POINTS.cache, POINTS.route, POINTS.tool):
        assert candidate_of(loaded, ASSISTANT, spec) is None
    assert loaded.config.deployment.share == 0.05


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_the_keys_of_the_original_are_understood(tmp_path, indent):
    loaded = config(tmp_path, json.dumps(ORIGINAL, indent=indent), "config.json")
    found = loaded.config
    check_points(loaded, ASSISTANT)
    assert (found.dataset.minimum, found.dataset.lookback_days) == (5, 30)
    assert found.evaluation.min_policy_value == 0.4
    assert (found.deployment.share, found.deployment.goes_on) == (0.05, True)
    assert candidate_of(loaded, ASSISTANT, POINTS.route) is None  # as it is declared


def test_parameters_of_the_original_become_ours(tmp_path):
    loaded = config(tmp_path, "training: {routing: {alpha: 0.25, feature_dim: 32}}")
    made = candidate_of(loaded, ASSISTANT, POINTS.route)
    assert (made.policy.alpha, made.context.dim) == (0.25, 32)
    assert made.policy.ridge == POINTS.route.policy.ridge
    text = "{cache: {algorithm: beta_thompson, key: intent, alpha_prior: 2, beta_prior: 3}}"
    made = candidate_of(config(tmp_path, f"training: {text}"), ASSISTANT, POINTS.cache)
    assert (made.policy.prior, made.policy.key) == ((2.0, 3.0), "intent")
    assert loads(document_of(made)).spec_hash == made.spec_hash


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dataset:\n  min_decisions: 0", "2: dataset.min_decisions: too small; got 0; allowed 1"),
        (
            "dataset: {min_decisions: 5, min_episodes: 5}",
            "episodes: duplicate of min_decisions",
        ),
        ("dataset: {lookback_days: soon}", "lookback_days: wrong type; got 'soon'; allowed a numb"),
        ("evaluation: {max_variance: 0.3}", "max_variance: ambiguous: the variance of a reward"),
        ("evaluation: {max_variance: 0.3}", "use max_standard_error instead"),
        ("evaluation: {min_value: 1.4}", "min_value: too large; got 1.4; allowed 1"),
        ("evaluation: {min_vale: 0.4}", "evaluation.min_vale: unknown field"),
        ("deployment:\n  canary_share: 0.2", "2: deployment.canary_share: too large; got 0.2"),
        ("deployment: {canary_traffic_pct: 11}", "canary_traffic_pct: too large; got 11"),
        ("deployment: {canary_traffic_pct: 0}", "canary_traffic_pct: too small; got 0"),
        ("deployment: {canary_share: 0.1, canary_traffic_pct: 5}", "duplicate of canary_share"),
        ("deployment: {prod_after_canary: yes please}", "prod_after_canary: wrong type"),
        ("format: 2", "1: format: unknown choice; got 2; allowed 1"),
        ("format: 1\nformat: 1", "duplicate key 'format', first on line 1"),
        ("[1, 2]", "1: a list at the top"),
        ('{"dataset": ', "not valid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_line_value_and_range(tmp_path, text, said):
    with pytest.raises(SpecError) as refused:
        config(tmp_path, text)
    assert said in str(refused.value)
    assert str(tmp_path / "pipeline.yaml") in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "route:\n    alpha: -1",
            "3: training.route.alpha: too small; got -1; allowed 0.0 or more",
        ),
        ("route: {alpha: high}", "training.route.alpha: wrong type; got 'high'"),
        ("route: {alfa: 1}", "training.route.alfa: unknown parameter of lin_ucb; got 1; allowed"),
        ("route: {feature_dim: 4}", "training.route.feature_dim: too small; got 4; allowed 8"),
        ("route: {dim: 12}", "training.route.dim: bias and numbers take"),
        ("route: {dim: 32, feature_dim: 32}", "feature_dim: duplicate of dim"),
        ("route: {algorithm: linucb}", "training.route.algorithm: unknown choice; got 'linucb'"),
        ("route: {floor: 1.5}", "training.route.floor: too large; got 1.5"),
        ("route: {floor: 0.0}", "training.route.floor"),
        ("route: {alpha_prior: 1.0}", "or set algorithm: beta_thompson, which has this prior"),
        (
            "route: {algorithm: beta_thompson, alpha_prior: 0}",
            "training.route.alpha_prior: too small; got 0",
        ),
        ("routes: {alpha: 1}", "training.routes: unknown decision point"),
        ("routing: {alpha: 1}\n  route: {alpha: 2}", "training.route: duplicate of route"),
    ],
)
def test_parameters_are_checked_against_what_is_declared(tmp_path, text, said):
    loaded = config(tmp_path, f"training:\n  {text}")

    def check():
        check_points(loaded, ASSISTANT)
        candidate_of(loaded, ASSISTANT, POINTS.route)

    with pytest.raises(SpecError) as refused:
        check()
    assert said in str(refused.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="save it as UTF-8"):
        load_config(tmp_path / "bad.json")


def test_the_plan_of_a_rollout_has_a_shadow_and_the_canary_that_was_asked_for(tmp_path):
    asked = config(tmp_path, "deployment: {canary_share: 0.03}").config.deployment
    stages = overrides_of(POINTS.route, asked)["stages"]
    named = [(stage["name"], stage["share"]) for stage in stages]
    assert named == [("shadow", 0.0), ("canary", 0.03), ("ab", 0.25), ("live", 0.95)]
    assert stages[1]["min_units"] == 1000
    bare = POINTS.route.model_copy(
        update={
            "rollout": POINTS.route.rollout.model_validate(
                {"stages": [{"name": "ab", "share": 0.5, "min_units": 70}]}
            )
        }
    )
    stages = overrides_of(bare, asked)["stages"]
    assert [(stage["name"], stage["min_units"]) for stage in stages] == [
        ("shadow", 100),
        ("canary", 70),
        ("ab", 70),
    ]
