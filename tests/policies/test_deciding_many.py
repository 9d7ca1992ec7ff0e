"""Many decisions at once are those made one after the other, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.policies import BetaThompson, BoundedLinUCB, EpsilonGreedy, KernelUCB, LinTS, LinUCB
from steersman.policies.linear import decide_alike


def taught(policy, dim, *, updates, seed):
    rng = np.random.default_rng(seed)
    for n in range(updates):
        x = rng.normal(size=dim) * rng.choice([1e-3, 1.0, 3.0])
        policy.learn(x, policy.actions[n % len(policy.actions)], float(rng.random()))
    return policy


def same(one, other):
    assert (one.action, one.propensity, one.u) == (other.action, other.propensity, other.u)
    for name in ("distribution", "scores", "eligible"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
        assert getattr(one, name).dtype == getattr(other, name).dtype


@pytest.mark.parametrize("dim", [1, 8, 64])
@pytest.mark.parametrize("count", [1, 3, 4, 25])
@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("make", [LinUCB, BoundedLinUCB, LinTS])
def test_many_are_those_made_one_by_one(make, dim, count, floor):
    policy = make([f"a{i}" for i in range(count)], dim, floor=floor)
    rng = np.random.default_rng(dim)
    for updates in (0, 7, 300):
        taught(policy, dim, updates=updates, seed=updates)
        contexts = rng.normal(size=(40, dim)) * rng.choice([1e-6, 0.1, 1.0, 50.0], size=(40, 1))
        contexts[3] = 0.0
        contexts[5] = contexts[6]
        one = np.random.default_rng(1)
        expected = [policy.decide(x, rng=one) for x in contexts]
        after = one.random()
        for given in (list(contexts), contexts):
            many = np.random.default_rng(1)
            for choice, wanted in zip(policy.decide_many(given, rng=many), expected, strict=True):
                same(choice, wanted)
            assert many.random() == after


@pytest.mark.parametrize(("dim", "count"), [(8, 3), (64, 40)])
@pytest.mark.parametrize("make", [LinUCB, BoundedLinUCB, KernelUCB, LinTS])
def test_policies_that_are_alike_decide_as_each_alone(make, dim, count):
    actions = [f"a{i}" for i in range(count)]
    sizes = (3, 1, 2)
    policies = [taught(make(actions, dim, floor=0.1), dim, updates=9, seed=n) for n in sizes]
    assert len({policy.likeness for policy in policies}) == 1
    assert make(actions, dim).likeness != policies[0].likeness or make is LinTS
    parts = [
        (policy, np.random.default_rng(n).normal(size=(n, dim)))
        for policy, n in zip(policies, sizes, strict=True)
    ]
    one, many = np.random.default_rng(1), np.random.default_rng(1)
    expected = [policy.decide(x, rng=one) for policy, rows in parts for x in rows]
    for choice, wanted in zip(decide_alike(parts, rng=many), expected, strict=True):
        same(choice, wanted)
    assert many.random() == one.random()


def test_many_arms_and_float32_copies():
    policy = taught(LinUCB([f"a{i}" for i in range(50)], 256), 256, updates=200, seed=3)
    contexts = list(np.random.default_rng(0).normal(size=(30, 256)))
    expected = [policy.decide(x, rng=np.random.default_rng(n)) for n, x in enumerate(contexts)]
    for n in range(0, 30, 2):
        found = policy.decide_many(contexts[n : n + 2], rng=np.random.default_rng(n))
        same(found[0], expected[n])


def test_new_actions_keep_their_share():
    policy = taught(LinUCB(["a", "b"], 4, floor=0.02), 4, updates=50, seed=0)
    policy.add_action("new", explore=5, share=0.2)
    contexts = list(np.random.default_rng(0).normal(size=(20, 4)))
    one, many = np.random.default_rng(2), np.random.default_rng(2)
    for choice, x in zip(policy.decide_many(contexts, rng=many), contexts, strict=True):
        same(choice, policy.decide(x, rng=one))
        assert choice.distribution[2] >= 0.2 * 0.98


def test_policies_that_score_one_by_one():
    contexts = np.random.default_rng(0).normal(size=(9, 3))
    for policy in (EpsilonGreedy(["a", "b"], 3), KernelUCB(["a", "b"], 3)):
        one, many = np.random.default_rng(2), np.random.default_rng(2)
        for choice, x in zip(policy.decide_many(contexts, rng=many), contexts, strict=True):
            same(choice, policy.decide(x, rng=one))
    beta = BetaThompson(["a", "b"])
    assert len(beta.decide_many(["k", "l"], rng=np.random.default_rng(0))) == 2


def test_a_malformed_context_is_refused():
    policy = LinUCB(["a", "b"], 3)
    rng = np.random.default_rng(0)
    for count in (1, 5):
        with pytest.raises(InputError):
            policy.decide_many([np.ones(3)] * count + [np.ones(2)], rng=rng)
    assert policy.decide_many([], rng=rng) == []


@pytest.mark.parametrize(
    "wrong", [np.ones((2, 2)), np.ones(3), np.full((2, 3), np.nan), np.full((2, 3), 1e9)]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_malformed_context_of_one_of_many_policies_is_refused(wrong, place):
    parts = [(LinUCB(["a", "b"], 3), np.ones((2, 3))) for _ in range(3)]
    parts[place] = parts[place][0], wrong
    with pytest.raises(InputError, match=r"shape|finite|too large"):
        decide_alike(parts, rng=np.random.default_rng(0))
