"""What a policy file may say."""

import pytest

from steersman.errors import SpecError
from steersman_systems.rag_tuner.policy_config import load_policy_config

FIRST_DESIGN = """
policy:
  bounds:
    k: {min: 3, max: 32}
    fusion_weight: {min: 0.0, max: 1.0}
  discrete:
    variant: [A, B]
    rerank: [off, on]
  thresholds:
    faithfulness: 0.75
    relevancy: 0.75
    p95_latency_ms: 500
  reward_weights:
    alpha: 0.5
    beta: 0.5
    gamma: 0.2
    delta: 0.2
    lambda: 1.0
"""


def declared(tmp_path, text):
    file = tmp_path / "policy.yaml"
    file.write_text(text, encoding="utf-8")
    return load_policy_config(file)


def test_the_first_designs_example_is_understood(tmp_path):
    old, shipped = declared(tmp_path, FIRST_DESIGN), load_policy_config()
    assert old.discrete.variant == ("bm25", "dense")
    assert old.discrete.rerank == (False, True)
    assert old.space.ks == shipped.space.ks == tuple(range(3, 33))
    assert old.reward_weights == shipped.reward_weights
    assert old.thresholds == shipped.thresholds
    assert old.penalties == shipped.penalties


def test_the_grid_of_weights():
    weights = load_policy_config().space.weights
    assert (len(weights), weights[0], weights[1], weights[-1]) == (21, 0.0, 0.05, 1.0)


def test_a_range_without_width_is_one_weight(tmp_path):
    text = FIRST_DESIGN.replace("{min: 0.0, max: 1.0}", "{min: 0.3, max: 0.3}")
    assert declared(tmp_path, text).space.weights == (0.3,)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max: 32", "max: 2", "policy.bounds.k.max: below min; got 2; allowed 3 to 100"),
        ("max: 32", "max: 200", "policy.bounds.k.max"),
        ("max: 1.0", "max: 1.5", "policy.bounds.fusion_weight.max"),
        ("[A, B]", "[A, bm25]", "named twice"),
        ("[A, B]", "[]", "policy.discrete.variant"),
        ("[off, on]", "[maybe]", "policy.discrete.rerank"),
        ("alpha: 0.5", "alpha: -1", "policy.reward_weights.alpha"),
        ("alpha: 0.5", "alpha: .nan", "policy.reward_weights.alpha"),
        ("p95_latency_ms: 500", "p95_latency_ms: 0", "policy.thresholds.p95_latency_ms"),
        ("lambda: 1.0", "lamda: 1.0", "lamda"),
    ],
)
def test_mistakes_are_told_with_their_lines(tmp_path, old, new, says):
    assert old in FIRST_DESIGN
    text = FIRST_DESIGN.replace(old, new)
    line = 1 + text[: text.index(new)].count("\n")
    with pytest.raises(SpecError) as caught:
        declared(tmp_path, text)
    assert says in str(caught.value)
    assert f"policy.yaml:{line}: " in str(caught.value)
