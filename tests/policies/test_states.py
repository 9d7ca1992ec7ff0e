"""States and deltas as an enemy, or a careless friend, would send them."""

import json

import numpy as np
import pytest

from steersman.errors import ActionError, InputError, MergeError, StateError
from steersman.points.policy_factory import load_policy
from steersman.policies import (
    BetaThompson,
    BoundedLinUCB,
    EpsilonGreedy,
    FactoredTS,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
    Rules,
    SequenceLinear,
    SequenceTrees,
    states,
)
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.tree_scorer import TreeScorer
from steersman.policies.undo import withdraw

NAMES = ["a", "b"]
GRAMS = [
    LinUCB(NAMES, 2),
    BoundedLinUCB(NAMES, 2),
    KernelUCB(NAMES, 2, random_features=3),
    LinTS(NAMES, 2),
    EpsilonGreedy(NAMES, 2),
    JointSquareCB(NAMES, 2),
    JointLinTS((), 2),
]


def edited(policy, **changes):
    """Return a state whose header was changed; ``config_x`` changes the config's x."""
    state = policy.state()
    meta = json.loads(state["meta"].tobytes())
    for name, value in changes.items():
        if name.startswith("config_"):
            meta["config"][name.removeprefix("config_")] = value
        else:
            meta[name] = value
    return {**state, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}


def _keyed():
    policy = BetaThompson(NAMES)
    policy.learn("k", "a", 1.0)
    return policy


@pytest.mark.parametrize(
    ("policy", "changes", "said"),
    [
        (LinUCB(NAMES, 3), {"updates": -1}, None),
        (LinUCB(NAMES, 3), {"updates": 1.5}, None),
        (LinUCB(NAMES, 3), {"updates": True}, None),
        (LinUCB(NAMES, 3), {"updates": 1e400}, None),
        (LinUCB(NAMES, 3), {"clock": 10**30}, None),
        (LinUCB(NAMES, 3), {"clock": 1.7}, None),
        (LinUCB(NAMES, 3), {"removals": "0"}, None),
        (LinUCB(NAMES, 3), {"version": True}, None),
        (LinUCB(NAMES, 3), {"merged": "abc"}, None),
        (LinUCB(NAMES, 3), {"merged": [1, "a"]}, None),
        (LinUCB(NAMES, 3), {"merged": ["\ud800"]}, None),
        (LinUCB(NAMES, 3), {"emitted": [["a", "\ud800"]]}, None),
        (LinUCB(NAMES, 3), {"reserved": {"a": [5, -0.3]}}, None),
        (LinUCB(NAMES, 3), {"reserved": {"a": [5.0, float("nan")]}}, None),
        (LinUCB(NAMES, 3), {"reserved": {"z": [5.0, 0.1]}}, None),
        (LinUCB(NAMES, 3), {"reserved": [1]}, None),
        (LinUCB(NAMES, 3), {"config_actions": "ab"}, None),
        (LinUCB(NAMES, 3), {"config_actions": ["a", 7]}, None),
        (LinUCB(NAMES, 3), {"config_dim": 16384}, None),
        (LinUCB(NAMES, 3), {"config_dim": -3}, None),
        (LinUCB(NAMES, 3), {"config_dim": "3"}, None),
        (LinUCB(NAMES, 3), {"config_ridge": 5e-324}, None),
        (LinUCB(NAMES, 3), {"config_floor": 2.0}, None),
        (LinUCB(NAMES, 3), {"config_surprise": 1}, None),
        (_keyed(), {"keys": "abc"}, None),
        (_keyed(), {"keys": {"a": 1}}, None),
        (_keyed(), {"keys": [""]}, None),
        (_keyed(), {"keys": ["x" * 9999]}, None),
        (_keyed(), {"keys": ["k", "k"]}, None),
        (_keyed(), {"keys": [3]}, None),
        (_keyed(), {"keys": None}, None),
        (Rules(NAMES, [("x < 1", "a")]), {"config_rules": [["__import__('os')", "a"]]}, "config"),
    ],
)
def test_from_state_with_bad_header_raises_state_error(policy, changes, said):
    with pytest.raises(StateError, match=said):
        type(policy).from_state(edited(policy, **changes))


