"""Forgetting: what is older weighs less, exactly, in any order of merging."""

import json

import numpy as np
import pytest

from steersman.errors import InputError, MergeError, StateError
from steersman.points.policy_factory import load_policy, warm_start
from steersman.policies import LinTS, LinUCB
from steersman.policies.undo import withdraw

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


def test_a_revision_of_an_action_that_learned_nothing_here_decays_too():
    """A worker corrects what another learned; merged, they are one process."""
    base = LinTS(NAMES, 1, forget=0.5).state()
    first, second, one = (load_policy(base) for _ in range(3))
    for policy in (first, one):
        policy.learn([1.0], "a", 0.0, bucket=3)
    for policy in (second, one):
        policy.learn([1.0], "b", 1.0, bucket=3)
        policy.revise([1.0], "a", 1.0, bucket=3)
        policy.learn([1.0], "b", 1.0, bucket=9)
    merged = load_policy(base)
    merged.merge([first.delta(), second.delta()])
    assert merged.state()["moment"] == pytest.approx(one.state()["moment"], rel=1e-12)


def test_a_state_with_a_revision_alone_goes_on_as_the_policy_does():
    policy = LinTS(NAMES, 1, forget=0.5)
    policy.learn([1.0], "b", 1.0, bucket=3)
    policy.revise([1.0], "a", 1.0, bucket=3)
    loaded = load_policy(policy.state())
    for one in (policy, loaded):
        one.learn([1.0], "b", 1.0, bucket=5)
        assert one.state()["moment"].tolist() == [[0.25], [1.25]]
    assert policy.distribution([1.0]).tolist() == loaded.distribution([1.0]).tolist()


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


def clock(policy):
    return json.loads(policy.state()["meta"].tobytes())["clock"]


def test_a_warm_start_is_of_one_time_and_later_buckets_are_refused():
    """Else 500 rows, a tick each, would make all buckets that follow look ages old."""
    policy = LinUCB(NAMES, 2, forget=0.9)
    warm_start(policy, np.ones((500, 2)), ["a"] * 500, [1.0] * 500, trust=1.0)
    assert policy.state()["count"].tolist() == [500.0, 0.0]
    before = {name: array.tobytes() for name, array in policy.state().items()}
    for one in (policy, load_policy(policy.state())):
        refusal = pytest.raises(
            InputError, match=r"has a time bucket, but earlier updates had none"
        )
        with refusal:
            one.learn([1.0, 1.0], "b", 1.0, bucket=0)
        with refusal:
            one.learn_batch([[1.0, 1.0]], ["b"], [1.0], buckets=[20_000])
        with refusal:
            warm_start(one, [[1.0, 1.0]], ["b"], [1.0], buckets=[20_000])
        assert {name: array.tobytes() for name, array in one.state().items()} == before
    policy.learn([1.0, 1.0], "b", 1.0)
    assert policy.state()["count"] == pytest.approx([450.0, 1.0])


def test_a_warm_start_with_buckets_goes_on_with_buckets():
    policy, day = LinUCB(NAMES, 2, forget=0.9), 20_000
    warm_start(policy, np.ones((500, 2)), ["a"] * 500, [1.0] * 500, trust=1.0, buckets=[day] * 500)
    for later in range(100):
        policy.learn([1.0, 1.0], "b", 1.0, bucket=day + later)
    assert clock(policy) == day + 99
    assert policy.state()["count"] == pytest.approx([500 * 0.9**99, 10 * (1 - 0.9**100)])
    assert load_policy(policy.state()).delta()["count"].tolist() == [0.0, 0.0]


def test_deltas_since_a_warm_start_merge_in_any_order():
    base = LinTS(NAMES, 2, forget=0.9)
    warm_start(base, np.ones((50, 2)), ["a"] * 50, [1.0] * 50, buckets=[10] * 50)
    alone, deltas = load_policy(base.state()), []
    for day in (12, 15):
        worker = load_policy(base.state())
        for policy in (worker, alone):
            policy.learn([1.0, 0.5], "b", 0.5, bucket=day)
        deltas.append(worker.delta())
    for order in (deltas, deltas[::-1]):
        merged = load_policy(base.state())
        for delta in order:
            merged.merge([delta])
        for name in ("gram", "moment", "count"):
            assert merged.state()[name] == pytest.approx(alone.state()[name], rel=1e-12)


def test_buckets_do_not_come_to_an_end():
    policy = LinUCB(NAMES, 2, forget=0.9)
    policy.learn([1.0, 1.0], "a", 1.0, bucket=3)
    before = {name: array.tobytes() for name, array in policy.state().items()}
    for refused in (
        lambda: policy.learn([1.0, 1.0], "b", 1.0),
        lambda: policy.learn_batch([[1.0, 1.0]], ["b"], [1.0]),
        lambda: warm_start(policy, [[1.0, 1.0]], ["b"], [1.0]),
    ):
        with pytest.raises(InputError, match="no time bucket, but earlier updates had one"):
            refused()
    assert {name: array.tobytes() for name, array in policy.state().items()} == before
    other = LinUCB(NAMES, 2, forget=0.9)
    warm_start(other, [[1.0, 1.0]], ["b"], [1.0])
    with pytest.raises(MergeError, match="with time buckets, the other without"):
        policy.merge([other.delta()])
    assert {name: array.tobytes() for name, array in policy.state().items()} == before


def test_an_older_state_goes_on_either_way():
    """One that does not say whether it learned with buckets."""
    for more in ({}, {"bucket": 5}):
        policy = LinUCB(NAMES, 2, forget=0.9)
        policy.learn([1.0, 1.0], "a", 1.0, bucket=3)
        state = policy.state()
        meta = json.loads(state["meta"].tobytes())
        assert meta.pop("buckets") is True
        older = load_policy({**state, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})
        older.learn([1.0, 1.0], "a", 1.0, **more)
        assert clock(older) == more.get("bucket", 4)
    meta["buckets"] = 1
    with pytest.raises(StateError, match="'buckets' must be true"):
        load_policy({**state, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})


def test_a_clock_ends_where_states_do():
    policy = LinUCB(NAMES, 2, forget=0.9)
    policy.learn([1.0, 1.0], "a", 1.0, bucket=2**53)
    state = policy.state()
    meta = json.loads(state["meta"].tobytes())
    del meta["buckets"]  # as an older version wrote it
    older = load_policy({**state, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})
    for refused in (
        lambda: older.learn([1.0, 1.0], "a", 1.0),
        lambda: older.learn_batch([[1.0, 1.0]], ["a"], [1.0]),
    ):
        with pytest.raises(InputError, match=r"clock of this policy is at 9007199254740992; 1"):
            refused()
    assert load_policy(older.state()).updates == 1
    older.learn([1.0, 1.0], "a", 1.0, bucket=2**53)  # how it counts time is not settled by them


def test_what_is_corrected_is_of_no_later_bucket_than_was_learned():
    policy = LinUCB(NAMES, 2, forget=0.9)
    policy.learn([1.0, 1.0], "a", 1.0, bucket=3)
    with pytest.raises(InputError, match="bucket 99 is later than the latest learned bucket, 3"):
        policy.revise([1.0, 1.0], "a", 0.5, bucket=99)
    with pytest.raises(InputError, match="bucket 4 is later than the latest learned bucket, 3"):
        withdraw(policy, [1.0, 1.0], "a", 1.0, bucket=4)
    assert policy.updates == 1
    assert policy.state()["moment"][0].tolist() == [1.0, 1.0]
