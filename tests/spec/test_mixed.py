"""Mixed actions as they are declared: grids, names, what is barred; mistakes at their line."""

from __future__ import annotations

import pytest

from steersman.errors import InputError, SpecError
from steersman.points.policy_factory import build
from steersman.spec.actions import Mixed, configuration_name
from steersman.spec.loader import loads
from steersman.spec.parts import RealPart, too_much
from steersman.spec.policy import FactoredTSPolicy

TUNER = """\
format: 1
skill: rag
decision: retrieval
actions:
  kind: mixed
  parts:
    variant: {type: categorical, values: [bm25, dense, hybrid]}
    k: {type: integer, low: 3, high: 32, scale: log}
    rerank: {type: boolean}
    weight: {type: real, low: 0, high: 1}
  barred: [{variant: dense, rerank: true}]
policy: {algorithm: factored_ts}
floor: 0.05
fallback: {otherwise: {variant: bm25, k: 3, rerank: true, weight: 0}}
reward: {terms: {quality: {weight: 1.0}}}
"""


def test_every_combination_is_an_action_but_for_those_barred():
    actions = loads(TUNER).actions
    assert len(actions.names) == (3 * 2 - 1) * 30 * 21 == len(set(actions.names))
    assert actions.names[0] == '{"k":3,"rerank":false,"variant":"bm25","weight":0.0}'
    assert not any('"rerank":true,"variant":"dense"' in name for name in actions.names)
    assert len(actions.marginals) == 3 + 30 + 2 + 21
    assert actions.marginals[28:34] == (
        *("k=31", "k=32", "rerank=false", "rerank=true", "variant=bm25", "variant=dense"),
    )


def test_names_do_not_depend_on_how_values_are_written():
    point = loads(TUNER)
    assert point.actions.name_of(point.fallback.otherwise) in point.actions.names
    assert configuration_name({"b": 1.0, "a": "é"}) == '{"a":"é","b":1.0}'


def test_grids_are_even_on_their_scale_and_reach_both_ends():
    assert loads(TUNER).actions.parts["weight"].grid[:4] == (0.0, 0.05, 0.1, 0.15)
    grid = RealPart(type="real", low=0.001, high=1.0, points=4, scale="log").grid
    assert grid == (0.001, 0.01, 0.1, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "weight: 0}",
            "weight: 0.33}",
            ":14: fallback.otherwise.weight: value not allowed for this part",
        ),
        ("weight: 0}", "weight: 0.33}", "got 0.33; allowed 0.0 to 1.0 in 20 even steps"),
        ("weight: 0}", "weight: true}", ":14: fallback.otherwise.weight"),
        ("bm25, k: 3, r", "dense, k: 3, r", ":14: fallback.otherwise: configuration is barred"),
        ("k: 3, rerank", "k: 33, rerank", "got 33; allowed 3 to 32"),
        (", k: 3, ", ", ", ":14: fallback.otherwise: no value for part k"),
        ("high: 32", "high: 3200", ":6: actions.parts: too many actions: 402,948"),
        ("high: 32", "high: 3200", "allowed 10,000 or fewer"),
        ("rerank: true}]", "reranks: true}]", "unknown part; got True; allowed variant, k, rerank"),
        ("rerank: true}]", "reranks: true}]", ":11: actions.barred[0].reranks"),
        (
            "barred: [{variant: dense, ",
            "barred: [{rerank: false}, {",
            "barred: all configurations are barred",
        ),
        ("low: 3, ", "low: 0, ", ":8: actions.parts.k.low: scale log needs a positive low; got 0"),
        ("factored_ts", "lin_ts", ":12: policy.algorithm: this policy does not support mixed"),
        ("factored_ts", "lin_ts", "allowed fixed, rules, factored_ts"),
        ("factored_ts", "factored_ts, draws: 0", ":12: policy.draws"),
        ("high: 1}", "high: 1, points: 1}", ":10: actions.parts.weight.points"),
        ("low: 0, high: 1}", "low: 1, high: 1.000000000000001}", "grid points coincide"),
    ],
)
def test_mistakes_are_told_where_they_stand(before, after, told):
    assert before in TUNER
    with pytest.raises(SpecError) as refused:
        loads(TUNER.replace(before, after), source="tuner.yaml")
    assert told in str(refused.value)
    assert str(refused.value).startswith("tuner.yaml:")


def test_a_policy_of_mixed_actions_is_for_no_others():
    text = TUNER[: TUNER.index("actions:")] + TUNER[TUNER.index("policy:") :]
    text += "actions: {kind: choice, names: [a, b]}\n"
    text = text.replace("otherwise: {variant: bm25, k: 3, rerank: true, weight: 0}", "otherwise: a")
    with pytest.raises(SpecError, match="does not support choice actions; got 'factored_ts'"):
        loads(text)


