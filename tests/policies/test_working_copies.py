"""What decides says what the float64 inverses say, whichever way an arm is kept."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from steersman.points.policy_factory import load_policy
from steersman.policies import LinTS, LinUCB
from steersman.policies.arm_sums import ArmSums
from steersman.policies.inverse_cache import WorkingCopies, thin_rows
from steersman.policies.undo import withdraw

ARMS, DIM = 70, 48  # more packed numbers than are kept in float64; an arm is thin up to eight rows
NAMES = [f"a{i}" for i in range(ARMS)]


def exact(arms, x):
    """Return the variances by the sums alone: no working copy is looked at."""
    grams = arms.sums()["gram"]
    found = np.full(len(grams), x @ x / arms.prior_precision)  # of an arm that learned nothing
    for arm in np.flatnonzero(grams.any(axis=1)):
        precision = np.zeros((arms.dim, arms.dim))
        precision[arms._upper] = grams[arm] / arms.noise_var
        full = np.triu(precision) + np.triu(precision, 1).T
        full[np.diag_indices(arms.dim)] += arms.prior_precision
        found[arm] = x @ np.linalg.solve(full, x)
    return found


def off(arms, x):
    """Return the largest error of a variance, in parts of the prior's."""
    _, found = arms.means_and_variances(x)
    return np.abs(found - exact(arms, x)).max() / (x @ x / arms.prior_precision)


def unit(rng):
    x = rng.standard_normal(DIM)
    return x / np.linalg.norm(x)


