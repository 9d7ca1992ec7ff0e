"""Warm starts, priors, new actions, and policies built from a spec."""

import numpy as np
import pytest

from steersman.errors import ActionError, InputError
from steersman.points.policy_factory import build, warm_start
from steersman.policies import BetaThompson, LinTS, LinUCB
from steersman.spec.loader import loads

DOCUMENT = """
format: 1
skill: test
decision: one
context: {{fields: {{mood: {{type: category}}}}}}
actions: {{kind: choice, names: [a, b]}}
policy: {policy}
floor: 0.1
fallback: {{otherwise: a}}
reward: {{terms: {{success: {{weight: 1.0, low: 0, high: 1}}}}, window_s: 60}}
"""


def test_a_warm_start_counts_for_what_it_is_trusted():
    cold, warm = LinUCB(["a", "b"], 2), LinUCB(["a", "b"], 2)
    rows = [[1.0, 0.0]] * 40
    warm_start(warm, rows, ["b"] * 40, [1.0] * 40, trust=0.5)
    cold.learn_batch(rows, ["b"] * 40, [1.0] * 40, weights=[0.5] * 40)
    assert np.array_equal(warm.state()["gram"], cold.state()["gram"])


def test_a_limit_caps_all_rows_of_an_action_together():
    policy = BetaThompson(["a", "b"])
    warm_start(policy, ["k"] * 100, ["a"] * 100, [1.0] * 100, trust=0.5, limit=3.0)
    assert policy.posterior("k", "a") == pytest.approx((4.0, 1.0))


def test_a_warm_start_wins_early():
    truth = np.array([0.2, 0.8])
    cold, warm = LinTS(["a", "b"], 1), LinTS(["a", "b"], 1)
    warm_start(warm, [[1.0]] * 20, ["a", "b"] * 10, [0.2, 0.8] * 10, trust=0.3)
    first, better = (float(policy.distribution([1.0]) @ truth) for policy in (cold, warm))
    assert first == pytest.approx(0.5)
    assert better > 0.75


def test_forced_exploration_ends_with_its_budget():
    policy = LinUCB(["a"], 1)
    for _ in range(50):
        policy.learn([1.0], "a", 1.0)
    policy.add_action("new", explore=5, share=0.2)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert policy.distribution([1.0])[1] >= 0.2
        policy.learn([1.0], "new", 0.0)
    assert policy.distribution([1.0])[1] == 0.0
    assert policy.decide([1.0], rng=rng).action == "a"


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("eligible", [None, ["old", "new", "newer"]])
def test_forced_exploration_leaves_the_others_their_floor(floor, eligible):
    policy = LinUCB(["old", "older"], dim=2, floor=floor)
    for _ in range(20):
        policy.learn([1.0, 0.0], "older", 1.0)
        policy.learn([1.0, 0.0], "old", 0.0)
    for name in ("new", "newer"):
        policy.add_action(name, explore=10, share=0.25)
    p = policy.distribution([1.0, 0.0], eligible=eligible)
    names = policy.actions if eligible is None else eligible
    least = floor / len(names)
    assert p.sum() == pytest.approx(1.0, abs=1e-15)
    for name, mass in zip(policy.actions, p.tolist(), strict=True):
        assert mass >= (least if name in names else 0.0) - 1e-15
        if name in ("new", "newer"):
            assert mass >= 0.25 - 1e-15 or floor > 0.3
    many = policy.decide_many([[1.0, 0.0]], rng=np.random.default_rng(0))
    if eligible is None:
        assert many[0].distribution.tolist() == p.tolist()


def test_forced_exploration_survives_a_state():
    policy = LinUCB(["a"], 1)
    policy.add_action("new", explore=5, share=0.2)
    for _ in range(30):
        policy.learn([1.0], "a", 1.0)
    copy = LinUCB.from_state(policy.state())
    assert np.array_equal(copy.distribution([1.0]), policy.distribution([1.0]))


@pytest.mark.parametrize(
    ("declared", "algorithm"),
    [
        ("{algorithm: lin_ucb, alpha: 0.5}", "lin_ucb"),
        ("{algorithm: lin_ts, noise_var: 0.2}", "lin_ts"),
        ("{algorithm: beta_thompson, key: mood}", "beta_thompson"),
        ("{algorithm: epsilon_greedy}", "epsilon_greedy"),
        ("{algorithm: epsilon_greedy, contextual: true}", "epsilon_greedy"),
        ("{algorithm: fixed, action: b}", "fixed"),
        ("{algorithm: rules, rules: [{when: 'mood == \"x\"', action: b}], otherwise: a}", "rules"),
    ],
)
def test_build_makes_what_is_declared(declared, algorithm):
    point = loads(DOCUMENT.format(policy=declared))
    policy = build(point.policy, point.actions.names, dim=point.context.dim, floor=point.floor)
    assert policy.algorithm == algorithm
    assert policy.floor == 0.1


@pytest.mark.parametrize("limit", [None, 3.0])
def test_a_warm_start_from_nothing_or_from_no_rows_is_refused(limit):
    policy = LinUCB(["a"], dim=2)
    for rows, actions in ((np.zeros((0, 2)), []), ([[1.0, 0.0]], None), ([[1.0, 0.0]], 7)):
        with pytest.raises(InputError, match=r"no rows|actions must be"):
            warm_start(policy, rows, actions, [1.0] * len(rows), limit=limit)
    for names in ([["a"]], [3]):
        with pytest.raises(ActionError, match="unknown action"):
            warm_start(policy, [[1.0, 0.0]], names, [1.0], limit=limit)
    assert policy.updates == 0
