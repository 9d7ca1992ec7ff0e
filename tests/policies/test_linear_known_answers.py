"""Linear policies against a second implementation: dense matrices, numpy's own inverse."""

from fractions import Fraction

import numpy as np
import pytest

from steersman.policies import BoundedLinUCB, EpsilonGreedy, JointSquareCB, KernelUCB, LinTS, LinUCB

NAMES = ["a", "b", "c"]


def dense(rows, prior_precision, noise_var, dim):
    """Return (precision, mean) of one arm from rows of (x, reward, weight)."""
    precision = prior_precision * np.eye(dim)
    moment = np.zeros(dim)
    for x, reward, weight in rows:
        precision += weight * np.outer(x, x) / noise_var
        moment += weight * reward * x / noise_var
    return precision, np.linalg.solve(precision, moment)


def taught(policy, dim, n, seed=0):
    rng = np.random.default_rng(seed)
    log = {name: [] for name in policy.actions}
    for _ in range(n):
        x = rng.standard_normal(dim)
        name = policy.actions[rng.integers(len(policy.actions))]
        reward, weight = float(rng.normal()), float(rng.integers(1, 4))
        policy.learn(x, name, reward, weight=weight)
        log[name].append((x, reward, weight))
    return log, rng


@pytest.mark.parametrize("n", [0, 5, 400, 2000])
def test_lin_ucb_scores_are_mean_plus_width(n):
    policy = LinUCB(NAMES, 6, alpha=0.7, ridge=2.0)
    log, rng = taught(policy, 6, n)
    x = rng.standard_normal(6)
    for name, score in zip(NAMES, policy.decide(x, rng=rng).scores, strict=True):
        precision, theta = dense(log[name], 2.0, 1.0, 6)
        expected = theta @ x + 0.7 * np.sqrt(x @ np.linalg.inv(precision) @ x)
        assert score == pytest.approx(expected, rel=1e-9)


def test_lin_ts_state_is_the_posterior_of_the_facts():
    policy = LinTS(NAMES, 4, prior_var=0.5, noise_var=0.2)
    log, rng = taught(policy, 4, 300)
    x = rng.standard_normal(4)
    means, sds = [], []
    for name in NAMES:
        precision, theta = dense(log[name], 2.0, 0.2, 4)
        means.append(theta @ x)
        sds.append(np.sqrt(x @ np.linalg.inv(precision) @ x))
    draws = rng.normal(means, sds, size=(400_000, 3)).argmax(axis=1)
    frequencies = np.bincount(draws, minlength=3) / len(draws)
    assert policy.distribution(x) == pytest.approx(frequencies, abs=0.004)


def test_bounded_prefers_the_mean_among_bounds_at_the_ceiling():
    policy = BoundedLinUCB(["often", "never", "new"], 1)
    for _ in range(3):
        policy.learn([1.0], "often", 0.9)
    for _ in range(200):
        policy.learn([1.0], "never", 0.0)
    assert policy.decide([1.0], rng=np.random.default_rng(0)).action == "often"
    assert LinUCB(["often", "new"], 1, alpha=2.0).distribution([1.0]).tolist() == [0.5, 0.5]


def test_epsilon_greedy_is_ridge_regression_with_its_epsilon():
    policy = EpsilonGreedy(NAMES, 5, epsilon=0.3, decay=0.99, min_epsilon=0.05)
    log, rng = taught(policy, 5, 60)
    x = rng.standard_normal(5)
    scores = [dense(log[name], 1.0, 1.0, 5)[1] @ x for name in NAMES]
    epsilon = 0.3 * 0.99**60
    expected = np.full(3, epsilon / 3)
    expected[int(np.argmax(scores))] += 1.0 - epsilon
    assert policy.distribution(x) == pytest.approx(expected, rel=1e-9)
    for _ in range(400):
        policy.learn(x, "a", 0.0)
    assert policy.current_epsilon == 0.05


def test_squarecb_is_its_closed_form():
    policy = JointSquareCB((), 3, gamma=10.0, ridge=0.5, floor=0.2)
    rng = np.random.default_rng(4)
    rows, rewards = rng.standard_normal((50, 3)), rng.random(50)
    policy.learn_batch(rows, ["x"] * 50, rewards)
    candidates = rng.standard_normal((4, 3))
    theta = np.linalg.solve(rows.T @ rows + 0.5 * np.eye(3), rows.T @ rewards)
    scores = candidates @ theta
    p = 1.0 / (4 + 10.0 * (scores.max() - scores))
    p[scores.argmax()] = 0.0
    p[scores.argmax()] = 1.0 - p.sum()
    names = ["p", "q", "r", "s"]
    got = policy.distribution(None, eligible=names, features=candidates)
    assert got == pytest.approx(0.8 * p + 0.05, rel=1e-9)
    by_name = dict(zip(names, candidates, strict=True))
    swapped = policy.distribution(None, eligible=names[::-1], features=by_name)
    assert swapped == pytest.approx(got[::-1], rel=1e-12)


@pytest.mark.slow
def test_random_features_approximate_the_gaussian_kernel():
    policy = KernelUCB(NAMES, 3, random_features=4096, lengthscale=0.8)
    x, y = np.array([0.2, -0.1, 0.4]), np.array([-0.3, 0.2, 0.1])
    lifted = policy._vector(x) @ policy._vector(y)
    gaussian = np.exp(-np.sum((x - y) ** 2) / (2 * 0.8**2))
    assert lifted - x @ y == pytest.approx(gaussian, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LinUCB, LinTS])
