"""Bad input is a clear error, and the state stays as it was."""

import json
import tracemalloc

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
    arm_sums,
    inputs,
)
from steersman.policies.undo import withdraw
from steersman.spec.policy import LARGEST_VARIANCE_RATIO
from steersman.testing import check_policy

NAMES = ["a", "b"]


DURATIONS = [np.timedelta64(5, "ns"), np.timedelta64(5, "s"), np.timedelta64("NaT")]


def same(policy, before):
    after = policy.state()
    return all(np.array_equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ([], "shape"),
        ([1.0] * 5000, "shape"),
        ([[1.0, 2.0, 3.0]], "shape"),
        ([1.0, [2.0], 3.0], "numbers"),
        ({"x": 1.0}, "FeatureMap"),
        ([1.0, float("nan"), 0.0], r"x\[1\] is nan"),
        ([1.0, 0.0, float("-inf")], r"x\[2\] is -inf"),
        ([1e7, 0.0, 0.0], "too large"),
        ([1e200, 0.0, 0.0], "too large"),
    ],
)
def test_contexts(context, said):
    policy = LinTS(NAMES, 3)
    before = policy.state()
    with pytest.raises(InputError, match=said):
        policy.learn(context, "a", 1.0)
    with pytest.raises(InputError, match=said):
        policy.decide(context, rng=np.random.default_rng(0))
    assert same(policy, before)


def test_actions():
    policy = LinUCB(["search", "ask"], 2)
    with pytest.raises(ActionError, match="did you mean 'search'"):
        policy.learn([1.0, 0.0], "serach", 1.0)
    with pytest.raises(ActionError, match="no action is eligible"):
        policy.decide([1.0, 0.0], rng=np.random.default_rng(0), eligible=[])
    with pytest.raises(ActionError, match="unknown action"):
        policy.decide([1.0, 0.0], rng=np.random.default_rng(0), eligible=["ask", "other"])


LINEAR = {
    "lin_ucb": lambda: LinUCB(NAMES, 2),
    "lin_ucb_forgets": lambda: LinUCB(NAMES, 2, forget=0.5),
    "bounded": lambda: BoundedLinUCB(NAMES, 2),
    "kernel": lambda: KernelUCB(NAMES, 2, random_features=4),
    "lin_ts": lambda: LinTS(NAMES, 2),
    "lin_ts_extreme": lambda: LinTS(NAMES, 2, prior_var=1e3, noise_var=1e-9),
    "greedy_plain": lambda: EpsilonGreedy(NAMES),
    "greedy": lambda: EpsilonGreedy(NAMES, 2),
    "squarecb": lambda: JointSquareCB(NAMES, 2, gamma=1e12),
    "joint_ts": lambda: JointLinTS((), 2, prior_var=1e3, noise_var=1e-9),
    "factored": lambda: FactoredTS(parts={"on": [False, True], "k": [1, 2]}, dim=2),
}


def test_what_has_no_order_names_no_actions():
    policy = JointSquareCB((), dim=1)
    with pytest.raises(InputError, match="sequence of names"):
        policy.decide(
            None, rng=np.random.default_rng(0), eligible={"a", "b"}, features=[[1.0], [2.0]]
        )


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "rows",
    [{"a", "b"}, {"a": 1, "b": 2}, "ab", b"ab", iter("ab"), 3, np.array(1.0)],
    ids=["set", "mapping", "text", "bytes", "iterator", "number", "scalar"],
)
def test_what_has_no_rows_in_order_teaches_nothing(place, rows):
    policy = LinUCB(NAMES, 1, forget=0.9)
    before = policy.state()
    given = [[[1.0], [2.0]], ["a", "b"], [0.5, 1.0], [1.0, 1.0], [3, 4]]
    given[place] = rows
    X, actions, rewards, weights, buckets = given
    with pytest.raises(InputError, match=r"must be a (list or array|sequence)"):
        policy.learn_batch(X, actions, rewards, weights=weights, buckets=buckets)
    assert same(policy, before)