NESTED = {"meta": np.frombuffer(b"[" * 200_000, np.uint8)}


@pytest.mark.parametrize("state", [None, 5, [], {}, {"meta": np.zeros(3)}, NESTED])
def test_from_state_with_bad_state_raises_state_error(state):
    with pytest.raises(StateError):
        LinUCB.from_state(state)
    with pytest.raises(StateError):
        load_policy(state)
    with pytest.raises(MergeError):
        LinUCB(NAMES, 3).merge([state])


def test_a_header_that_could_not_be_read_is_not_written(monkeypatch):
    policy = BetaThompson(NAMES)
    policy.learn("k" * 100, "a", 1.0)
    state = policy.state()
    monkeypatch.setattr(states, "_LARGEST_META", state["meta"].size)
    assert load_policy(state).updates == 1
    policy.learn("more", "a", 1.0)
    told = f"header takes [0-9]+ bytes; at most {state['meta'].size} can be read again. .* keys"
    for written in (policy.state, policy.delta):
        with pytest.raises(StateError, match=told):
            written()
    monkeypatch.setattr(states, "_LARGEST_META", 100)
    with pytest.raises(StateError, match=f"'meta' has {state['meta'].size} bytes; at most 100"):
        load_policy(state)


def test_negative_counts_are_a_state_error():
    policy = EpsilonGreedy(NAMES)
    for name in ("plays", "count"):
        with pytest.raises(StateError, match="negative"):
            EpsilonGreedy.from_state({**policy.state(), name: np.array([-1.0, 0.0])})


def test_negative_sums_of_squares_are_a_state_error():
    policy = LinTS(NAMES, 2)
    policy.learn([1.0, 1.0], "a", 1.0)
    for packed in ([-1e93, 0.0, 1.0], [1.0, 0.0, -1e93]):
        gram = np.array([packed, [1.0, 0.0, 1.0]])
        with pytest.raises(StateError, match="negative sums of squares"):
            LinTS.from_state({**policy.state(), "gram": gram})


@pytest.mark.parametrize("kind", [LinUCB, LinTS, JointSquareCB])
@pytest.mark.parametrize("huge", [1e251, -1e305])
def test_sums_that_nobody_can_have_learned_are_refused(kind, huge):
    policy = kind(NAMES, 3)
    for name, told in (("moment", "1e\\+250"), ("gram", "1e\\+100")):
        array = np.zeros_like(policy.state()[name])
        array[0, 1] = huge
        with pytest.raises(StateError, match=f"{name}.*{told}"):
            kind.from_state({**policy.state(), name: array})


def test_counts_that_nobody_can_have_learned_are_refused():
    policy = BetaThompson(["a", "b", "c"])
    for name, weight in (("a", 1.0), ("b", 0.999), ("c", 0.0)):
        policy.learn("k", name, weight, weight=1e9)
    state = policy.state()
    largest = BetaThompson.from_state({**state, "counts": state["counts"] * 1e7})
    assert largest.distribution("k") == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)
    for huge in (1.1e16, 1e300):
        with pytest.raises(StateError, match="beyond 1e"):
            BetaThompson.from_state({**state, "counts": state["counts"] + huge})


def test_deltas_whose_sum_is_too_large_change_nothing():
    policy, other = LinTS(NAMES, 2), LinTS(NAMES, 2)
    policy.learn([1.0, 0.0], "a", 9e249)
    other.learn([1.0, 0.0], "a", 9e249)
    before = policy.state()
    with pytest.raises(MergeError, match="nothing changed"):
        policy.merge([other.delta()])
    assert {name: array.tobytes() for name, array in policy.state().items()} == {
        name: array.tobytes() for name, array in before.items()
    }
    assert policy.distribution([1.0, 0.0])[0] == 1.0


@pytest.mark.parametrize("order", ["fortran", "strided", "readonly"])
def test_a_state_learns_on_however_its_arrays_lie_in_memory(order):
    policy = LinUCB(NAMES, 3)
    policy.learn([1.0, 2.0, 3.0], "b", 0.5)
    state = {}
    for name, array in policy.state().items():
        if order == "fortran":
            state[name] = np.asfortranarray(array)
        elif order == "strided" and array.ndim == 2:
            wide = np.zeros((len(array), 2 * array.shape[1]))
            wide[:, ::2] = array
            state[name] = wide[:, ::2]
        else:
            state[name] = array.copy()
            state[name].setflags(write=False)
    copy = LinUCB.from_state(state)
    for one in (policy, copy):
        one.learn([1.0, -1.0, 0.0], "a", 1.0)
    for name, array in policy.state().items():
        assert np.array_equal(copy.state()[name], array)


