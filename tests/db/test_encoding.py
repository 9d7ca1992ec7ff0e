"""Context encoding: stored as decided, in float32, with non-empty keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import NO_KEY, encode, encode_rows, rounded
from steersman.points.policy_factory import build
from steersman.spec.loader import loads

if TYPE_CHECKING:
    from steersman.spec.point import DecisionPoint

ALGORITHMS = {
    "lin_ucb": "{algorithm: lin_ucb}",
    "lin_ts": "{algorithm: lin_ts}",
    "kernel_ucb": "{algorithm: kernel_ucb, random_features: 16}",
    "bounded": "{algorithm: bounded_lin_ucb}",
    "contextual": "{algorithm: epsilon_greedy, contextual: true}",
    "plain": "{algorithm: epsilon_greedy}",
    "beta": "{algorithm: beta_thompson, key: intent}",
    "fixed": "{algorithm: fixed, action: a}",
    "rules": '{algorithm: rules, rules: [{when: "score > 0.5", action: b}], otherwise: a}',
}


def point(policy: str, number: str = "{type: number, mean: 0, sd: 1}") -> DecisionPoint:
    return loads(f"""
format: 1
skill: s
decision: d
context: {{dim: 16, fields: {{intent: {{type: category}}, score: {number}}}}}
actions: {{kind: choice, names: [a, b]}}
policy: {policy}
floor: 0.1
fallback: {{rules: [], otherwise: a}}
reward: {{terms: {{ok: {{weight: 1}}}}}}
""")


@pytest.mark.parametrize("name", ["lin_ucb", "lin_ts", "kernel_ucb", "bounded", "contextual"])
def test_linear_policies_get_a_vector_that_float32_holds_exactly(name):
    spec = point(ALGORITHMS[name])
    features = FeatureMap(spec.context)
    x, key = encode(spec, features, {"intent": "refund", "score": 0.3})
    assert key is None
    assert x.dtype == np.float64
    assert (x.astype(np.float32).astype(np.float64) == x).all()
    np.testing.assert_allclose(x, features.encode({"intent": "refund", "score": 0.3}), rtol=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_policy_decides_from_what_it_is_given(name):
    spec = point(ALGORITHMS[name])
    context = {"intent": "refund", "score": 0.7}
    x, key = encode(spec, FeatureMap(spec.context), context)
    policy = build(spec.policy, spec.actions.names, dim=spec.context.dim, floor=spec.floor)
    given = context if name == "rules" else x if key is None else key
    assert policy.distribution(given).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("context", [{}, {"intent": None}, {"intent": ""}])
def test_a_missing_key_is_a_key_of_its_own(context):
    spec = point(ALGORITHMS["beta"])
    assert encode(spec, FeatureMap(spec.context), context) == (None, NO_KEY)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("context", [{"intnt": "x"}, {"intent": 3}, {"score": "high"}, [1.0]])
def test_a_context_that_is_not_as_declared_is_refused_by_every_policy(name, context):
    spec = point(ALGORITHMS[name])
    with pytest.raises(InputError):
        encode(spec, FeatureMap(spec.context), context)


def test_numbers_not_fitted_yet_hinder_only_those_who_need_them():
    for name in ("beta", "fixed", "rules", "plain"):
        spec = point(ALGORITHMS[name], "{type: number}")
        features = FeatureMap(spec.context)
        assert encode(spec, features, {"score": 2.0})[0] is None
        with pytest.raises(InputError, match="score"):
            encode(spec, features, {"score": "high"})
    spec = point(ALGORITHMS["lin_ucb"], "{type: number}")
    with pytest.raises(InputError, match="neither declared nor fitted"):
        encode(spec, FeatureMap(spec.context), {"score": 2.0})


@pytest.mark.parametrize("values", [[1e39], [float("nan")], ["a"], [[1.0], [2.0, 3.0]], [None]])
def test_rounding_refuses_what_float32_cannot_hold(values):
    with pytest.raises(InputError):
        rounded(values)


def test_rows_are_what_each_context_alone_becomes():
    spec = point(ALGORITHMS["lin_ucb"])
    features = FeatureMap(spec.context)
    contexts = [{"intent": "refund", "score": 0.1}, {"score": None}, {"intent": "x", "score": 3}]
    rows = encode_rows(features, contexts)
    assert rows.dtype == np.float32
    alone = [encode(spec, features, context)[0].tobytes() for context in contexts]
    assert [row.astype(np.float64).tobytes() for row in rows] == alone
