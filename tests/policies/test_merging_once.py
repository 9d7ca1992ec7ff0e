"""What a worker learned enters a merge once, whatever it did between its deltas."""

import json

import numpy as np
import pytest

from steersman.errors import InputError, MergeError, StateError
from steersman.points.policy_factory import load_policy
from steersman.policies import BetaThompson, JointSquareCB, LinTS, LinUCB, states
from steersman.policies.mergeable import remember
from steersman.policies.undo import withdraw

ROW = {"lin_ucb": [1.0, 0.5], "lin_ts": [1.0, 0.5], "squarecb": [1.0, 0.5], "beta": "k"}
POLICIES = {
    "lin_ucb": lambda: LinUCB(["a", "b"], 2),
    "lin_ts": lambda: LinTS(["a", "b"], 2, forget=0.9),
    "squarecb": lambda: JointSquareCB(["a", "b"], 2),
    "beta": lambda: BetaThompson(["a", "b"]),
}
CHANGES = {
    "revise": lambda policy, x: policy.revise(x, "a", 0.5, bucket=0),
    "withdraw": lambda policy, x: withdraw(policy, x, "a", 0.25, bucket=0),
    "replace": lambda policy, x: (
        withdraw(policy, x, "a", 0.25, bucket=0),
        policy.learn(x, "a", 1.0, bucket=0),
    ),
}


def taught(kind, n=3):
    policy = POLICIES[kind]()
    for _ in range(n):
        policy.learn(ROW[kind], "a", 0.25, bucket=0)
    return policy


def bits(state):
    return {name: array.tobytes() for name, array in state.items()}


def header(state):
    return json.loads(state["meta"].tobytes())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", POLICIES)
