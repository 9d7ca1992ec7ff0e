"""Merging deltas: the same bytes for any order and grouping, and what `policy.merge` gives."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import InputError, MergeError
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import pack_state
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
from steersman.snapshots.merge import gather, merge_states

NAMES = ["a", "b", "c"]
KINDS = {
    "lin_ts": lambda: LinTS(NAMES, dim=3),
    "lin_ucb that forgets": lambda: LinUCB(NAMES, dim=3, forget=0.9),
    "kernel_ucb": lambda: KernelUCB(NAMES, dim=3, random_features=4),
    "epsilon_greedy": lambda: EpsilonGreedy(NAMES, dim=3),
    "epsilon_greedy without contexts": lambda: EpsilonGreedy(NAMES),
    "beta_thompson": lambda: BetaThompson(NAMES),
    "joint_squarecb": lambda: JointSquareCB((), dim=3),
    "joint_lin_ts": lambda: JointLinTS(NAMES, dim=3),
    "fixed": lambda: Fixed(NAMES, "b"),
}


def _learn(policy, rng, count):
    for _ in range(count):
        x = f"key {rng.integers(4)}" if policy.algorithm == "beta_thompson" else rng.normal(size=3)
        bucket = policy.updates // 3 if getattr(policy, "forget", 1.0) < 1.0 else None
        policy.learn(x, NAMES[rng.integers(3)], rng.random(), bucket=bucket)


def _base_and_deltas(kind, count, seed=0):
    rng = np.random.default_rng(seed)
    policy = KINDS[kind]()
    _learn(policy, rng, 5)
    base, deltas = policy.state(), []
    for number in range(count):
        copy = load_policy(base)
        _learn(copy, rng, int(rng.integers(0, 7)))
        deltas.append(copy.delta(id=f"worker {(number * 7) % count}"))
    return base, deltas


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_gives_the_same_bytes(kind):
    base, deltas = _base_and_deltas(kind, 6)
    first = pack_state(merge_states(base, deltas))
    rng = np.random.default_rng(1)
    for _ in range(10):
        mixed = [deltas[i] for i in rng.permutation(len(deltas))]
        assert pack_state(merge_states(base, mixed)) == first


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    order=st.permutations(range(6)),
    cuts=st.sets(st.integers(1, 5)),
    data=st.data(),
)
def test_every_grouping_gives_the_same_bytes(kind, order, cuts, data):
    base, deltas = _base_and_deltas(kind, 6)
    edges = [0, *sorted(cuts), 6]
    groups = [
        gather([deltas[i] for i in order[low:high]]) for low, high in itertools.pairwise(edges)
    ]
    while len(groups) > 1:  # bracketed in any way
        place = data.draw(st.integers(0, len(groups) - 2))
        groups[place : place + 2] = [gather(groups[place + 1], groups[place])]
    assert pack_state(merge_states(base, groups[0])) == pack_state(merge_states(base, deltas))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_policy_itself_would_merge(kind):
    base, deltas = _base_and_deltas(kind, 5)
    policy = load_policy(base)
    policy.merge(gather(deltas))
    expected, merged = policy.state(), merge_states(base, deltas)
    assert merged["meta"].tobytes() == expected["meta"].tobytes()
    for name in expected:
        np.testing.assert_allclose(merged[name], expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["lin_ts", "beta_thompson"])
def test_merging_in_stages_is_equal_up_to_rounding(kind):
    base, deltas = _base_and_deltas(kind, 6)
    stages = merge_states(merge_states(base, deltas[3:]), deltas[:3])
    for name, array in merge_states(base, deltas).items():
        if name != "meta":
            np.testing.assert_allclose(stages[name], array, rtol=1e-12, atol=1e-12)


def test_merging_is_learning_what_the_copies_learned():
    rng = np.random.default_rng(3)
    rows = [(rng.normal(size=3), NAMES[i % 3], rng.random()) for i in range(30)]
    base = LinTS(NAMES, dim=3)
    deltas = []
    for number in range(3):
        copy = LinTS.from_state(base.state())
        for row in rows[number::3]:
            copy.learn(*row)
        deltas.append(copy.delta(id=str(number)))
    merged = load_policy(merge_states(base.state(), deltas))
    for row in rows:
        base.learn(*row)
    assert merged.updates == base.updates == 30
    x = rng.normal(size=3)
    np.testing.assert_allclose(merged.distribution(x), base.distribution(x), atol=1e-9)


def test_nothing_to_merge_leaves_the_base():
    base, _ = _base_and_deltas("lin_ts", 0)
    assert pack_state(merge_states(base, [])) == pack_state(base)


@pytest.mark.parametrize("kind", ["lin_ts", "beta_thompson"])
def test_a_delta_is_merged_once(kind):
    base, deltas = _base_and_deltas(kind, 3)
    with pytest.raises(MergeError, match="occurs twice"):
        merge_states(base, [*deltas, deltas[0]])
    with pytest.raises(MergeError, match="occurs twice"):
        gather(deltas, deltas[:1])
    merged = merge_states(base, deltas)
    with pytest.raises(MergeError, match="was already merged"):
        merge_states(merged, deltas[2:])


def test_a_delta_inside_another_is_not_merged_again():
    base, deltas = _base_and_deltas("lin_ts", 2)
    copy = load_policy(base)
    copy.merge([deltas[0]])
    outer = copy.delta(id="outer")
    with pytest.raises(MergeError, match="included in another"):
        merge_states(base, [outer, deltas[0]])
    with pytest.raises(MergeError, match="was already merged"):
        merge_states(merge_states(base, [outer, deltas[1]]), [deltas[0]])


@pytest.mark.parametrize("kind", ["lin_ts", "beta_thompson"])
def test_a_delta_may_take_back_more_than_it_learned(kind):
    policy = KINDS[kind]()
    key = "key" if kind == "beta_thompson" else np.ones(3)
    for reward in (0.25, 0.5, 1.0):
        policy.learn(key, "a", reward)
    base = policy.state()
    learner, corrector = load_policy(base), load_policy(base)
    learner.learn(key, "b", 1.0)
    withdraw(corrector, key, "a", 0.25)
    withdraw(corrector, key, "a", 0.5)
    deltas = [learner.delta(id="more"), corrector.delta(id="less")]
    merged = load_policy(merge_states(base, deltas))
    assert merged.updates == 2
    expected = load_policy(base)
    expected.merge(deltas)
    for name, array in expected.state().items():
        np.testing.assert_array_equal(merged.state()[name], array)
    with pytest.raises(MergeError, match="cannot add the deltas"):
        merge_states(KINDS[kind]().state(), deltas[1:])


def test_deltas_that_do_not_fit_are_refused():
    base, deltas = _base_and_deltas("lin_ts", 2)
    other = LinTS(NAMES, dim=3, noise_var=0.5).delta(id="other")
    with pytest.raises(MergeError, match="use one configuration"):
        merge_states(base, [deltas[0], other])
    with pytest.raises(MergeError, match="does not fit"):
        merge_states(base, [other])
    with pytest.raises(MergeError, match="a state, not a delta"):
        merge_states(base, [base])
    with pytest.raises(MergeError, match="must be a list"):
        merge_states(base, deltas[0])
    with pytest.raises(MergeError, match="have different arrays"):
        merge_states(base, [*deltas, {**_renamed(deltas[0], "odd"), "more": np.zeros(1)}])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.7e308])
def test_numbers_without_end_are_refused(value):
    base, deltas = _base_and_deltas("lin_ts", 2)
    spoilt = [{**delta, "moment": np.full((3, 3), value)} for delta in deltas]
    expected = "exceed the float64 range" if np.isfinite(value) else "holds NaN or infinity"
    with pytest.raises(MergeError, match=expected):
        merge_states(base, spoilt)


@pytest.mark.parametrize(
    ("name", "value"),
    [("delta", 3), ("delta", ""), ("includes", None), ("updates", 2.5), ("clock", "noon")],
)
def test_a_spoilt_header_is_refused(name, value):
    base, deltas = _base_and_deltas("lin_ts", 2)
    with pytest.raises(MergeError):
        merge_states(base, [deltas[0], _with(deltas[1], **{name: value})])
    with pytest.raises(MergeError, match="cannot be read"):
        merge_states(base, [{**deltas[0], "meta": np.frombuffer(b"{", dtype=np.uint8)}])


def _renamed(delta, name):
    return _with(delta, delta=name)


def _with(delta, /, **entries):
    header = {**json.loads(delta["meta"].tobytes()), **entries}
    return {**delta, "meta": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}


def test_time_in_buckets_and_time_in_updates_are_not_added():
    base = LinUCB(NAMES, dim=3, forget=0.9).state()
    deltas = []
    for number, bucket in enumerate((None, 3, None)):
        copy = load_policy(base)
        copy.learn(np.ones(3), "a", 1.0, bucket=bucket)
        deltas.append(copy.delta(id=f"worker {number}"))
    with pytest.raises(MergeError, match="'worker 1' learned with time buckets and 'worker 0'"):
        merge_states(base, deltas)
    for alike in (deltas[::2], deltas[1:2]):
        merged = load_policy(merge_states(base, alike))
        merged.learn(np.ones(3), "a", 1.0, bucket=None if alike[0] is deltas[0] else 4)
        with pytest.raises(InputError, match="but earlier updates had"):
            merged.learn(np.ones(3), "a", 1.0, bucket=4 if alike[0] is deltas[0] else None)
