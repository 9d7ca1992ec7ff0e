"""The largest eigenvalue of packed sums: what numpy finds, for every policy that is shipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.points.algorithms import BUILT_IN
from steersman.points.scale_guard import largest_eigenvalue, power_iteration, spectrum
from steersman.policies import (
    BetaThompson,
    BoundedLinUCB,
    EpsilonGreedy,
    FactoredTS,
    Fixed,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
    Rules,
    SequenceLinear,
    SequenceTrees,
)

NAMES = ["a", "b", "c"]
LINEAR = {
    "lin_ucb": lambda: LinUCB(NAMES, dim=4),
    "bounded_lin_ucb": lambda: BoundedLinUCB(NAMES, dim=4),
    "kernel_ucb": lambda: KernelUCB(NAMES, dim=4, random_features=5),
    "lin_ts": lambda: LinTS(NAMES, dim=4),
    "epsilon_greedy": lambda: EpsilonGreedy(NAMES, dim=4),
    "joint_squarecb": lambda: JointSquareCB((), dim=4),
    "joint_lin_ts": lambda: JointLinTS(NAMES, dim=4),
}
BY_PARTS = {"factored_ts": lambda: FactoredTS(parts={"on": [False, True]})}  # its own features
OF_SELECTIONS = {"sequence_linear": lambda: SequenceLinear(features=["score"], max_steps=1)}
LEARNS_NOTHING = {"fixed", "rules", "sequence_trees"}
NOT_LINEAR = {
    "beta_thompson": lambda: BetaThompson(NAMES),
    "fixed": lambda: Fixed(NAMES, "a"),
    "rules": lambda: Rules(NAMES, [("True", "a")]),
    "sequence_trees": lambda: SequenceTrees(features=["score"], max_steps=1),
}


def _packed(matrix):
    return np.concatenate([matrix[: column + 1, column] for column in range(len(matrix))])


def test_every_shipped_policy_is_covered_here():
    assert {*LINEAR, *BY_PARTS, *OF_SELECTIONS, *NOT_LINEAR} == set(BUILT_IN)


@pytest.mark.parametrize("name", LINEAR)
def test_it_is_the_largest_eigenvalue_of_the_second_moment_of_the_features(name):
    rng = np.random.default_rng(0)
    policy, rows = LINEAR[name](), rng.normal(size=(60, 4)) + 1.0
    policy.learn_batch(rows, [NAMES[i % 3] for i in range(60)], rng.random(60))
    features = policy._lifted(rows) if name == "kernel_ucb" else rows
    expected = np.linalg.eigvalsh(features.T @ features / 60)[-1]
    assert largest_eigenvalue(policy.state()) == pytest.approx(expected, rel=1e-9)


def test_of_mixed_actions_it_is_that_of_their_parts():
    policy = BY_PARTS["factored_ts"]()
    policy.learn_batch([None] * 4, list(policy.actions) * 2, [1.0] * 4)
    assert largest_eigenvalue(policy.state()) == pytest.approx(0.25)  # of diag(.25, .01)


def test_of_selections_it_is_that_of_the_sums_over_their_steps():
    policy = OF_SELECTIONS["sequence_linear"]()
    rows = np.random.default_rng(0).normal(size=(60, 10)) + 1.0
    policy.learn_batch(rows, ["any"] * 60, [0.5] * 60)
    expected = np.linalg.eigvalsh(rows.T @ rows / 60)[-1]
    assert largest_eigenvalue(policy.state()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", LINEAR)
def test_weights_and_forgetting_leave_it_a_mean(name):
    policy = LINEAR[name]()
    for weight in (0.1, 1.0, 5.0):
        policy.learn([0.0, 2.0, 0.0, 0.0], "a", 1.0, weight=weight)
    if name != "kernel_ucb":
        assert largest_eigenvalue(policy.state()) == pytest.approx(4.0)
    forgetting = LinUCB(NAMES, dim=4, forget=0.5)
    for bucket in range(20):
        forgetting.learn([0.0, 2.0, 0.0, 0.0], NAMES[bucket % 3], 1.0, bucket=bucket)
    assert largest_eigenvalue(forgetting.state()) == pytest.approx(4.0)


def test_a_policy_without_contexts_has_one():
    policy = EpsilonGreedy(NAMES)
    policy.learn_batch([None] * 7, ["a"] * 7, [1.0] * 7)
    assert largest_eigenvalue(policy.state()) == pytest.approx(1.0)


def test_counts_per_key_are_a_diagonal_matrix():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 5, 100)
    policy = BetaThompson(NAMES)
    policy.learn_batch(
        [f"key {key}" for key in keys], [NAMES[i % 3] for i in range(100)], rng.random(100)
    )
    one_hot = np.eye(5)[keys]
    expected = np.linalg.eigvalsh(one_hot.T @ one_hot / 100)[-1]
    assert largest_eigenvalue(policy.state()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [*LINEAR, *NOT_LINEAR])
def test_where_there_is_none_it_says_why(name):
    found = spectrum({**LINEAR, **NOT_LINEAR}[name]().state())
    assert found.value is None
    assert ("no feature matrix" if name in LEARNS_NOTHING else "no rewards learned") in (
        found.unmeasured
    )


@given(
    dim=st.integers(1, 24),
    rank=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-200, 1e-6, 1.0, 1e12, 1e200]),
)
def test_it_agrees_with_numpy(dim, rank, seed, scale):
    rows = np.random.default_rng(seed).normal(size=(rank, dim))
    matrix = rows.T @ rows * scale
    expected = np.linalg.eigvalsh(matrix)[-1]
    # Where two eigenvalues nearly agree, 500 steps end between them.
    assert power_iteration(_packed(matrix), dim) == pytest.approx(expected, rel=1e-3)


def test_large_matrices_agree_closely():
    rows = np.random.default_rng(0).normal(size=(3000, 256))
    rows[:, 0] += 1.0
    matrix = rows.T @ rows / 3000
    expected = np.linalg.eigvalsh(matrix)[-1]
    assert power_iteration(_packed(matrix), 256) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_matrices_without_a_gap_or_without_anything(dim):
    assert power_iteration(_packed(np.eye(dim)), dim) == pytest.approx(1.0, rel=1e-12)
    assert power_iteration(_packed(np.zeros((dim, dim))), dim) == 0.0
    with pytest.raises(InputError, match="does not match a packed triangle"):
        power_iteration(np.zeros(dim * (dim + 1) // 2 + 1), dim)
