"""Rewards that are all alike say little of their noise: intervals must not vanish with it."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import (
    LoggedData,
    LoggedSequences,
    drawn_or_another,
    evaluate,
    evaluate_sequences,
    requests_needed,
)
from steersman.stats import all_alike_interval

RUNS = 300


def _log(rng, failing, *, n=200):
    """Two arms, evenly drawn; the target takes the second, which fails as seldom as is said."""
    actions = rng.integers(0, 2, n)
    rewards = (rng.random(n) >= np.array([0.1, failing])[actions]).astype(float)
    return LoggedData(actions, rewards, np.full(n, 0.5), np.tile([0.0, 1.0], (n, 1)))


@pytest.mark.parametrize("interval", ["wald", "bootstrap"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_an_arm_that_never_failed_may_still_fail(interval, adaptive):
    log = _log(np.random.default_rng(0), 0.0, n=400)
    found = evaluate(log, interval=interval, adaptive=adaptive, resamples=200)
    alike = all_alike_interval(1.0, int(found.ess), low=0.0, high=1.0)
    assert 0.95 < alike.low < 0.985
    for one in found.estimates.values():
        if one.low is not None:
            assert one.low <= alike.low
            assert one.high >= 1.0


@pytest.mark.slow
def test_intervals_of_what_seldom_fails_cover_it():
    """Without failures in 100 draws, which is how three logs of five come out here."""
    covered, used = dict.fromkeys(("ips", "snips", "dr"), 0), 0
    for seed in range(RUNS):
        found = evaluate(_log(np.random.default_rng(seed), 0.005), estimators=tuple(covered))
        used += not found.refused
        for name, one in found.estimates.items():
            covered[name] += one.low is not None and one.low <= 0.995 <= one.high
    assert used > 100
    for name in ("snips", "dr"):
        assert covered[name] >= 0.95 * used


def test_what_others_could_be_is_declared_or_unknown():
    rng = np.random.default_rng(1)
    ones = _log(rng, 0.0, n=400)
    fives = 5.0 * np.ones(400)
    unknown = evaluate(LoggedData(ones.actions, fives, ones.propensities, ones.target))
    assert unknown["snips"].value == 5.0
    assert (unknown["snips"].low, unknown["snips"].high) == (None, None)
    declared = evaluate(
        LoggedData(
            ones.actions, fives, ones.propensities, ones.target,
            reward_range=np.array([0.0, 10.0]),
        )
    )  # fmt: skip
    alike = all_alike_interval(5.0, int(declared.ess), low=0.0, high=10.0)
    assert (declared["snips"].low, declared["snips"].high) == (alike.low, alike.high)


def test_rewards_without_weight_are_none_of_its_business():
    """The arm that the target never takes fails now and then; its own is all that counts."""
    log = _log(np.random.default_rng(2), 0.0, n=400)
    assert log.rewards.min() == 0.0
    assert evaluate(log)["snips"].low < 0.985


def test_one_reward_that_differs_is_noise_to_be_measured():
    log = _log(np.random.default_rng(2), 0.0, n=400)
    rewards = log.rewards.copy()
    rewards[np.flatnonzero(log.actions == 1)[0]] = 0.0
    found = evaluate(LoggedData(log.actions, rewards, log.propensities, log.target))["snips"]
    assert found.high - found.value == pytest.approx(1.96 * found.standard_error, rel=1e-3)


def test_a_pilot_without_noise_forecasts_nothing():
    with pytest.raises(InputError, match="all rewards of the pilot that have weight are 1"):
        requests_needed(_log(np.random.default_rng(0), 0.0, n=400), 0.01)


def _selections(reward, *, n=600):
    rng = np.random.default_rng(3)
    first, second = rng.random((2, n)) < 0.5
    rewards = np.stack([np.zeros(n), reward(first & second, rng)], axis=1)
    target = np.where(np.stack([first, second], axis=1), 0.9, 0.1)
    return LoggedSequences(np.full((n, 2), 0.5), target, rewards, np.full(n, 2))


@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_selections_that_all_earned_the_same_may_earn_otherwise(worth):
    found = evaluate_sequences(_selections(lambda both, _: np.full(len(both), worth)))
    assert not found.refused
    alike = all_alike_interval(worth, int(found.ess), low=0.0, high=1.0)
    assert (found["wpdis"].low, found["wpdis"].high) == pytest.approx(tuple(alike))
    assert found["pdis"].low <= alike.low <= alike.high <= found["pdis"].high
    gain = found["gain"]
    assert gain.value == pytest.approx(0.0, abs=1e-12)
    assert (gain.low, gain.high) == pytest.approx((alike.low - worth, alike.high - worth))


def test_selections_that_differ_are_measured_as_they_are():
    found = evaluate_sequences(_selections(lambda both, _: both.astype(float)))["wpdis"]
    assert found.high - found.value == pytest.approx(1.96 * found.standard_error, rel=1e-3)


def test_what_selections_of_another_range_could_earn_is_declared():
    fives = _selections(lambda both, _: np.full(len(both), 5.0))
    assert evaluate_sequences(fives)["wpdis"].low is None
    wider = LoggedSequences(
        fives.propensities, fives.target, fives.rewards, fives.lengths, reward_range=(0.0, 5.0)
    )
    found = evaluate_sequences(wider)["wpdis"]
    assert found.low < 4.95
    assert found.high == 5.0
    with pytest.raises(InputError, match="reward_range"):
        LoggedSequences(
            fives.propensities, fives.target, fives.rewards, fives.lengths, reward_range=(1.0, 0.0)
        )


def test_an_estimator_without_a_name_and_a_level_in_words_are_refused():
    class Nameless:
        def rounds(self, log):
            raise AssertionError

    with pytest.raises(InputError, match="with a name and rounds"):
        evaluate(_log(np.random.default_rng(0), 0.1), estimators=[Nameless()])
    with pytest.raises(InputError, match="level is 'x'"):
        evaluate_sequences(_selections(lambda both, _: both.astype(float)), level="x")


def test_sums_of_the_same_terms_are_alike_but_for_rounding():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 400)
    target = np.tile([0.0, 1.0], (400, 1))
    exact = LoggedData(actions, np.full(400, 0.3), np.full(400, 0.5), target)
    summed = np.where(rng.random(400) < 0.5, 0.3, 0.1 + 0.2)
    rounded = LoggedData(actions, summed, np.full(400, 0.5), target)
    for name in ("snips", "dr"):
        wanted, found = (evaluate(log).estimates[name] for log in (exact, rounded))
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)
        assert found.high - found.low > 0.005
    with pytest.raises(InputError, match="their variance is unknown"):
        requests_needed(rounded, 0.05)


def _rarely_failing(rng, *, n=200):
    """The target takes the arm that fails once in two hundred, but for a floor on the other one."""
    actions = rng.integers(0, 2, n)
    rewards = (rng.random(n) >= np.array([0.1, 0.005])[actions]).astype(float)
    return LoggedData(actions, rewards, np.full(n, 0.5), np.tile([0.05, 0.95], (n, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_floor_on_what_fails_does_not_vouch_for_what_did_not(adaptive):
    """Without what such an arm leaves open SNIPS covers the truth in .56 of the logs."""
    covered, used = dict.fromkeys(("snips", "dr"), 0), 0
    truth = 0.05 * 0.9 + 0.95 * 0.995
    for seed in range(RUNS):
        log = _rarely_failing(np.random.default_rng(seed))
        found = evaluate(log, estimators=tuple(covered), adaptive=adaptive)
        used += not found.refused
        for name, one in found.estimates.items():
            covered[name] += one.low is not None and one.low <= truth <= one.high
    assert used > 200
    assert min(covered.values()) >= 0.95 * used


def _by_hand(alike, n, share, level=0.95):
    """The half width that so many units that are all alike leave open, of a share of choices."""
    return share * (alike - all_alike_interval(alike, n, low=0.0, high=1.0, level=level).low)


def test_what_is_left_open_adds_to_the_noise_as_an_independent_error_does():
    actions = np.arange(300) % 3
    rewards = np.where(actions == 0, np.arange(300) % 2, 1.0)
    target = np.tile([0.2, 0.3, 0.5], (300, 1))
    log = LoggedData(actions, rewards, np.full(300, 1 / 3), target)
    found = evaluate(log)["snips"]
    # Both arms that never failed are worth (100 .9 + 100 1.5)^2 / (100 .81 + 100 2.25) units.
    opened = _by_hand(1.0, int(240**2 / 306), 0.8)
    half = 1.959964 * found.standard_error
    assert found.value - found.low == pytest.approx(np.hypot(half, opened), rel=1e-6)
    assert found.high - found.value == pytest.approx(half, rel=1e-6)


def test_units_that_never_failed_count_once():
    actions = np.arange(2400) % 2
    rewards = np.where(actions == 0, np.arange(2400) // 2 % 2, 1.0)
    # The second arm's 1,200 rows are those of a hundred units.
    units = np.where(actions == 0, np.arange(2400), 10_000 + np.arange(2400) // 24)
    halves = np.full((2400, 2), 0.5)
    log = LoggedData(actions, rewards, halves[:, 0], halves, clusters=units)
    found = evaluate(log, estimators=("snips",))["snips"]
    opened = _by_hand(1.0, 100, 0.5)
    half = 1.9600 * found.standard_error
    assert found.value - found.low == pytest.approx(np.hypot(half, opened), rel=1e-3)


def test_rewards_beyond_what_is_known_bound_what_is_left_open():
    """Without a declared range, what was seen is the least that rewards can be."""
    actions = np.arange(300) % 2
    rewards = np.where(actions == 0, np.where(np.arange(300) % 4 == 0, -3.0, 2.0), 5.0)
    log = LoggedData(actions, rewards, np.full(300, 0.5), np.tile([0.1, 0.9], (300, 1)))
    found = evaluate(log, estimators=("snips",))["snips"]
    unseen = 8.0 * (1.0 - 0.025 ** (1 / 150))
    assert found.value - found.low > 0.9 * unseen


@pytest.mark.slow
def test_actions_that_were_drawn_once_and_differ_did_show_their_noise():
    """Of a thousand actions many are drawn once; each alone would leave all its range open."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(40):
        actions = rng.integers(0, 1000, 2000)
        rewards = rng.normal(0.5, 0.1, 2000)
        target = np.full((2000, 1000), 0.001)
        log = LoggedData(actions, rewards, np.full(2000, 0.001), target, reward_range=(-50, 50))
        found = evaluate(log, estimators=("snips",))["snips"]
        assert found.high - found.low < 0.02
        held += found.low <= 0.5 <= found.high
    assert held >= 34


