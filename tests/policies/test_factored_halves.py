"""Halves add up to the whole: worths and shares are those of every configuration multiplied out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steersman.policies import FactoredTS
from steersman.policies.factored_halves import TIE, Halves
from steersman.policies.part_features import part_features
from steersman.policies.space import key_of, space_of

SPACES = {
    "five": (
        {
            "expansion": [False, True],
            "fusion_weight": [0.0, 0.25, 0.5, 0.75, 1.0],
            "k": [3, 5, 8, 13, 21, 32],
            "rerank": [False, True],
            "variant": ["bm25", "dense", "hybrid"],
        },
        {"k": "log", "fusion_weight": "linear"},
    ),
    "two": ({"a": [1, 2, 3], "b": ["x", "y"]}, {}),
    "one": ({"a": ["x", "y", "z"]}, {}),
    "lopsided": ({"a": list(range(200)), "b": [False, True]}, {"a": "linear"}),
}
BARRED = {"five": [{"variant": "dense"}, {"k": 3, "rerank": True}], "two": [{"a": 1, "b": "x"}]}


def multiplied_out(rows, weights, eligible):
    """The definition: the worth of every configuration in every draw, ties sharing it."""
    worth = np.where(eligible, weights.T @ rows.T, -np.inf)
    best = worth >= worth.max(axis=1, keepdims=True) - TIE
    return (best / best.sum(axis=1, keepdims=True)).sum(axis=0)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("barred", [False, True])
@pytest.mark.parametrize("name", SPACES)
def test_worths_and_shares_are_those_multiplied_out(name, barred, pairs):
    parts, scales = SPACES[name]
    bars = BARRED.get(name, []) if barred else []
    key = key_of(parts, scales, bars)
    rows, alone = part_features(key, pairs, 0.02)
    halves, rng = Halves(key, pairs, 0.02), np.random.default_rng(3)
    weights = rng.normal(size=(rows.shape[1], 20))
    across = halves.across(weights)
    for _ in range(3):  # contexts change what parts do by themselves
        weights[1 : 1 + alone] += rng.normal(size=(alone, 20))
        assert np.allclose(halves.worth(across, weights), weights.T @ rows.T, atol=1e-12)
        for eligible in (None, rng.random(len(rows)) < 0.3):
            allowed = np.ones(len(rows), bool) if eligible is None else eligible
            if not allowed.any():
                continue
            found = halves.shares(across, weights, eligible)
            assert np.array_equal(found, multiplied_out(rows, weights, allowed))
            assert found.sum() == pytest.approx(20)
            assert not found[~allowed].any()


def test_ties_share_a_draw():
    key = key_of(*SPACES["five"], [])
    halves = Halves(key, True, 0.01)
    weights = np.zeros((part_features(key, True, 0.01).rows.shape[1], 2))
    found = halves.shares(halves.across(weights), weights, None)
    assert np.allclose(found, 2 / len(space_of(key).names))


def test_a_decision_is_that_of_the_draws_multiplied_out():
    """Through the policy: its distribution is that of its own draws, in any context."""
    parts, scales = SPACES["five"]
    policy = FactoredTS(parts=parts, scales=scales, dim=3, floor=0.1, draws=32)
    rows, alone = part_features(key_of(parts, scales, []), True, 0.01)
    rng = np.random.default_rng(5)
    for _ in range(40):
        x, name = rng.normal(size=3), policy.actions[rng.integers(len(policy.actions))]
        policy.learn(x, name, float(rng.random()))
        seen = rng.normal(size=3)
        found = policy.decide(seen, rng=rng)
        drawn = policy._draws_now().weights
        inner = drawn[rows.shape[1] :].reshape(3, alone, -1)
        weights = drawn[: rows.shape[1]].copy()
        weights[1 : 1 + alone] += np.tensordot(seen, inner, axes=1)
        every = np.ones(len(rows), bool)
        shares = multiplied_out(rows, weights, every) / 32
        assert np.allclose(found.distribution, 0.9 * shares + 0.1 / len(rows), atol=1e-15)
        assert found.propensity == found.distribution[policy.index(found.action)]


def test_the_same_state_has_the_same_distribution_whatever_was_asked_before():
    parts, scales = SPACES["five"]
    policy, fresh = (FactoredTS(parts=parts, scales=scales, dim=2, floor=0.05) for _ in range(2))
    rng = np.random.default_rng(0)
    for step in range(30):
        x, name = rng.normal(size=2), policy.actions[rng.integers(len(policy.actions))]
        for one in (policy, fresh):
            one.learn(x, name, 0.1 * (step % 7))
        policy.distribution(rng.normal(size=2))  # fills caches
    x = [0.2, -1.0]
    some = [json.dumps({"variant": "hybrid"})]
    for eligible in (None, some):
        one, other = (p.distribution(x, eligible=eligible) for p in (policy, fresh))
        assert (one == other).all()