def test_a_context_for_each_row_is_no_text():
    with pytest.raises(InputError, match="X must be a list or array"):
        BetaThompson(NAMES).learn_batch("ab", ["a", "b"], [1.0, 0.0])
    with pytest.raises(InputError, match="X must be a list or array"):
        Rules(NAMES, [("True", "a")]).learn_batch(None, ["a"], [1.0])


def test_a_seed_draws_nothing():
    with pytest.raises(InputError, match=r"such as np.random.default_rng\(0\); got 0"):
        LinTS(NAMES, 1).decide([1.0], rng=0)


def rows_of(policy):
    """Return a context to learn from, two names, and what a decision is asked with."""
    names = policy.actions[:2] or tuple(NAMES)
    if policy.algorithm.startswith("joint"):
        return [1.0, 0.0], names, {"eligible": names, "features": [[1.0, 0.0], [0.0, 1e5]]}
    return [1.0, 0.0], names, {}


@pytest.mark.parametrize("kind", LINEAR)
def test_a_reward_of_1e300_is_refused_and_what_float64_holds_is_decided_from(kind):
    policy = LINEAR[kind]()
    x, names, asked = rows_of(policy)
    policy.learn(x, names[0], 1e240)
    policy.learn_batch([x] * 2, names, [-1e240, 1e200])
    before = policy.state()
    for reward in (1e300, -1e300, 1.7e308):
        for call in (
            lambda r=reward: policy.learn(x, names[0], r),
            lambda r=reward: policy.learn(x, names[0], r, weight=1e9),
            lambda r=reward: policy.learn_batch([x] * 2, names, [0.0, r]),
            lambda r=reward: policy.revise(x, names[0], r, bucket=1),
            lambda r=reward: withdraw(policy, x, names[0], r, bucket=1),
        ):
            with pytest.raises(InputError, match="float64 range"):
                call()
    assert same(policy, before)
    for context in (x, [1e-3, 1e5]):
        p = policy.distribution(context, **asked)
        assert np.isfinite(p).all()
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
    choice = policy.decide(x, rng=np.random.default_rng(0), **asked)
    assert 0.0 < choice.propensity <= 1.0


def test_a_reward_of_1e300_fits_no_beta_posterior():
    beta = BetaThompson(NAMES)
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        beta.learn("k", "a", 1e300)
    assert len(beta.state()["counts"]) == 0


@pytest.mark.parametrize("huge", [10**400, 10**5000], ids=["400 digits", "5000 digits"])
def test_whole_numbers_beyond_all_floats_are_told_in_few_words(huge):
    policy = LinUCB(NAMES, 2)
    for call in (
        lambda: policy.learn([1.0, 0.0], "a", huge),
        lambda: policy.learn([1.0, 0.0], "a", 1.0, bucket=huge),
        lambda: policy.learn([1.0, 0.0], "a", 1.0, weight=huge),
        lambda: policy.learn([huge, 0.0], "a", 1.0),
        lambda: policy.learn([1.0, 0.0], huge, 1.0),
        lambda: LinUCB([huge], 2),
        lambda: LinUCB(NAMES, huge),
        lambda: BetaThompson(NAMES).learn(huge, "a", 1.0),
        lambda: policy.decide([1.0, 0.0], rng=np.random.default_rng(0), eligible=huge),
    ):
        with pytest.raises(InputError) as refused:
            call()
        assert len(str(refused.value)) < 300
    assert policy.updates == 0


def test_states_of_other_shapes_versions_and_algorithms():
    state = LinUCB(NAMES, 3).state()
    with pytest.raises(StateError, match="'lin_ucb', not 'lin_ts'"):
        LinTS.from_state(state)
    with pytest.raises(StateError, match="must have shape"):
        LinUCB.from_state({**state, "moment": np.zeros((2, 4))})
    with pytest.raises(StateError, match="version knows"):
        load_policy(
            {"meta": np.frombuffer(b'{"algorithm":"neural","config":{"actions":[]}}', np.uint8)}
        )
    assert isinstance(load_policy(state), LinUCB)