def test_a_delta_inside_another_is_merged_once():
    base = LinUCB(NAMES, 2)
    first, second, third = (LinUCB.from_state(base.state()) for _ in range(3))
    second.learn([1.0, 0.0], "a", 1.0)
    inner = second.delta()
    first.merge([inner])
    first.learn([0.0, 1.0], "b", 1.0)
    outer = first.delta()
    before = third.state()
    for both in ([outer, inner], [inner, outer]):
        with pytest.raises(MergeError, match="already merged"):
            third.merge(both)
    third.merge([outer])
    with pytest.raises(MergeError, match="already merged"):
        third.merge([inner])
    assert third.updates == 2
    assert not np.array_equal(third.state()["gram"], before["gram"])


def test_a_policys_own_delta_is_refused_and_a_later_one_names_the_earlier():
    worker, store = LinUCB(NAMES, 2), LinUCB(NAMES, 2)
    worker.learn([1.0, 0.0], "a", 1.0)
    early = worker.delta()
    with pytest.raises(MergeError, match="made by this policy"):
        worker.merge([early])
    store.merge([early])
    worker.learn([1.0, 0.0], "a", 0.0)
    with pytest.raises(MergeError, match="already merged"):
        store.merge([worker.delta()])
    middle = LinUCB(NAMES, 2)
    middle.learn([1.0, 0.0], "a", 1.0)
    store.merge([worker.delta(since=middle.state())])
    assert store.updates == 2


def test_a_removed_action_cannot_come_back_through_a_delta():
    base = LinUCB(NAMES, 2)
    one, other = (LinUCB.from_state(base.state()) for _ in range(2))
    one.learn([1.0, 0.0], "b", 1.0)
    one.remove_action("b")
    one.add_action("b")
    with pytest.raises(MergeError, match="removed"):
        other.merge([one.delta()])
    with pytest.raises(StateError, match="removed"):
        one.delta(since=base.state())


def test_an_open_set_takes_candidates_and_no_actions():
    policy = JointSquareCB((), 2)
    for change in (lambda: policy.add_action("x", explore=5), lambda: policy.remove_action("x")):
        with pytest.raises(InputError, match="open"):
            change()
    closed = JointSquareCB(["only"], 2)
    with pytest.raises(InputError, match="last action"):
        closed.remove_action("only")


