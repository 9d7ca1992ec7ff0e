"""The paired off-policy difference: its interval covers, and is narrower than two apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import LoggedData, evaluate
from steersman.ope.paired import off_policy_delta

MEANS = np.array([[0.2, 0.5, 0.6], [0.7, 0.4, 0.1]])  # by kind of context and action
TARGETS = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3]]), np.array([[0.1, 0.3, 0.6], [0.6, 0.3, 0.1]])


def _truth():
    first, second = (float((MEANS * target).sum(axis=1).mean()) for target in TARGETS)
    return second - first


def _logs(rng, rows, *, per_unit=1, correlation=0.0, adaptive=False):
    kind = np.repeat(rng.integers(0, 2, rows // per_unit), per_unit)
    logging = np.full((rows, 3), 1 / 3)
    if adaptive:  # drifts with time towards what turns out better, with a floor
        pull = np.linspace(0.0, 0.8, rows)[:, None]
        logging = (1 - pull) * logging + pull * (0.8 * np.eye(3)[1] + 0.2 / 3)
    actions = (rng.random(rows)[:, None] > logging.cumsum(axis=1)).sum(axis=1)
    effect = np.repeat(rng.normal(0.0, correlation, rows // per_unit), per_unit)
    rewards = np.clip((rng.random(rows) < MEANS[kind, actions]) * 0.5 + 0.25 + effect, -1, 2) * 1.0
    p = logging[np.arange(rows), actions]
    units = np.arange(rows) // per_unit if per_unit > 1 else None
    contexts = np.eye(2)[kind]
    return [
        LoggedData(actions, rewards, p, target[kind], contexts=contexts, clusters=units)
        for target in TARGETS
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        ("snips", {}),
        ("dr", {}),
        ("dr", {"per_unit": 5, "correlation": 0.2}),
        pytest.param("dr", {"adaptive": True}, marks=pytest.mark.slow),
    ],
)
def test_the_interval_covers(estimator, options):
    rng, covered, runs = np.random.default_rng(0), 0, 200
    for _ in range(runs):
        logs = _logs(rng, 1000, **options)
        adaptive = options.get("adaptive", False)
        found = off_policy_delta(*logs, estimator=estimator, adaptive=adaptive)
        covered += found.low <= 0.5 * _truth() <= found.high
    assert 0.90 <= covered / runs <= 0.99  # 95 %, and three standard errors of 200 runs


def test_it_is_narrower_than_two_intervals_apart():
    logs = _logs(np.random.default_rng(1), 3000)
    found = off_policy_delta(*logs, adaptive=False)
    one, other = (evaluate(data, estimators=("dr",))["dr"] for data in logs)
    assert found.values == (one.value, other.value)
    assert found.delta == pytest.approx(other.value - one.value)
    apart = np.hypot(one.standard_error, other.standard_error)
    assert found.standard_error < 0.8 * apart


def test_a_policy_against_itself_differs_by_nothing():
    first, _ = _logs(np.random.default_rng(2), 500)
    found = off_policy_delta(first, first, adaptive=False)
    assert (found.delta, found.low, found.high) == (0.0, 0.0, 0.0)


def _seldom_failing(seed, rows, failing):
    """Two arms, evenly drawn; one policy prefers the first, the other the second."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 2, rows)
    rewards = (rng.random(rows) >= np.array([0.0, failing])[actions]).astype(float)
    targets = (np.tile(target, (rows, 1)) for target in ([0.9, 0.1], [0.1, 0.9]))
    return [LoggedData(actions, rewards, np.full(rows, 0.5), target) for target in targets]


@pytest.mark.parametrize("estimator", ["snips", "dr"])
def test_rewards_that_are_all_alike_do_not_prove_that_two_policies_are(estimator):
    """What fails once in a hundred often does not fail in a hundred: the truth is -.008."""
    covered = used = 0
    for seed in range(40):
        logs = _seldom_failing(seed, 250, 0.01)
        found = off_policy_delta(*logs, estimator=estimator, adaptive=False)
        used += not found.refused
        covered += not found.refused and found.low <= -0.008 <= found.high
    assert used > 30
    assert covered >= 0.95 * used