def test_deltas_of_other_configurations():
    policy = LinUCB(NAMES, 3)
    other = LinUCB(NAMES, 3, ridge=2.0).delta()
    before = policy.state()
    with pytest.raises(MergeError, match="does not fit"):
        policy.merge([LinUCB(NAMES, 3).delta(), other])
    with pytest.raises(MergeError, match="not a delta"):
        policy.merge([policy.state()])
    assert same(policy, before)


PART_VALUES = r"part 'model' is .*; allowed: a list of values"


@pytest.mark.parametrize(
    ("policy", "keywords", "said"),
    [
        (LinUCB, {"actions": NAMES, "dim": 2, "floor": 1.0}, "floor"),
        (LinUCB, {"actions": NAMES, "dim": 2, "floor": float("nan")}, "floor"),
        (LinUCB, {"actions": NAMES, "dim": 2, "alpha": -1.0}, "alpha"),
        (LinUCB, {"actions": NAMES, "dim": 2, "ridge": 0.0}, "ridge"),
        (LinUCB, {"actions": NAMES, "dim": 2, "forget": 0.0}, "forget"),
        (LinUCB, {"actions": NAMES, "dim": 2, "forget": True}, "forget"),
        (LinUCB, {"actions": NAMES, "dim": 0}, "dim"),
        (LinUCB, {"actions": NAMES, "dim": 2.0}, "dim"),
        (LinUCB, {"actions": ["x", "x"], "dim": 2}, "duplicate action"),
        (LinUCB, {"actions": "abc", "dim": 2}, "not the one string"),
        (
            LinUCB,
            {"actions": {"a", "b"}, "dim": 2},
            r"differs between processes. Pass sorted\(actions\)",
        ),
        (
            SequenceLinear,
            {"features": ["score"], "max_steps": 2, "stop": "no"},
            "stop must be True or False; got 'no'",
        ),
        (
            FactoredTS,
            {"parts": {"k": [1, 2]}, "pairs": "no"},
            "pairs must be True or False; got 'no'",
        ),
        (FactoredTS, {"parts": {"model": "large"}}, PART_VALUES),
        (FactoredTS, {"parts": {"model": b"large"}}, PART_VALUES),
        (FactoredTS, {"parts": {"model": {"small", "large"}}}, PART_VALUES),
    ],
)
def test_policy_with_bad_constructor_argument_names_it(policy, keywords, said):
    with pytest.raises(InputError, match=said):
        policy(**keywords)


def test_a_prior_far_wider_than_the_noise_is_refused_where_float64_holds_no_more():
    check_policy(lambda: LinTS(NAMES, 4, prior_var=1e3, noise_var=1e-9))
    for wide in (
        lambda: LinTS(NAMES, 4, prior_var=1e4, noise_var=1e-9),
        lambda: JointLinTS((), 4, prior_var=1e4, noise_var=1e-9),
    ):
        with pytest.raises(InputError, match=r"at most 1e\+12 times noise_var; got 10000 and"):
            wide()
    assert inputs.LARGEST_VARIANCE_RATIO == LARGEST_VARIANCE_RATIO, "declared as it is checked"


def test_joint_features():
    policy = JointSquareCB(NAMES, 2)
    rng = np.random.default_rng(0)
    for features, said in (
        (None, "needs features"),
        ([[1.0, 0.0]], "one row per eligible"),
        ({"a": [1.0, 0.0]}, "features are missing for"),
        ([[1.0, 0.0], [np.nan, 0.0]], "row 1"),
    ):
        with pytest.raises(InputError, match=said):
            policy.decide(None, rng=rng, features=features)
    with pytest.raises(InputError, match="no per-action features"):
        LinUCB(NAMES, 2).decide([1.0, 0.0], rng=rng, features=np.eye(2))