def test_rows_of_one_unit_drew_its_action_once():
    rng = np.random.default_rng(0)
    actions, rewards = rng.integers(0, 200, 600), rng.random(600)
    target, rows = np.full((6000, 200), 1 / 200), np.repeat(np.arange(600), 10)
    once = LoggedData(actions, rewards, np.full(600, 1 / 200), target[:600], clusters=range(600))
    copies = LoggedData(actions[rows], rewards[rows], np.full(6000, 1 / 200), target, clusters=rows)
    found, same = (evaluate(log, estimators=("snips",))["snips"] for log in (once, copies))
    assert (same.low, same.high) == pytest.approx((found.low, found.high), abs=1e-12)


def test_actions_that_were_drawn_once_and_are_all_alike_leave_the_rest_open():
    rng = np.random.default_rng(1)
    actions = np.concatenate([np.repeat([0, 1], 300), np.arange(2, 42)])
    rewards = np.concatenate([rng.random(600), np.ones(40)])
    propensities = np.concatenate([np.full(600, 300 / 640), np.full(40, 1 / 640)])
    target = np.tile(np.concatenate([[0.3, 0.3], np.full(40, 0.01)]), (640, 1))
    log = LoggedData(actions, rewards, propensities, target)
    one = evaluate(log, estimators=("snips",))["snips"]
    seen = 1.96 * one.standard_error
    forty = all_alike_interval(1.0, 40, low=0.0, high=1.0)  # as many as are all alike
    alone = 1.0 - forty.low
    assert one.value - one.low == pytest.approx(np.hypot(seen, 0.4 * alone), rel=0.01)