def test_deciding_and_reading_the_state_do_not_change_what_is_learned():
    """The same log gives the same bytes, however often was decided in between."""
    quiet, busy = LinTS(NAMES, 2, forget=0.9), LinTS(NAMES, 2, forget=0.9)
    rng = np.random.default_rng(0)
    for i in range(40):
        x, reward = rng.standard_normal(2), float(rng.random())
        for policy in (quiet, busy):
            policy.learn(x, NAMES[i % 3 == 0], reward)
        busy.distribution(x)
        busy.state()
    for name, array in quiet.state().items():
        assert busy.state()[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("bucket", [1.5, float("nan"), float("inf"), -3, True, "x", 2**63, 10**30])
def test_a_bucket_is_a_whole_number(bucket):
    policy = LinUCB(NAMES, 2, forget=0.9)
    before = policy.state()
    with pytest.raises(InputError, match="bucket"):
        policy.learn([1.0, 0.3], "a", 0.7, bucket=bucket)
    with pytest.raises(InputError, match="bucket"):
        policy.revise([1.0, 0.3], "a", 0.7, bucket=bucket)
    with pytest.raises(InputError, match="bucket"):
        policy.learn_batch([[1.0, 0.3]], ["a"], [0.7], buckets=[bucket])
    policy.learn([1.0, 0.3], "a", 0.7, bucket=np.int64(4))
    assert json.loads(policy.state()["meta"].tobytes())["clock"] == 4
    assert json.loads(before["meta"].tobytes())["clock"] == 0


def test_a_policy_that_forgets_revises_by_bucket_only():
    with pytest.raises(InputError, match="pass the bucket"):
        LinUCB(NAMES, 2, forget=0.9).revise([1.0, 0.0], "a", 1.0)


@pytest.mark.parametrize("text", ["\ud800", ""])
def test_text_that_cannot_be_written_is_refused(text):
    policy = BetaThompson(NAMES)
    with pytest.raises(InputError):
        policy.learn(text, "a", 1.0)
    with pytest.raises(InputError):
        LinUCB(["a", text], 2)
    assert policy.state()["counts"].size == 0


@pytest.mark.parametrize(
    "context",
    [["1.5", "2"], [True, False], [1 + 2j, 0], np.ma.masked_array([1.0, 2.0], [True, False])],
)
def test_only_real_numbers_are_numbers(context):
    with pytest.raises(InputError):
        LinUCB(NAMES, 2).learn(context, "a", 1.0)
    for reward in (np.bool_(True), 1 + 2j, np.complex128(1), "1"):
        with pytest.raises(InputError, match="reward"):
            LinUCB(NAMES, 2).learn([1.0, 2.0], "a", reward)


def test_eligible_is_a_sequence_of_different_names():
    rng = np.random.default_rng(0)
    for policy, more in (
        (LinUCB(NAMES, 2), {}),
        (JointSquareCB(NAMES, 2), {"features": np.eye(2)}),
    ):
        for eligible in (5, "ab", ["a", "a"], (name for name in NAMES)):
            with pytest.raises(InputError):
                policy.decide([1.0, 0.0], rng=rng, eligible=eligible, **more)


def test_a_name_may_begin_with_a_brace():
    policy, rng = LinUCB(["{template}", "plain"], 1), np.random.default_rng(0)
    assert policy.decide([1.0], rng=rng, eligible=["plain"]).action == "plain"
    with pytest.raises(ActionError, match="unknown action 'other'"):
        policy.decide([1.0], rng=rng, eligible=["other"])
    policy.add_action('{"k":1}')
    with pytest.raises(ActionError, match="unknown action"):
        policy.decide([1.0], rng=rng, eligible=['{"k": 1}'])
    for name in ("{template}", "plain"):
        policy.remove_action(name)
    assert policy.decide([1.0], rng=rng, eligible=['{"k": 1}']).action == '{"k":1}'
    mixed = LinUCB(['{"k":1}', '{"j":2}'], 1)
    with pytest.raises(ActionError, match="unknown action"):
        mixed.decide([1.0], rng=rng, eligible=['{"j": 2}'])


@pytest.mark.parametrize("policy", [JointSquareCB, JointLinTS])
def test_a_row_of_features_belongs_to_one_configuration(policy):
    names = ['{"k":1,"on":true}', '{"k":2,"on":true}']
    joint, rng = policy(names, 2), np.random.default_rng(0)
    for features in (np.ones((1, 2)), {'{"k":1}': [1.0, 2.0]}):
        with pytest.raises(ActionError, match="unknown action"):
            joint.decide(None, rng=rng, eligible=['{"k":1}'], features=features)
    choice = joint.decide(None, rng=rng, eligible=names[1:], features=np.ones((1, 2)))
    assert (choice.action, choice.propensity) == (names[1], 1.0)


def test_candidates_that_are_alike_share_on_every_scale():
    rng = np.random.default_rng(0)
    for scale in (1.0, 1e4):
        policy = JointLinTS((), 30, draws=50)
        for _ in range(5):
            policy.learn(rng.normal(size=30) * scale, "z", float(rng.normal()) * 10 * scale)
        names = [f"c{place}" for place in range(21)]
        alike = np.tile(rng.normal(size=30) * scale, (21, 1))
        found = policy.distribution(None, eligible=names, features=alike)
        assert found == pytest.approx(np.full(21, 1 / 21), rel=1e-12)


@pytest.mark.parametrize("grid", [[1, 10**400], [-1e308, 1e308], [2**53, 2**53 + 1]])
def test_values_that_floats_cannot_tell_apart_are_on_no_scale(grid):
    with pytest.raises(InputError, match="on the scale"):
        FactoredTS(parts={"k": grid}, scales={"k": "linear"})
    policy = FactoredTS(parts={"k": [1, 2]}, scales={"k": "linear"})
    with pytest.raises(StateError, match="parts"):
        load_policy(edited(policy, config_parts={"k": grid}))


def test_a_temperature_beyond_all_floats_is_refused():
    with pytest.raises(InputError, match="temperature"):
        SequenceLinear(features=["s"], max_steps=1, temperature=10**400)
    with pytest.raises(InputError, match="temperature"):
        SequenceTrees(features=["s"], max_steps=1, temperature=10**400)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("mean", np.array(0.0)),
        ("mean", np.zeros((2, 2))),
        ("biases.0", np.array(1.0)),
        ("biases.0", np.array([[1.0, 2.0, 3.0]])),
    ],
)
def test_a_network_of_other_dimensions_is_a_state_error(name, array):
    state = NetworkScorer.linear(np.array([2.0, 1.0])).state()
    with pytest.raises(StateError, match="dimensions"):
        NetworkScorer.from_state({**state, name: array})