def test_what_others_could_be_is_declared_or_unknown():
    first, second = _seldom_failing(0, 400, 0.0)
    alike = off_policy_delta(first, second, estimator="snips")
    assert alike.low < alike.delta < alike.high
    assert -0.03 < alike.low < -0.01
    assert alike.high == pytest.approx(-alike.low, rel=0.25)
    fives = [replace(log, rewards=5.0 * log.rewards) for log in (first, second)]
    unknown = off_policy_delta(*fives, estimator="snips")
    assert unknown.delta == pytest.approx(0.0, abs=1e-12)
    assert (unknown.low, unknown.high) == (-np.inf, np.inf)
    declared = [replace(log, reward_range=(0.0, 5.0)) for log in fives]
    found = off_policy_delta(*declared, estimator="snips")
    assert found.low == pytest.approx(5.0 * alike.low)


def test_it_refuses_where_either_evaluation_refuses():
    first, second = _logs(np.random.default_rng(3), 90)
    found = off_policy_delta(first, second)
    assert found.refused
    assert found.delta is found.low is found.values is None
    assert found.to_json()["refused"] is True
    assert {reason.split(":")[0] for reason in found.reasons} == {
        "first snapshot",
        "second snapshot",
    }
    assert max(found.ess) < 100


ROWS, OTHER_ROWS = (_logs(np.random.default_rng(seed), 400) for seed in (0, 5))


@pytest.mark.parametrize(
    ("second", "options", "said"),
    [
        (OTHER_ROWS[0], {}, "the two logs differ"),
        (replace(ROWS[1], rewards=1.0 - ROWS[1].rewards), {}, "the two logs differ"),
        (replace(ROWS[1], propensities=ROWS[1].propensities / 2), {}, "the two logs differ"),
        (replace(ROWS[1], names=np.arange(400)), {}, "the two logs differ"),
        (replace(ROWS[1], clusters=np.arange(400) // 2), {}, "the two logs differ"),
        (ROWS[1], {"estimator": "magic"}, "unknown estimator 'magic'"),
        (ROWS[1], {"estimator": "dm"}, "unknown estimator 'dm'; allowed:"),
        (None, {}, "allowed: a log"),
        (5, {}, "allowed: a log"),
        ("log", {}, "allowed: a log"),
    ],
)
def test_off_policy_delta_with_bad_argument_says_what_is_wrong(second, options, said):
    with pytest.raises(InputError, match=said):
        off_policy_delta(ROWS[0], second, **options)


def _rare(rng, fails, *, rows=2400):
    """A big arm that seldom fails, and a thin one that the second policy would take."""
    actions = (rng.random(rows) > 0.95).astype(int)
    rewards = (rng.random(rows) >= np.array(fails)[actions]).astype(float)
    p = np.array([0.95, 0.05])[actions]
    return [
        LoggedData(actions, rewards, p, np.tile(target, (rows, 1)))
        for target in ([0.95, 0.05], [0.0, 1.0])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [(0.004, 0.01), (0.02, 0.01)])
def test_a_thin_arm_that_never_failed_is_not_shown_to_be_better(fails):
    truth, runs, covered, better = 0.95 * (fails[0] - fails[1]), 0, 0, 0
    for seed in range(100):
        found = off_policy_delta(*_rare(np.random.default_rng(seed), fails), adaptive=False)
        if found.refused:
            continue
        runs += 1
        covered += found.low <= truth <= found.high
        better += truth < 0.0 < found.low
    assert runs > 80
    assert covered / runs > 0.93
    assert better <= 2


@pytest.mark.slow
def test_an_arm_that_never_failed_widens_the_difference_whatever_others_show():
    """It takes over most of what is done; another that fails now and then, a little."""
    logging, means = np.array([0.9, 0.06, 0.04]), np.array([0.99, 0.99, 0.5])
    targets, rows, held, runs = ([1.0, 0.0, 0.0], [0.0, 0.99, 0.01]), 2000, 0, 0
    truth = float((np.array(targets[1]) - targets[0]) @ means)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        actions = rng.choice(3, rows, p=logging)
        rewards = (rng.random(rows) < means[actions]).astype(float)
        if rewards[actions == 1].min() == 0.0:
            continue  # it failed, and shows its noise
        logs = [
            LoggedData(actions, rewards, logging[actions], np.tile(target, (rows, 1)))
            for target in targets
        ]
        for estimator in ("snips", "dr"):
            found = off_policy_delta(*logs, estimator=estimator, adaptive=False)
            if not found.refused:
                runs += 1
                held += found.low <= truth <= found.high
                assert found.low <= 0.0
    assert runs > 50
    assert held >= 0.95 * runs  # it was none of a hundred