@pytest.mark.slow
def test_a_million_collinear_updates_keep_the_posterior_positive():
    policy = LinTS(["a"], 4, noise_var=1e-3)
    x = np.array([1.0, 1.0, 1.0, 1.0 + 1e-9])
    for _ in range(1_000_000):
        policy.learn(x, "a", 0.5)
    covariance = policy._arms.covariance(0)
    assert np.linalg.eigvalsh(covariance).min() > 0.0
    assert float(policy._arms.means(x)[0]) == pytest.approx(0.5, rel=1e-6)
    # One and the same rounding a million times: the sums, and so this variance, are off by a bit.
    variance = policy._arms.means_and_variances(np.eye(4)[0])[1][0]
    assert variance == pytest.approx(0.75, rel=0.02)


def test_collinear_updates_with_huge_norms_keep_the_posterior_positive():
    policy = LinTS(["a", "b"], 3, prior_var=1e3, noise_var=1e-6)
    rows = np.outer(np.linspace(1.0, 9e5, 2000), [0.5, 0.5, 0.5])
    policy.learn_batch(rows, ["a"] * 2000, np.ones(2000))
    assert (policy.distribution([1.0, -1.0, 0.0]) > 0.05).all()
    _, variances = policy._arms.means_and_variances(np.array([1.0, -1.0, 0.0]))
    assert variances[0] == pytest.approx(2e3, rel=0.01)  # never seen: as the prior has it
    _, variances = policy._arms.means_and_variances(np.ones(3))
    assert 0.0 <= variances[0] < 1e-9


@pytest.mark.parametrize("size", [1e3, 5e5])
def test_collinear_updates_with_huge_norms_leave_a_joint_posterior_to_draw_from(size):
    policy = JointLinTS((), 3, prior_var=1e3, noise_var=1e-6, draws=2000)
    row = np.array([0.5, 0.5, 0.5 + 1e-9]) * size
    policy.learn_batch(np.outer(np.linspace(0.1, 1.0, 500), row), ["a"] * 500, np.ones(500))
    for _ in range(200):
        policy.learn(row, "a", 1.0)
    never_seen, known = [1.0, -1.0, 0.0], [0.0, 0.0, 0.0]
    p = policy.distribution(None, eligible=["new", "zero"], features=[never_seen, known])
    assert p[0] == pytest.approx(0.5, abs=0.05)  # its prior is symmetric, and still wide
    spread = float((np.array(never_seen) @ policy._weights()).std())
    assert spread == pytest.approx(np.sqrt(2e3), rel=0.1)  # as the prior has it


@pytest.mark.parametrize("context", [None, [1.0], "x"])
def test_rules_want_a_mapping(context):
    with pytest.raises(InputError, match="mapping"):
        Rules(NAMES, [("x < 1", "a"), ("True", "b")]).distribution(context)