@pytest.mark.parametrize(
    ("low", "high", "points"), [(-0.1, 0.2, 4), (-0.15, 0.6, 16), (-1e-9, 2e-9, 4)]
)
def test_a_grid_across_nothing_holds_nothing_itself(low, high, points):
    part = RealPart(type="real", low=low, high=high, points=points)
    (least,) = [value for value in part.grid if abs(value) < (high - low) / points / 2]
    assert least == 0.0
    assert part.holds(0)
    assert part.exact(0) == 0.0


def test_small_values_of_a_logarithmic_grid_stay():
    grid = RealPart(type="real", low=1e-15, high=1.0, points=6, scale="log").grid
    assert grid == (1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1.0)


@pytest.mark.parametrize("value", [1e-12, 1.0000000005e-12, 0.001])
def test_a_logarithmic_grid_holds_what_is_on_it(value):
    assert RealPart(type="real", low=1e-15, high=1.0, points=6, scale="log").holds(value)


@pytest.mark.parametrize("value", [2e-12, 1.00001e-12, 3e-10, 0.00100001])
def test_a_logarithmic_grid_holds_nothing_beside_it(value):
    part = RealPart(type="real", low=1e-15, high=1.0, points=6, scale="log")
    assert not part.holds(value)
    assert RealPart(type="real", low=0.0, high=1.0, points=6).holds(1e-10)


def mixed_of(counts, *, scaled):
    """Return actions whose parts have so many values, all numbers on a scale or all names."""
    parts = {
        f"p{n}": {"type": "integer", "low": 1, "high": count}
        if scaled
        else {"type": "categorical", "values": [f"v{i}" for i in range(count)]}
        for n, count in enumerate(counts)
    }
    return Mixed.model_validate({"kind": "mixed", "parts": parts})


@pytest.mark.parametrize(
    ("counts", "scaled", "declared", "dim", "field"),
    [
        ([32, 16], False, {}, 8, None),
        ([27, 19], False, {}, 8, "parts"),
        ([512], False, {"pairs": False}, 8, None),
        ([513], False, {"pairs": False}, 8, "parts"),
        ([300, 30], True, {}, 8, None),
        ([2], False, {"contextual": True}, 1022, None),
        ([2], False, {"contextual": True}, 1023, "dim"),
        ([9, 9], True, {"contextual": True}, 124, None),
        ([9, 9], True, {"contextual": True}, 125, "dim"),
        ([32, 16], False, {"draws": 876}, 8, None),
        ([32, 16], False, {"draws": 877}, 8, "draws"),
        ([9, 9], True, {"contextual": True, "pairs": False, "draws": 241}, 126, None),
        ([9, 9], True, {"contextual": True, "pairs": False, "draws": 242}, 126, "draws"),
        ([10, 10, 10, 9], True, {"contextual": True, "draws": 226}, 56, None),
        ([10, 10, 10, 9], True, {"contextual": True, "draws": 227}, 56, "draws"),
    ],
)
def test_what_parts_take_is_counted_as_their_policy_counts(counts, scaled, declared, dim, field):
    actions = mixed_of(counts, scaled=scaled)
    policy = FactoredTSPolicy(algorithm="factored_ts", **declared)
    told = [problem.path[-1] for problem in too_much(actions, policy, dim)]
    assert told == ([field] if field else [])
    try:
        build(policy, actions.names, dim=dim, floor=0.0, mixed=actions)
    except InputError:
        assert field
    else:
        assert not field


def test_a_policy_of_parts_that_cannot_be_made_is_told_at_its_place():
    text = TUNER.replace("factored_ts", "factored_ts, contextual: true")
    wanted = (
        r":4: context.dim: too many weights: 1,033 \(54 features and 11 times 89 context numbers\)"
    )
    with pytest.raises(SpecError, match=f"{wanted}; got 89; allowed 1,024 weights or fewer"):
        loads(text.replace("actions:", "context: {dim: 89}\nactions:", 1))
    assert loads(text.replace("actions:", "context: {dim: 88}\nactions:", 1)).context.dim == 88


def test_what_is_served_must_be_on_the_grid():
    fixed = "fixed, action: {variant: bm25, k: 3, rerank: true, weight: 0.05}"
    assert loads(TUNER.replace("factored_ts", fixed)).policy.action["weight"] == 0.05
    with pytest.raises(SpecError, match=r"policy.action.weight: value not allowed"):
        loads(TUNER.replace("factored_ts", fixed.replace("0.05", "0.06")))
