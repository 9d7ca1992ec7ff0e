"""Whatever is given, what comes back is an error of Steersman that says what and where."""

import copy
import random

import numpy as np
import pytest

from steersman.errors import ActionError, InputError, MergeError
from steersman.points.policy_factory import warm_start
from steersman.policies import (
    BetaThompson,
    EpsilonGreedy,
    JointLinTS,
    JointSquareCB,
    KernelUCB,
    LinTS,
    LinUCB,
    Rules,
)
from steersman.policies.linear import decide_alike

NAMES = ["a", "b", "c"]
MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
ODD = [
    [True, False, True],
    (False, False, False),
    [1.0, True, 0.5],
    (1, 0.5, np.bool_(False)),
    (True, 0.5, 1.0),
    [np.bool_(True)] * 3,
    np.array([True, False, True]),
    MASKED,
    bytearray(b"abc"),
    memoryview(b"abc"),
    b"abc",
]

KINDS = [f"{type(row).__name__} of {type(row[0]).__name__}" for row in ODD]
KNOWN = "unknown action 'other'; known: search, ask; add_action adds an action"
RULES = [[3], [None], 3, None, [], "ab", ["ab"], {"q < 1": "a"}, [("a",)]]


def rng():
    return np.random.default_rng(0)


def bits(policy):
    return {name: array.tobytes() for name, array in policy.state().items()}


@pytest.mark.parametrize(
    "row", ODD, ids=lambda row: f"{type(row).__name__} of {type(row[0]).__name__}"
)
@pytest.mark.parametrize(
    "policy", [LinUCB(NAMES, 3), KernelUCB(NAMES, 3, random_features=4), EpsilonGreedy(NAMES, 3)]
)
def test_a_batch_refuses_the_rows_that_learn_refuses(policy, row):
    before = bits(policy)
    for refused in (
        lambda: policy.learn(row, "a", 1.0),
        lambda: policy.decide(row, rng=rng()),
        lambda: policy.learn_batch([[1.0, 1.0, 1.0], row], ["a", "b"], [1.0, 1.0]),
        lambda: policy.learn_batch(([1, 1, 1], row), ["a", "b"], [1.0, 1.0]),
        lambda: policy.decide_many([[1.0, 1.0, 1.0]] * 4 + [row], rng=rng()),
    ):
        with pytest.raises(InputError, match="must be"):
            refused()
    assert bits(policy) == before


@pytest.mark.parametrize(
    "row", ODD, ids=lambda row: f"{type(row).__name__} of {type(row[0]).__name__}"
)
def test_features_of_actions_are_numbers_too(row):
    for policy in (JointSquareCB((), 3), JointLinTS(["x", "y"], 3)):
        for features in ({"x": [1.0, 1.0, 1.0], "y": row}, [[1.0, 1.0, 1.0], row]):
            with pytest.raises(InputError, match="must be"):
                policy.decide(None, rng=rng(), eligible=["x", "y"], features=features)


def test_rows_of_whole_numbers_and_of_both_are_learned():
    one, other = LinUCB(NAMES, 3), LinUCB(NAMES, 3)
    rows = [[1, 0, 2], (1, 1, 1), np.array([3, 0, 0]), [1, 0.5, 2], np.ones(3, np.float32)]
    one.learn_batch(rows, ["a"] * 5, [1.0] * 5)
    same = np.array([[1, 0, 2], [1, 1, 1], [3, 0, 0], [1, 0.5, 2], [1, 1, 1]])
    other.learn_batch(same, ["a"] * 5, [1.0] * 5)
    assert bits(one) == bits(other)


@pytest.mark.parametrize("deltas", [None, 3, 1.5])
def test_merge_takes_a_list(deltas):
    with pytest.raises(MergeError, match="takes a list of deltas; got"):
        LinUCB(NAMES, 3).merge(deltas)


@pytest.mark.parametrize("prior", [[[1, 2], [3]], None, 1, "ab", (1.0,), [[1], [2]]])
def test_a_prior_is_a_pair(prior):
    with pytest.raises(InputError, match="prior"):
        BetaThompson(NAMES, prior=prior)


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_pairs_or_mappings(rules):
    with pytest.raises(InputError, match="rule"):
        Rules(NAMES, rules)


def test_names_of_a_context_are_texts():
    rules = Rules(NAMES, [("q < 1", "a"), ("True", "b")])
    with pytest.raises(InputError, match="has the name 3; names must be text"):
        rules.decide({3: 4}, rng=rng())
    assert rules.decide({3: 4, "q": 0}, rng=rng()).action == "a"


@pytest.mark.parametrize(
    "contexts",
    [None, 3, "abcde", {"a": 1}, {1, 2}, (np.ones(3) for _ in range(5)), np.array(1.0)],
    ids=lambda contexts: type(contexts).__name__,
)
@pytest.mark.parametrize("policy", [LinUCB(NAMES, 3), LinTS(NAMES, 3), BetaThompson(NAMES)])
def test_many_contexts_come_in_a_list(policy, contexts):
    with pytest.raises(InputError, match="contexts must be a list or array"):
        policy.decide_many(contexts, rng=rng())