@pytest.mark.parametrize("keys", [[["x"]], [1, "a"], ["a", "a", "a"], ["x" * 9999], None])
def test_a_delta_with_damaged_keys_is_a_merge_error(keys):
    policy = BetaThompson(NAMES)
    policy.learn("k", "a", 1.0)
    delta = policy.delta()
    meta = {**json.loads(delta["meta"].tobytes()), "keys": keys}
    delta["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    delta["counts"] = np.ones((len(keys or ()), 2, 2))
    other = BetaThompson(NAMES)
    before = other.state()
    with pytest.raises(MergeError, match="keys must be"):
        other.merge([delta])
    assert same(other, before)


@pytest.mark.parametrize("clock", [None, "x", -1, 1.5])
def test_a_delta_with_a_damaged_clock_is_a_merge_error(clock):
    delta = LinUCB(NAMES, 1, forget=0.5).delta()
    meta = {**json.loads(delta["meta"].tobytes()), "clock": clock}
    delta["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with pytest.raises(MergeError, match="clock"):
        LinUCB(NAMES, 1, forget=0.5).merge([delta])


def test_a_delta_since_a_later_time_is_a_state_error():
    policy = LinUCB(NAMES, 1, forget=0.5)
    early = load_policy(policy.state())
    policy.learn([1.0], "a", 1.0, bucket=5000)
    with pytest.raises(StateError, match="has time 5000"):
        early.delta(since=policy.state())


@pytest.mark.parametrize("eligible", [[5], [["a"]], [None], [{"k": 1}], [1.5, '{"k":1}']])
def test_configurations_are_named_by_texts(eligible):
    policy = FactoredTS(parts={"k": [1, 2], "on": [False, True]})
    with pytest.raises(InputError, match="text"):
        policy.distribution(None, eligible=eligible)
    with pytest.raises(ActionError, match="unknown action"):
        LinUCB(NAMES, 1).distribution([1.0], eligible=eligible)


def test_an_action_too_many_is_refused_before_anything_is_changed(monkeypatch):
    policy = LinUCB(["a", "b", "c"], 4)
    policy.learn(np.ones(4), "b", 1.0)
    before, p = policy.state(), policy.distribution(np.ones(4))
    monkeypatch.setattr(arm_sums, "_LARGEST_SIZE", 30)
    with pytest.raises(InputError, match="4 models of 4 features need 40 numbers"):
        policy.add_action("d", explore=5)
    assert same(policy, before)
    assert policy.actions == ("a", "b", "c")
    assert np.array_equal(policy.distribution(np.ones(4)), p)
    policy.remove_action("a")
    policy.add_action("d")
    load_policy(policy.state()).learn(np.ones(4), "d", 1.0)
    with pytest.raises(InputError, match="need 40 numbers"):
        policy._arms.load({**policy._arms.sums(), "count": np.zeros(4)}, 0)


def peak_of(refused, error, said):
    """Return how many bytes were taken while something was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(error, match=said):
            refused()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "policy",
    [
        LinUCB(["a"], 1),
        LinUCB(NAMES, 1),
        EpsilonGreedy(NAMES, 1),
        JointLinTS((), 1),
        JointSquareCB(NAMES, 1),
    ],
)
def test_a_state_without_models_is_refused_before_it_takes_memory(policy):
    state = policy.state()
    meta = json.loads(state["meta"].tobytes())
    meta["config"]["dim"] = 1000
    empty = {"gram": np.zeros((0, 500_500)), "moment": np.zeros((0, 1000)), "count": np.zeros(0)}
    small = {**state, **empty, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}
    assert peak_of(lambda: load_policy(small), StateError, "no 'gram' with one row") < 1e6


def test_models_that_are_too_large_are_refused_before_they_take_memory(monkeypatch):
    monkeypatch.setattr(arm_sums, "_LARGEST_SIZE", 600_000)
    assert peak_of(lambda: LinUCB(NAMES, 1000), InputError, "need 1,001,000 numbers") < 1e6


def test_waves_that_are_too_many_are_refused_before_they_take_memory():
    many = {"random_features": 4096}
    said = r"dim \+ random_features is 20,480; allowed: up to 16,384"
    assert peak_of(lambda: KernelUCB(NAMES, 16_384, **many), InputError, said) < 1e6
    assert peak_of(lambda: KernelUCB(NAMES, 12_000, **many), InputError, "models of 16096") < 1e6


@pytest.mark.parametrize("duration", DURATIONS)
def test_durations_are_no_numbers_whatever_numpy_says(duration):
    policy = LinUCB(NAMES, 1)
    before = policy.state()
    with pytest.raises(InputError, match=r"reward must be a number; got np\.timedelta64"):
        policy.learn([1.0], "a", duration)
    with pytest.raises(InputError, match="row 0: the reward must be a number"):
        policy.learn_batch([[1.0]], ["a"], np.array([duration]))
    with pytest.raises(InputError, match="weight must be a number"):
        policy.learn([1.0], "a", 1.0, weight=duration)
    with pytest.raises(InputError, match="dim must be a whole number"):
        LinUCB(NAMES, duration)
    assert same(policy, before)


def test_what_is_nested_too_deeply_to_be_shown_is_told():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match="got list nested too deeply"):
        LinUCB(NAMES, 1).learn([1.0], "a", deep)
    while deep:  # or its end goes as deep
        deep = deep.pop()