def _where_it_suits(rng, right, elsewhere, *, n=400):
    """The target takes the action that suits the context, but for a floor on the other one."""
    context, actions = rng.integers(0, 2, (2, n))
    succeeds = np.where(actions == context, 0.995, elsewhere)
    rewards = (rng.random(n) < succeeds).astype(float)
    target = np.where(np.arange(2) == context[:, None], right, 1.0 - right)
    halves = np.full(n, 0.5)
    return LoggedData(actions, rewards, halves, target, contexts=context[:, None].astype(float))


@pytest.mark.slow
@pytest.mark.parametrize("right", [0.99, 0.95])
@pytest.mark.parametrize("elsewhere", [0.5, 0.9, 0.95])
def test_failures_where_an_action_does_not_suit_vouch_for_nothing_where_it_does(right, elsewhere):
    """By the standard error alone SNIPS covers the truth in .63 and .85, DR in .63 and .72."""
    covered, used = dict.fromkeys(("snips", "dr", "wpdis"), 0), 0
    truth = right * 0.995 + (1.0 - right) * elsewhere
    for seed in range(RUNS):
        log = _where_it_suits(np.random.default_rng(seed), right, elsewhere)
        found = evaluate(log, estimators=("snips", "dr"))
        used += not found.refused
        taken = log.target[np.arange(len(log)), log.actions]
        steps = (log.propensities[:, None], taken[:, None], log.rewards[:, None])
        selected = evaluate_sequences(LoggedSequences(*steps, np.ones(len(log), int)))
        for name, one in (*found.estimates.items(), ("wpdis", selected["wpdis"])):
            covered[name] += one.low is not None and one.low <= truth <= one.high
    assert used == RUNS
    assert min(covered.values()) >= 0.95 * used