@pytest.mark.parametrize("nothing", [0, None, random, np.random, "x", np.random.Generator])
def test_only_a_generator_draws(nothing):
    policy = LinUCB(NAMES, 3)
    for refused in (
        lambda: policy.decide(np.ones(3), rng=nothing),
        lambda: policy.decide_many([np.ones(3)] * 2, rng=nothing),
        lambda: policy.decide_many([np.ones(3)] * 6, rng=nothing),
    ):
        with pytest.raises(InputError, match="rng must be a numpy Generator"):
            refused()


def test_nobody_decides_nothing():
    assert decide_alike([], rng=rng()) == []


def test_only_a_policy_is_warmed():
    with pytest.raises(InputError, match="policy must be a policy, such as LinUCB; got 'x'"):
        warm_start("x", [[1.0]], ["a"], [1.0])


@pytest.mark.parametrize("explore", [1.5, True, -1, float("nan"), "3"])
def test_a_budget_of_exploration_is_a_whole_number(explore):
    policy = LinUCB(NAMES, 3)
    with pytest.raises(InputError, match="explore must be a whole number"):
        policy.add_action("d", explore=explore)
    assert policy.actions == tuple(NAMES)


@pytest.mark.parametrize(
    ("policy", "x"), [(LinTS(NAMES, 3), [1.0, 0.0, 0.5]), (BetaThompson(NAMES), "k")]
)
def test_a_copy_of_any_kind_learns_alone(policy, x):
    policy.learn(x, "a", 1.0)
    before = bits(policy)
    twin = copy.copy(policy)
    assert bits(twin) == before
    twin.learn(x, "b", 1.0)
    assert bits(policy) == before
    assert (twin.updates, policy.updates) == (2, 1)


def test_an_unknown_action_has_no_posterior_whether_its_key_was_seen_or_not():
    policy = BetaThompson(NAMES)
    policy.learn("seen", "a", 1.0)
    for key in ("seen", "never"):
        with pytest.raises(ActionError, match="unknown action 'other'"):
            policy.posterior(key, "other")


def test_an_unknown_action_is_told_with_those_known():
    policy = LinUCB(["search", "ask"], 1)
    for refused in (
        lambda: policy.learn([1.0], "other", 1.0),
        lambda: policy.decide([1.0], rng=rng(), eligible=["other"]),
    ):
        with pytest.raises(ActionError) as told:
            refused()
        assert str(told.value) == KNOWN
    with pytest.raises(ActionError) as told:
        policy.index("serach")
    assert str(told.value) == (
        "unknown action 'serach'; did you mean 'search'? add_action adds a new one"
    )
    with pytest.raises(ActionError) as told:
        LinUCB([f"action {i}" for i in range(5000)], 1).index("z")
    assert len(str(told.value)) < 160
    with pytest.raises(ActionError, match="the policy has no actions; add_action adds one"):
        LinUCB([], 1).index("z")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (1, ["a", "a", "z"], "row 2: unknown action 'z'"),
        (2, [1.0, None, 1.0], "row 1: the reward must be a number; got None"),
        (3, [1.0, 1.0, -1.0], "row 2: the weight must lie in"),
        (4, [1, 1, 1.5], "row 2: bucket must be a whole number"),
        (0, ["k", "k", 3], "row 2: the key must be a string"),
    ],
)
def test_an_error_in_a_batch_names_the_row(place, value, said):
    policy = BetaThompson(NAMES)
    given = [["k"] * 3, ["a"] * 3, [1.0] * 3, [1.0] * 3, [1] * 3]
    given[place] = value
    X, actions, rewards, weights, buckets = given
    with pytest.raises(ActionError if place == 1 else InputError, match=said):
        policy.learn_batch(X, actions, rewards, weights=weights, buckets=buckets)
    assert policy.updates == 0
    if place in (2, 3):
        with pytest.raises(InputError, match=said):
            LinUCB(NAMES, 1).learn_batch([[1.0]] * 3, actions, rewards, weights=weights)


@pytest.mark.parametrize("what", ["X", "rewards", "weights", "buckets"])
def test_rows_that_are_too_few_are_told_by_name(what):
    given = {"X": [[1.0]] * 3, "rewards": [1.0] * 3, "weights": [1.0] * 3, "buckets": [1] * 3}
    given[what] = given[what][:2]
    with pytest.raises(InputError, match=f"{what} has 2 rows, but actions has 3"):
        LinUCB(NAMES, 1).learn_batch(actions=["a"] * 3, **given)


@pytest.mark.parametrize("eligible", ["a", {"a", "b"}, 3])
def test_candidates_of_an_open_set_are_told_as_eligible(eligible):
    with pytest.raises(InputError, match=r"^eligible must be a sequence of names"):
        JointSquareCB((), 1).decide(None, rng=rng(), eligible=eligible, features=[[1.0]])