class Copies(RuleBasedStateMachine):
    """Arms learn in any order, one by one and in batches, forget rows and are loaded again."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.policy = LinTS(NAMES, DIM, prior_var=2.0, noise_var=0.3)

    @rule(arm=st.integers(0, 3), count=st.integers(1, 14), weight=st.sampled_from([0.1, 1.0, 7.0]))
    def learn(self, arm, count, weight):
        for _ in range(count):
            self.policy.learn(unit(self.rng), NAMES[arm], 0.5, weight=weight)

    @rule(arm=st.integers(0, 3), count=st.integers(1, 14))
    def learn_batch(self, arm, count):
        rows = np.array([unit(self.rng) for _ in range(count)])
        self.policy.learn_batch(rows, [NAMES[arm]] * count, np.full(count, 0.5))

    @rule(arm=st.integers(0, 3))
    def learn_and_withdraw(self, arm):
        x = unit(self.rng)
        self.policy.learn(x, NAMES[arm], 0.5)
        withdraw(self.policy, x, NAMES[arm], 0.5)

    @rule()
    def load(self):
        self.policy = load_policy(self.policy.state())

    @rule(arm=st.integers(0, 3), count=st.integers(1, 14))
    def learn_after_means_alone_were_asked_for(self, arm, count):
        self.learn_batch(arm, count)
        self.policy._arms.means(unit(self.rng))
        self.learn(arm, count, 1.0)

    @rule()
    def copied(self):
        self.policy = copy.deepcopy(self.policy)

    @invariant()
    def variances_are_those_of_the_inverses_and_of_the_state_loaded_again(self):
        x, again = unit(self.rng), load_policy(self.policy.state())
        assert off(self.policy._arms, x) < 2e-6
        _, here = self.policy._arms.means_and_variances(x)
        _, there = again._arms.means_and_variances(x)
        thin = [self.policy._arms._copies.is_thin(arm) for arm in range(ARMS)]
        assert thin == [again._arms._copies.is_thin(arm) for arm in range(ARMS)]
        assert here[thin] == pytest.approx(there[thin], rel=1e-9)
        assert here == pytest.approx(there, rel=1e-5)


Copies.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestCopies = pytest.mark.slow(Copies.TestCase)


def test_an_arm_is_thin_until_it_has_seen_a_sixth_of_its_dimensions():
    policy, rng = LinUCB(NAMES, DIM), np.random.default_rng(0)
    arms = policy._arms
    for seen in range(1, 14):
        policy.learn(unit(rng), "a7", 0.5)
        policy.distribution(unit(rng))
        assert arms._copies.is_thin(7) == (seen <= DIM // 6)
        assert off(arms, unit(rng)) < 1e-6
    assert arms._copies.is_thin(8), "who learned nothing has no row"


def test_a_state_that_is_loaded_is_thin_where_it_was():
    policy, rng = LinUCB(NAMES, DIM), np.random.default_rng(0)
    for arm, seen in (("a0", 3), ("a1", 40)):
        for _ in range(seen):
            policy.learn(unit(rng), arm, 0.5)
    again = load_policy(policy.state())
    x = unit(rng)
    assert again.distribution(x) == pytest.approx(policy.distribution(x), abs=1e-6)
    assert [again._arms._copies.is_thin(arm) for arm in range(3)] == [True, False, True]


@pytest.mark.parametrize("directions", [1, 3, 6])
def test_rows_seen_again_and_again_are_put_together(directions):
    policy, rng = LinUCB(NAMES, DIM), np.random.default_rng(0)
    basis = np.array([unit(rng) for _ in range(directions)])
    other = unit(rng)
    for number in range(60):
        # What lies between the directions is no new one.
        mixed = basis[number % directions] + 0.1 * basis[-1]
        policy.learn(mixed / np.linalg.norm(mixed), "a0", 0.5, weight=0.1)
        policy.learn(other, "a1", 0.5, weight=0.1)
        for arm in (0, 1):
            assert policy._arms._copies.is_thin(arm)
            # Of six directions twelve rows would be put together, and eight are all there may be.
            rows = len(policy._arms._copies.rows_of(arm))
            assert rows < 8 or (arm, directions, rows) == (0, 6, 8)
        assert off(policy._arms, unit(rng)) < 1e-6
        assert off(policy._arms, basis[0]) < 1e-6
    again = load_policy(policy.state())
    for x in (basis[0], basis.sum(axis=0) / directions, other, unit(rng)):
        (_, here), (_, there) = (one._arms.means_and_variances(x) for one in (policy, again))
        assert here == pytest.approx(there, rel=1e-9)
    assert [len(again._arms._copies.rows_of(arm)) for arm in (0, 1)] == [directions, 1]


def test_forgetting_arms_are_thin_too():
    policy, rng = LinTS(NAMES, DIM, forget=0.9), np.random.default_rng(0)
    for _ in range(6):
        policy.learn(unit(rng), "a3", 0.5)
        assert off(policy._arms, unit(rng)) < 1e-6
    assert policy._arms._copies.is_thin(3)


def test_huge_contexts_hide_the_rank_and_the_arm_is_dense():
    policy, rng = LinUCB(NAMES, DIM), np.random.default_rng(0)
    policy.learn_batch(1e5 * np.array([unit(rng)]), ["a0"], [0.5])
    policy.distribution(unit(rng))
    assert not policy._arms._copies.is_thin(0)


def test_a_few_features_are_dense_from_the_start():
    arms = ArmSums(9000, 4, prior_precision=1.0, noise_var=1.0, forget=1.0)
    assert arms._copies.narrow
    x = np.array([1.0, -2.0, 0.5, 0.0])
    for arm in (0, 5, 8999):
        arms.add(arm, x, 0.5, 1.0)
    assert off(arms, x) < 1e-6


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_thin_rows_are_those_of_the_inverse(rank):
    rng = np.random.default_rng(rank)
    rows = rng.standard_normal((rank, DIM))
    gram = np.triu(rows.T @ rows)
    found = thin_rows(gram, 0.7, 5)
    assert found.shape == (rank, DIM)
    full = 0.7 * np.eye(DIM) + rows.T @ rows
    assert np.eye(DIM) / 0.7 - found.T @ found == pytest.approx(np.linalg.inv(full), abs=1e-9)
    if rank:
        assert thin_rows(gram, 0.7, rank - 1) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_rows_taken_away_leave_those_of_others(moves):
    """Each move replaces an arm's rows by so many new ones; the sums are those of what is there."""
    rng, kept = np.random.default_rng(0), {}
    doubling = np.where(np.equal(*np.tril_indices(20)), 1.0, 2.0)
    copies = WorkingCopies(6, 20, prior_precision=1.0, doubling=doubling, narrow=True)
    x, found = rng.standard_normal(20), np.empty(6)
    for arm, count in moves:
        kept[arm] = rng.standard_normal((count, 20)) / 20
        copies.replace(arm, kept[arm])
    copies.variances(x, found)
    nothing = np.zeros((0, 20))
    expected = [x @ x - ((kept.get(arm, nothing) @ x) ** 2).sum() for arm in range(6)]
    assert found == pytest.approx(expected, abs=1e-5)