def _whatever_was_drawn(rng, best, others, floor, *, arms=20, rows=2400):
    """As points of mixed parts are judged: one column stands for whatever a row drew."""
    masses = np.full(arms, floor / arms)
    masses[0] += 1.0 - floor
    actions, rates = rng.integers(0, arms, rows), np.full(arms, others)
    rates[0] = best
    rewards = (rng.random(rows) < rates[actions]).astype(float)
    target = drawn_or_another(masses[actions])
    drawn = np.zeros(rows, dtype=int)
    return LoggedData(drawn, rewards, np.full(rows, 1 / arms), target), masses @ rates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "others", "floor"), [(0.99, 0.7, 0.1), (0.99, 0.95, 0.1), (0.995, 0.97, 0.05)]
)
def test_what_stands_for_all_that_was_drawn_is_open_by_all_that_the_target_takes(
    best, others, floor
):
    """By its column's mean, the mass of one of twenty, SNIPS covers the truth in .36 to .76."""
    covered, runs = dict.fromkeys(("snips", "dr"), 0), 100
    for seed in range(runs):
        log, truth = _whatever_was_drawn(np.random.default_rng(seed), best, others, floor)
        found = evaluate(log, estimators=tuple(covered))
        for name, one in found.estimates.items():
            covered[name] += one.low <= truth <= one.high
    assert covered["snips"] >= 0.95 * runs
    assert covered["dr"] >= 0.9 * runs  # its one mean is no model of arms that differ so much


def test_the_heaviest_rows_that_never_failed_leave_their_share_open():
    context, actions = np.arange(400) % 2, np.arange(400) // 2 % 2
    suits = actions == context
    rewards = np.where(suits, 1.0, np.arange(400) // 4 % 2)
    target = np.where(np.arange(2) == context[:, None], 0.9, 0.1)
    log = LoggedData(actions, rewards, np.full(400, 0.5), target)
    found = evaluate(log, estimators=("snips",))["snips"]
    half = 1.959964 * found.standard_error
    opened = _by_hand(1.0, 200, 0.9)
    assert found.value - found.low == pytest.approx(np.hypot(half, opened), rel=1e-6)
    assert found.high - found.value == pytest.approx(half, rel=1e-6)


def test_heaviest_rows_that_are_alike_by_chance_leave_nothing_open():
    rng = np.random.default_rng(0)
    actions, rewards = rng.integers(0, 3, 600), (rng.random(600) < 0.7).astype(float)
    target = rng.dirichlet(np.ones(3), 600)
    log = LoggedData(actions, rewards, np.full(600, 1 / 3), target)
    top = np.argsort(-log.weights)[:2]
    log = LoggedData(actions, np.where(np.isin(np.arange(600), top), 1.0, rewards),
                     np.full(600, 1 / 3), target)  # fmt: skip
    found = evaluate(log, estimators=("snips",))["snips"]
    assert found.value - found.low == pytest.approx(1.959964 * found.standard_error, rel=1e-6)


def test_selections_of_weight_that_never_failed_leave_their_share_open():
    both = np.arange(800) % 4 == 0
    rewards = np.where(both, 1.0, np.arange(800) // 4 % 2)
    target = np.where(both, 0.9, 0.1 / 3)
    log = LoggedSequences(
        np.full((800, 1), 0.25), target[:, None], rewards[:, None], np.ones(800, int)
    )
    found = evaluate_sequences(log, estimators="wpdis")["wpdis"]
    half = 1.959964 * found.standard_error
    opened = _by_hand(1.0, 200, 0.9)
    assert found.value - found.low == pytest.approx(np.hypot(half, opened), rel=1e-3)
