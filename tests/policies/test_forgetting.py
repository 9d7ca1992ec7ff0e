"""Forgetting: what is older weighs less, exactly, in any order of merging."""

import numpy as np
import pytest

from steersman.policies import LinTS, LinUCB

NAMES = ["a", "b"]


def test_each_update_decays_all_before_it():
    """L <- gL + (1 - g)L0 and h <- gh before each update, as a dense second implementation."""
    policy = LinTS(NAMES, 3, forget=0.8, noise_var=0.5)
    rng = np.random.default_rng(0)
    precision = {name: np.eye(3) for name in NAMES}
    moment = {name: np.zeros(3) for name in NAMES}
    for _ in range(50):
        x, name, reward = rng.standard_normal(3), NAMES[rng.integers(2)], float(rng.random())
        policy.learn(x, name, reward)
        for other in NAMES:
            precision[other] = 0.8 * precision[other] + 0.2 * np.eye(3)
            moment[other] = 0.8 * moment[other]
        precision[name] += np.outer(x, x) / 0.5
        moment[name] += reward * x / 0.5
    x = rng.standard_normal(3)
    means, variances = policy._arms.means_and_variances(x)
    for i, name in enumerate(NAMES):
        inverse = np.linalg.inv(precision[name])
        assert means[i] == pytest.approx(moment[name] @ inverse @ x, rel=1e-9)
        assert variances[i] == pytest.approx(x @ inverse @ x, rel=1e-9)


def test_deciding_decays_nothing():
    policy = LinUCB(NAMES, 2, forget=0.5)
    policy.learn([1.0, 0.0], "a", 1.0)
    first = policy.decide([1.0, 0.0], rng=np.random.default_rng(0))
    for _ in range(5):
        policy.decide([1.0, 0.0], rng=np.random.default_rng(0))
    again = policy.decide([1.0, 0.0], rng=np.random.default_rng(0))
    assert np.array_equal(first.scores, again.scores)


def test_a_bucket_is_a_time_whenever_its_rewards_arrive():
    """Late rewards of an old bucket weigh as if they had come in time."""
    rows = [(0, [1.0, 0.0], 1.0), (3, [0.0, 1.0], 0.5), (5, [1.0, 1.0], 0.2), (3, [0.5, 1.0], 0.9)]
    in_time, late = LinUCB(NAMES, 2, forget=0.7), LinUCB(NAMES, 2, forget=0.7)
    for bucket, x, reward in sorted(rows, key=lambda row: row[0]):
        in_time.learn(x, "a", reward, bucket=bucket)
    for bucket, x, reward in reversed(rows):
        late.learn(x, "a", reward, bucket=bucket)
    for name, array in in_time.state().items():
        if name != "meta":
            assert late.state()[name] == pytest.approx(array, rel=1e-12)


def test_a_revision_weighs_as_its_update_does():
    revised, right = LinUCB(NAMES, 2, forget=0.7), LinUCB(NAMES, 2, forget=0.7)
    for policy, reward in ((revised, 0.0), (right, 1.0)):
        policy.learn([1.0, 2.0], "a", reward, bucket=1)
        policy.learn([1.0, 0.0], "a", 0.3, bucket=4)
    revised.revise([1.0, 2.0], "a", 1.0, bucket=1)
    assert revised.state()["moment"] == pytest.approx(right.state()["moment"], rel=1e-12)


def test_a_policy_that_forgets_follows_a_change():
    steady, forgetful = LinUCB(NAMES, 1), LinUCB(NAMES, 1, forget=0.9)
    for policy in (steady, forgetful):
        for reward_a in (1.0, 0.0):
            for _ in range(150):
                policy.learn([1.0], "a", reward_a)
                policy.learn([1.0], "b", 0.4)
    rng = np.random.default_rng(0)
    assert forgetful.decide([1.0], rng=rng).action == "b"
    assert steady.decide([1.0], rng=rng).action == "a"


def test_batches_of_different_buckets_merge_in_any_order():
    rng = np.random.default_rng(2)
    workers = []
    for start in (0, 10, 20):
        worker = LinTS(NAMES, 2, forget=0.95)
        worker.learn_batch(
            rng.standard_normal((8, 2)),
            [NAMES[i] for i in rng.integers(2, size=8)],
            rng.random(8),
            buckets=np.arange(start, start + 8),
        )
        workers.append(worker.delta())
    orders = ([0, 1, 2], [2, 0, 1], [1, 2, 0])
    states = []
    for order in orders:
        policy = LinTS(NAMES, 2, forget=0.95)
        for i in order:
            policy.merge([workers[i]])
        states.append(policy.state())
    for state in states[1:]:
        assert state["gram"] == pytest.approx(states[0]["gram"], rel=1e-12)
        assert state["moment"] == pytest.approx(states[0]["moment"], rel=1e-12)