def test_a_delta_names_an_earlier_one_whatever_came_in_between(kind, change):
    base = taught(kind).state()
    worker, store = load_policy(base), load_policy(base)
    CHANGES[change](worker, ROW[kind])
    first = worker.delta(id="first")
    worker.learn(ROW[kind], "b", 1.0, bucket=0)
    second = worker.delta(id="second")
    assert header(second)["includes"] == ["first"]
    store.merge([first])
    before = bits(store.state())
    with pytest.raises(MergeError, match="'first' was already merged"):
        store.merge([second])
    assert bits(store.state()) == before


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", POLICIES)
def test_deltas_between_states_add_up_to_what_one_learner_knows(kind, change):
    """A state and a delta are taken in either order, before and after a reload."""
    worker, store = taught(kind), taught(kind)
    x, since = ROW[kind], worker.state()
    for place in range(6):
        CHANGES[change](worker, x) if place % 2 else worker.learn(x, "b", 1.0, bucket=0)
        if place % 3:
            delta, since = worker.delta(since=since), worker.state()
        else:
            taken = worker.state()
            delta, since = worker.delta(since=since), taken
        assert header(delta)["includes"] == []
        store.merge([delta])
        if place == 3:
            worker = load_policy(worker.state())
    assert store.updates == worker.updates
    for name, array in worker.state().items():
        if name != "meta":
            assert np.allclose(store.state()[name], array, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("kind", POLICIES)
def test_a_reload_forgets_no_delta(kind):
    base = taught(kind).state()
    worker, store = load_policy(base), load_policy(base)
    worker.learn(ROW[kind], "b", 1.0, bucket=0)
    first = worker.delta(id="first")
    again = load_policy(worker.state())
    assert bits(again.state()) == bits(worker.state())
    with pytest.raises(MergeError, match="made by this policy"):
        again.merge([first])
    store.merge([first])
    with pytest.raises(MergeError, match="'first' was already merged"):
        store.merge([again.delta(since=base)])
    again.learn(ROW[kind], "b", 0.5, bucket=0)
    store.merge([again.delta()])
    assert store.updates == again.updates == 5


def test_a_revision_before_a_reload_is_told_apart_from_nothing():
    base = taught("lin_ucb").state()
    worker = load_policy(base)
    worker.revise([1.0, 0.5], "a", 0.5)
    worker = load_policy(worker.state())
    worker.delta(since=base, id="first")
    worker.learn([1.0, 0.5], "b", 1.0)
    assert header(worker.delta(since=base))["includes"] == ["first"]


def test_a_delta_that_only_takes_back_is_merged():
    base = taught("lin_ucb").state()
    worker, store = load_policy(base), load_policy(base)
    withdraw(worker, [1.0, 0.5], "a", 0.25)
    taken = worker.delta()
    assert header(taken)["updates"] == -1
    store.merge([taken])
    assert store.updates == 2
    assert store.state()["count"].tolist() == [2.0, 0.0]
    with pytest.raises(MergeError, match="nothing changed"):
        LinUCB(["a", "b"], 2).merge([taken])


@pytest.mark.parametrize("kind", POLICIES)
def test_a_state_of_a_policy_that_made_no_delta_is_as_ever(kind):
    policy = taught(kind)
    policy.revise(ROW[kind], "a", 0.5, bucket=0)
    known = {"algorithm", "config", "merged", "removals", "reserved", "updates", "version"}
    assert set(header(policy.state())) - {"buckets", "clock", "keys"} == known


def test_a_delta_of_nothing_is_in_no_other():
    worker = load_policy(taught("lin_ucb").state())
    worker.delta(id="nothing")
    worker.learn([1.0, 0.5], "b", 1.0)
    assert header(worker.delta(id="some"))["includes"] == []


@pytest.mark.parametrize("kind", POLICIES)
def test_a_delta_is_since_no_state_of_another_copy(kind):
    """It would take back what the other copy knows and this one never learned."""
    base = taught(kind).state()
    worker, maker, store = (load_policy(base) for _ in range(3))
    maker.learn(ROW[kind], "b", 1.0, bucket=0)
    store.merge([maker.delta(id="theirs")])
    before = bits(worker.state())
    for other in (maker, store):
        with pytest.raises(
            StateError, match="holds the delta 'theirs', which is not in this policy"
        ):
            worker.delta(since=other.state(), id="mine")
    assert bits(worker.state()) == before
    assert header(maker.delta(since=store.state()))["includes"] == []
    worker.merge([load_policy(store.state()).delta(since=base, id="all")])
    assert not worker.delta(since=maker.state())["plays"].any()


def test_a_delta_may_be_since_a_state_with_deltas_that_hold_nothing_or_were_forgotten():
    worker = load_policy(taught("lin_ucb").state())
    other = load_policy(worker.state())
    other.delta(id="nothing")
    worker.delta(since=other.state())
    worker.learn([1.0, 0.5], "b", 1.0)
    worker.delta(id="first")
    since = worker.state()
    for place in range(1024):
        worker.delta(id=f"later {place}")
    assert header(worker.delta(since=since))["updates"] == 0


def test_a_policy_remembers_the_last_deltas():
    made = {}
    for place in range(1030):
        remember(made, str(place), "x")
    assert list(made) == [str(place) for place in range(6, 1030)]


@pytest.mark.parametrize(
    "emitted", ["abc", [["a"]], [["a", 1]], ["ab"], {"a": "b"}, [[["a"], "b"]]]
)
def test_damaged_names_of_deltas_are_a_state_error(emitted):
    state = taught("lin_ucb").state()
    meta = {**header(state), "emitted": emitted}
    state["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with pytest.raises(StateError, match="emitted"):
        load_policy(state)


@pytest.mark.parametrize("kind", POLICIES)
def test_a_delta_is_no_state(kind):
    """A policy made of a delta would not know that it holds it."""
    base = taught(kind).state()
    worker = load_policy(base)
    worker.learn(ROW[kind], "b", 1.0, bucket=0)
    delta = worker.delta(id="d")
    for refused in (
        lambda: load_policy(delta),
        lambda: type(worker).from_state(delta),
        lambda: worker.delta(since=delta, id="e"),
    ):
        with pytest.raises(StateError, match=r"'d', not a state; pass .* Merge"):
            refused()
    worker.learn(ROW[kind], "b", 1.0, bucket=0)
    assert header(worker.delta(since=base, id="e"))["includes"] == ["d"]


@pytest.mark.parametrize(
    "name", [3, 1.5, True, "", "\ud800", b"x", ["a"], ("a",), {"a": 1}, "x" * 201, "x" * 10**6]
)
def test_the_id_of_a_delta_is_a_short_text(name):
    worker = taught("lin_ucb")
    before = bits(worker.state())
    with pytest.raises(InputError, match="1 to 200 characters; got") as refused:
        worker.delta(id=name)
    assert len(str(refused.value)) < 250
    assert bits(worker.state()) == before
    assert header(worker.delta(id="x" * 200))["delta"] == "x" * 200
    load_policy(worker.state())


def test_a_delta_whose_id_no_state_can_name_is_not_merged():
    delta, store = taught("lin_ucb").delta(), taught("lin_ucb")
    before = bits(store.state())
    for name in ("\ud800", ""):
        meta = {**header(delta), "delta": name}
        named = {**delta, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
        with pytest.raises(MergeError, match="id is"):
            store.merge([named])
    assert bits(store.state()) == before


def test_an_error_while_a_delta_is_packed_leaves_no_trace(monkeypatch):
    worker = taught("lin_ucb")
    before = bits(worker.state())

    def fails(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(states, "pack", fails)
        with pytest.raises(MemoryError):
            worker.delta(id="d")
    assert bits(worker.state()) == before
