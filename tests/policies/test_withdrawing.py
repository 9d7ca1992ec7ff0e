"""An update taken back, and states that go on with the same bits after being stored."""

import numpy as np
import pytest

from steersman.errors import ActionError, InputError
from steersman.points.policy_factory import load_policy
from steersman.policies import (
    BetaThompson,
    EpsilonGreedy,
    Fixed,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
)
from steersman.policies.undo import withdraw

NAMES = ["a", "b", "c"]
POLICIES = {
    "lin_ucb": lambda: LinUCB(NAMES, 4),
    "lin_ucb_forgets": lambda: LinUCB(NAMES, 4, forget=0.9),
    "lin_ts": lambda: LinTS(NAMES, 4, forget=0.7),
    "kernel_ucb": lambda: KernelUCB(NAMES, 4, random_features=8, forget=0.9),
    "epsilon_greedy": lambda: EpsilonGreedy(NAMES, 4, decay=0.9),
    "plain_epsilon": lambda: EpsilonGreedy(NAMES),
    "squarecb": lambda: JointSquareCB(NAMES, 4, forget=0.9),
    "joint_ts": lambda: JointLinTS((), 4),
    "beta": lambda: BetaThompson(NAMES),
    "fixed": lambda: Fixed(NAMES, "b"),
}


def updates(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n):
        x = str(rng.integers(3)) if kind == "beta" else rng.standard_normal(4)
        keywords = {"weight": float(rng.choice([0.5, 1.0])), "bucket": i // 7}
        yield (x, str(rng.choice(NAMES)), float(rng.random())), keywords


@pytest.mark.parametrize("kind", POLICIES)
def test_what_is_taken_back_was_never_learned(kind):
    policy, without = POLICIES[kind](), POLICIES[kind]()
    rows = list(updates(kind, 30))
    for place, (row, keywords) in enumerate(rows):
        policy.learn(*row, **keywords)
        if place != 5:
            without.learn(*row, **keywords)
    row, keywords = rows[5]
    withdraw(policy, *row, **keywords)
    state, expected = policy.state(), without.state()
    assert policy.updates == without.updates
    for name in set(state) - {"meta"}:
        assert np.allclose(state[name], expected[name], rtol=0, atol=1e-12), name


@pytest.mark.parametrize("kind", POLICIES)
def test_a_stored_state_goes_on_with_the_same_bits(kind):
    live = POLICIES[kind]()
    stored = load_policy(live.state())
    for place, (row, keywords) in enumerate(updates(kind, 60)):
        live.learn(*row, **keywords)
        stored.learn(*row, **keywords)
        if place % 11 == 3:
            withdraw(live, *row, **keywords)
            withdraw(stored, *row, **keywords)
        if place % 5 == 0:
            stored = load_policy(stored.state())
    state, expected = stored.state(), live.state()
    assert {name: array.tobytes() for name, array in state.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_refusals_change_nothing():
    policy = LinUCB(NAMES, 2, forget=0.9)
    policy.learn([1.0, 0.0], "a", 1.0, bucket=3)
    before = policy.state()
    with pytest.raises(InputError, match="bucket"):
        withdraw(policy, [1.0, 0.0], "a", 1.0)
    with pytest.raises(ActionError):
        withdraw(policy, [1.0, 0.0], "z", 1.0, bucket=3)
    with pytest.raises(InputError, match="cannot withdraw more than"):
        withdraw(BetaThompson(NAMES), "k", "a", 1.0)
    after = policy.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kind", sorted(set(POLICIES) - {"fixed"}))
def test_what_was_never_learned_is_not_taken_back(kind):
    policy = POLICIES[kind]()
    x = "k" if kind == "beta" else [1.0, 0.0, 0.0, 0.0]
    for taught in (0, 3):
        for _ in range(taught):
            policy.learn(x, "a", 1.0, bucket=2)
        before = {name: array.tobytes() for name, array in policy.state().items()}
        with pytest.raises(InputError, match="cannot withdraw more than"):
            withdraw(policy, x, "a", 1.0, weight=taught + 1.0, bucket=2)
        assert {name: array.tobytes() for name, array in policy.state().items()} == before


@pytest.mark.parametrize("forget", [1.0, 0.9])
def test_another_context_than_was_learned_is_not_taken_back(forget):
    policy = LinUCB(NAMES, 2, forget=forget)
    for bucket in range(1000):
        policy.learn([1.0, 0.0], "a", 1.0, bucket=bucket)
    with pytest.raises(InputError, match="cannot withdraw more than"):
        withdraw(policy, [0.0, 1.0], "a", 1.0, bucket=999)
    withdraw(policy, [1.0, 0.0], "a", 1.0, bucket=999)


@pytest.mark.parametrize("kind", sorted(set(POLICIES) - {"beta", "fixed"}))
@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e5])
def test_all_that_was_learned_is_taken_back_in_any_order(kind, norm):
    """However it was aged, late, weighted, stored or revised: rounding refuses nothing."""
    rng = np.random.default_rng(4)
    policy, rows = POLICIES[kind](), []
    for place in range(200):
        x = rng.standard_normal(4) * norm
        action, weight = str(rng.choice(NAMES)), float(10.0 ** rng.integers(-2, 3))
        bucket = max(0, place // 5 - int(rng.integers(4)))
        policy.learn(x, action, 0.5, weight=weight, bucket=bucket)
        policy.revise(x, action, 0.25, weight=weight, bucket=bucket)
        rows.append(((x, action, 0.75), {"weight": weight, "bucket": bucket}))
    for place, chosen in enumerate(rng.permutation(len(rows))):
        row, keywords = rows[chosen]
        withdraw(policy, *row, **keywords)
        if place % 50 == 0:
            policy = load_policy(policy.state())
    assert policy.updates == 0
    assert policy.state()["count"] == pytest.approx(0.0, abs=1e-6)


def test_what_a_far_larger_row_left_behind_refuses_nothing():
    policy = LinUCB(NAMES, 2)
    for x in ([9e5, 1.0], [1.0, 3.0], [0.5, 0.5]):
        policy.learn(x, "a", 1.0)
    for x in ([9e5, 1.0], [1.0, 3.0], [0.5, 0.5]):
        withdraw(policy, x, "a", 1.0)
    assert policy.updates == 0


def test_a_row_without_weight_is_taken_back_after_all_others():
    """Rounding leaves -1e-17 of what they taught, which is less than nothing."""
    for seed in range(100):
        first, second = np.random.default_rng(seed).normal(size=(2, 2))
        policy = LinUCB(NAMES, 2)
        rows = [(first, "a", 1.0, 0.3), (second, "a", 1.0, 0.7), (first, "a", 0.0, 0.0)]
        for *row, weight in rows:
            policy.learn(*row, weight=weight)
        for *row, weight in rows:
            withdraw(policy, *row, weight=weight)
        assert policy.updates == 0


@pytest.mark.parametrize("change", [-0.3000000005, 0.7000000005])
def test_what_a_revision_takes_back_beyond_rounding_leaves_no_negative_count(change):
    policy = BetaThompson(NAMES)
    policy.learn("k", "a", 0.3, weight=1e4)
    policy.revise("k", "a", change, weight=1e4)
    assert load_policy(policy.state()).posterior("k", "a") == policy.posterior("k", "a")
    assert min(policy.posterior("k", "a")) == 1.0
