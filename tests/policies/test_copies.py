"""Copies made by Python's own means decide alike and share nothing."""

import copy

import numpy as np
import pytest

from steersman.policies import EpsilonGreedy, JointLinTS, KernelUCB, LinTS, LinUCB

MANY = [f"action {i}" for i in range(64)]


@pytest.mark.parametrize(
    "policy",
    [
        LinUCB(["a", "b"], 3),
        LinUCB(MANY, 64),  # large enough for a working copy in float32
        LinTS(["a", "b"], 3, forget=0.9),
        KernelUCB(["a", "b"], 3, random_features=5),
        EpsilonGreedy(["a", "b"], 3),
        JointLinTS(["a", "b"], 3),
    ],
    ids=lambda policy: f"{policy.algorithm} of {len(policy.actions)}",
)
def test_a_deep_copy_decides_alike_and_learns_alone(policy):
    x = np.random.default_rng(0).normal(size=getattr(policy, "context_dim", policy.dim))
    features = np.tile(x, (2, 1)) if policy.algorithm.startswith("joint") else None
    name = policy.actions[0]
    policy.learn(x, name, 1.0)
    twin = copy.deepcopy(policy)
    before = policy.distribution(x, features=features)
    assert np.array_equal(twin.distribution(x, features=features), before)
    for _ in range(5):
        twin.learn(x, name, -5.0)
    assert (twin.updates, policy.updates) == (6, 1)
    assert np.array_equal(policy.distribution(x, features=features), before)