def test_float32_working_copies_decide_as_float64_does(kind, monkeypatch):
    names = [f"a{i}" for i in range(60)]
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((900, 64)) / 8.0
    chosen = [names[i] for i in rng.integers(60, size=900)]
    rewards = rng.random(900)
    narrow = kind(names, 64)
    monkeypatch.setattr("steersman.policies.arm_sums._CACHED", 10**12)
    wide = kind(names, 64)
    assert narrow._arms._copies.narrow
    assert not wide._arms._copies.narrow
    for policy in (narrow, wide):
        policy.learn_batch(rows, chosen, rewards)
        for x in rows[:200]:
            policy.learn(x, "a7", 0.4)
    contexts = rng.standard_normal((300, 64)) / 8.0
    for x in contexts:
        assert narrow.distribution(x) == pytest.approx(wide.distribution(x), abs=2e-6)


@pytest.mark.parametrize("visits", [30.0, 1e3, 1e4, 1e6])
def test_float32_working_copies_agree_where_an_arm_is_well_known(visits, monkeypatch):
    """In one direction seen again and again, float32 would cancel to noise."""
    names = [f"a{i}" for i in range(40)]
    rng = np.random.default_rng(0)
    often = rng.standard_normal(64)
    often /= np.linalg.norm(often)
    narrow = LinTS(names, 64, noise_var=0.05)
    monkeypatch.setattr("steersman.policies.arm_sums._CACHED", 10**12)
    wide = LinTS(names, 64, noise_var=0.05)
    assert narrow._arms._copies.narrow
    for policy in (narrow, wide):
        for i, name in enumerate(names):
            policy.learn(often, name, 0.5 + 1e-4 * (i % 3), weight=visits * (1 + i % 2))
    for x in (often, often + 1e-3 * rng.standard_normal(64), rng.standard_normal(64) / 8.0):
        _, expected = wide._arms.means_and_variances(x)
        _, found = narrow._arms.means_and_variances(x)
        assert found == pytest.approx(expected, rel=2e-3)
        assert narrow.distribution(x) == pytest.approx(wide.distribution(x), abs=1e-3)


def exactly(rows, prior_precision, noise_var, context):
    """Return mean and variance of one arm at a context, in rational numbers."""
    dim = len(context)
    precision = [[Fraction(prior_precision) * (i == j) for j in range(dim)] for i in range(dim)]
    moment = [Fraction(0)] * dim
    for x, reward, weight in rows:
        row, scale = [Fraction(float(v)) for v in x], Fraction(weight) / Fraction(noise_var)
        for i in range(dim):
            moment[i] += scale * Fraction(reward) * row[i]
            for j in range(dim):
                precision[i][j] += scale * row[i] * row[j]
    at = [Fraction(float(v)) for v in context]
    both = [[*line, m, v] for line, m, v in zip(precision, moment, at, strict=True)]
    for i in range(dim):
        both[i] = [v / both[i][i] for v in both[i]]
        for j in set(range(dim)) - {i}:
            both[j] = [v - both[j][i] * w for v, w in zip(both[j], both[i], strict=True)]
    solved = [(line[-2], line[-1]) for line in both]
    return tuple(
        float(sum(x * pair[k] for x, pair in zip(at, solved, strict=True))) for k in (0, 1)
    )


@pytest.mark.parametrize(
    ("norm", "noise_var", "prior_var", "jitter", "weight"),
    [
        (9.9e5, 1e-4, 1.0, 1e-3, 1.0),
        (1e5, 1e-4, 1.0, 1e-3, 1.0),
        (1e4, 1e-4, 1.0, 1e-5, 1.0),
        (2.0, 1e-9, 1e3, 1e-3, 1.0),
        (2.0, 1e-6, 1e6, 1e-5, 1.0),
        (2.0, 1e-2, 1.0, 1e-3, 1e9),
    ],
)
def test_huge_contexts_decide_live_as_loaded(norm, noise_var, prior_var, jitter, weight):
    """An inverse that is updated cancels where rows are far above the prior; sums do not."""
    rng = np.random.default_rng(0)
    policy = LinTS(["a", "b"], 4, noise_var=noise_var, prior_var=prior_var)
    base = rng.standard_normal((3, 4))
    base *= norm / np.linalg.norm(base, axis=1)[:, None]
    rows = {"a": [], "b": []}
    for _ in range(200):
        x = base[rng.integers(3)] + norm * jitter * rng.standard_normal(4)
        x *= min(1.0, norm / np.linalg.norm(x))
        name = "ab"[rng.integers(2)]
        reward = float(rng.random() < (0.8 if name == "a" else 0.3))
        policy.learn(x, name, reward, weight=weight)
        rows[name].append((x, reward, weight))
    loaded = LinTS.from_state(policy.state())
    live = policy._arms.means_and_variances(base[0])
    assert np.array_equal(live, loaded._arms.means_and_variances(base[0]))
    for place, name in enumerate("ab"):
        mean, variance = exactly(rows[name], 1.0 / prior_var, noise_var, base[0])
        assert live[0][place] == pytest.approx(mean, rel=1e-4)
        assert live[1][place] == pytest.approx(variance, rel=1e-2)


def test_ordinary_contexts_are_learned_without_a_factorisation(monkeypatch):
    policy = LinTS(["a"], 4)
    policy.learn(np.ones(4), "a", 1.0)
    monkeypatch.setattr(policy._arms, "_refresh", None)
    rng = np.random.default_rng(0)
    for _ in range(200):
        policy.learn(rng.standard_normal(4) * 100.0, "a", 1.0)
        policy.distribution(np.ones(4))