def test_trees_of_other_dimensions_or_parts_of_columns_are_a_state_error():
    state = TreeScorer.of_stumps(2, [(1, 0.5, -1.0, 2.0)]).state()
    with pytest.raises(StateError, match="shapes"):
        TreeScorer.from_state({**state, "values": np.array(1.0)})
    for name in ("places", "kept"):
        with pytest.raises(StateError, match=f"{name}.*whole"):
            TreeScorer.from_state({**state, name: state[name] + 0.5})


def test_a_subnormal_context_still_gets_an_answer():
    policy = LinTS(["a", "b", "c"], 1)
    policy.learn([1.0], "a", 1.0)
    p = policy.distribution([5e-324])
    assert p.sum() == pytest.approx(1.0)


def test_an_update_of_no_weight_uses_up_no_budget():
    policy = LinUCB(["a"], 1)
    policy.add_action("new", explore=1, share=0.2)
    policy.learn([1.0], "new", 0.0, weight=0.0)
    policy.learn_batch([[1.0]], ["new"], [0.0], weights=[0.0])
    for _ in range(20):
        policy.learn([1.0], "a", 1.0)
    assert policy.distribution([1.0])[1] >= 0.2


@pytest.mark.parametrize("policy", GRAMS, ids=lambda policy: policy.algorithm)
def test_a_gram_that_no_rows_make_is_a_state_error(policy):
    policy = type(policy).from_state(policy.state())
    for _ in range(9):
        policy.learn([0.5, -0.5], NAMES[0], 1.0)
    state = policy.state()
    one = state["gram"].copy()
    one[0, 0] *= -0.1
    for gram in (-np.abs(state["gram"]) * 3 - 2, one):
        with pytest.raises(StateError, match="negative sums of squares"):
            load_policy({**state, "gram": gram})


@pytest.mark.parametrize("norm", [1.0, 1e3, 1e6])
def test_what_rounding_leaves_of_what_was_taken_back_is_loaded(norm):
    """Also of rows whose squares are far larger than all that stays."""
    rng = np.random.default_rng(1)
    for seed in range(20):
        policy = LinTS(NAMES, 3)
        rows = rng.normal(size=(20, 3))
        rows *= 0.3 * norm / np.linalg.norm(rows, axis=1, keepdims=True)
        for x in rows:
            policy.learn(x, "a", 0.5, weight=0.3)
        policy.learn([1e-3, 1e-3, 1e-3], "a", 0.5)
        base = policy.state()
        worker, store = load_policy(base), load_policy(base)
        for place in np.random.default_rng(seed).permutation(20):
            withdraw(worker, rows[place], "a", 0.5, weight=0.3)
        assert load_policy(worker.state()).updates == 1
        store.merge([worker.delta()])
        assert load_policy(store.state()).updates == 1
        squares = store.state()["gram"][:, [0, 2, 5]]
        assert (squares >= 0.0).all()


@pytest.mark.parametrize("most", [2.0**53 * 2, 1e300])
def test_more_plays_than_counting_reaches_are_a_state_error(most):
    for policy in (LinUCB(NAMES, 2), BetaThompson(NAMES)):
        with pytest.raises(StateError, match=r"'plays' has .*2\^53"):
            load_policy({**policy.state(), "plays": np.array([1.0, most])})
