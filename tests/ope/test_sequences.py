"""Estimates of sequences against every sequence written out, coverage, and refusal."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope.sequences import LoggedSequences, evaluate_sequences

STEPS, ACTIONS = 3, 3


class World:
    """Every state is the actions before it; rewards at every step, of a fixed table."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        states = [key for t in range(STEPS) for key in product(range(ACTIONS), repeat=t)]
        self.logged = {key: rng.dirichlet(np.full(ACTIONS, 9.0)) for key in states}
        self.target = {key: rng.dirichlet(np.full(ACTIONS, 9.0)) for key in states}
        ends = [key for t in range(1, STEPS + 1) for key in product(range(ACTIONS), repeat=t)]
        self.rewards = {key: rng.random() / STEPS for key in ends}

    def value(self):
        """The target's value, by enumerating every sequence."""
        total = 0.0
        for key in product(range(ACTIONS), repeat=STEPS):
            p = np.prod([self.target[key[:t]][key[t]] for t in range(STEPS)])
            total += p * sum(self.rewards[key[: t + 1]] for t in range(STEPS))
        return float(total)

    def rest(self, key):
        """V of a state under the target: what is still to come."""
        if len(key) == STEPS:
            return 0.0
        return sum(p * self.after(key, a) for a, p in enumerate(self.target[key]))

    def after(self, key, action):
        """Q of an action."""
        return self.rewards[(*key, action)] + self.rest((*key, action))

    def log(self, count, rng, *, noise=0.3, model=1.0):
        p, target, rewards, q, v = (np.zeros((count, STEPS)) for _ in range(5))
        for i in range(count):
            key = ()
            for t in range(STEPS):
                action = int(rng.choice(ACTIONS, p=self.logged[key]))
                p[i, t], target[i, t] = self.logged[key][action], self.target[key][action]
                q[i, t], v[i, t] = self.after(key, action), self.rest(key)
                key = (*key, action)
                rewards[i, t] = self.rewards[key] + noise * rng.normal()
        lengths = np.full(count, STEPS)
        return LoggedSequences(p, target, rewards, lengths, model * q, model * v)


@pytest.mark.parametrize("model", [1.0, 0.0, 0.4])
def test_expectations_are_those_of_every_sequence_enumerated(model):
    """Σ over all sequences of p times each one's term: unbiased, whatever the model says."""
    world = World(3)
    keys = list(product(range(ACTIONS), repeat=STEPS))
    fields = {name: np.zeros((len(keys), STEPS)) for name in ("p", "target", "rewards", "q", "v")}
    chance = np.ones(len(keys))
    for i, key in enumerate(keys):
        for t, action in enumerate(key):
            before = key[:t]
            fields["p"][i, t] = world.logged[before][action]
            fields["target"][i, t] = world.target[before][action]
            fields["rewards"][i, t] = world.rewards[key[: t + 1]]
            fields["q"][i, t] = model * world.after(before, action)
            fields["v"][i, t] = model * world.rest(before)
            chance[i] *= world.logged[before][action]
    weights = np.cumprod(fields["target"] / fields["p"], axis=1)
    ahead = np.append(fields["v"][:, 1:], np.zeros((len(keys), 1)), axis=1)
    pdis = (weights * fields["rewards"]).sum(axis=1)
    dr = fields["v"][:, 0] + (weights * (fields["rewards"] + ahead - fields["q"])).sum(axis=1)
    assert chance.sum() == pytest.approx(1.0, abs=1e-12)
    assert chance @ pdis == pytest.approx(world.value(), abs=1e-12)
    assert chance @ dr == pytest.approx(world.value(), abs=1e-12)

    log = LoggedSequences(fields["p"], fields["target"], fields["rewards"],
                          np.full(len(keys), STEPS), fields["q"], fields["v"])  # fmt: skip
    assert np.allclose(log.weights, weights, atol=1e-12)


def test_estimates_are_the_formulas_written_out():
    world = World(1)
    log = world.log(400, np.random.default_rng(0), model=0.5)
    weights = np.cumprod(log.target / log.propensities, axis=1)
    found = evaluate_sequences(log)
    ahead = np.append(log.v_hat[:, 1:], np.zeros((400, 1)), axis=1)
    wanted = {
        "pdis": (weights * log.rewards).sum(axis=1).mean(),
        "wpdis": sum(
            (weights[:, t] * log.rewards[:, t]).sum() / weights[:, t].sum() for t in range(STEPS)
        ),
        "dr": (log.v_hat[:, 0] + (weights * (log.rewards + ahead - log.q_hat)).sum(axis=1)).mean(),
    }
    for name, value in wanted.items():
        assert found[name].value == pytest.approx(value, abs=1e-12)


def test_without_a_model_nothing_is_said_in_its_name():
    """PDIS's number under another name would look like a second opinion."""
    log = World(1).log(400, np.random.default_rng(0))
    bare = LoggedSequences(log.propensities, log.target, log.rewards, log.lengths)
    found = evaluate_sequences(bare)
    assert (found["dr"].value, found["dr"].low, found["dr"].standard_error) == (None, None, None)
    assert found["pdis"].value == evaluate_sequences(log)["pdis"].value
    assert not found.refused


@pytest.mark.nightly
@pytest.mark.slow
def test_intervals_cover_what_they_say():
    world, hits = World(3), dict.fromkeys(("pdis", "wpdis", "dr"), 0)
    rng = np.random.default_rng(7)
    tries, widths = 150, dict.fromkeys(hits, 0.0)
    for _ in range(tries):
        found = evaluate_sequences(world.log(300, rng))
        assert not found.refused
        for name in hits:
            one = found[name]
            hits[name] += one.low <= world.value() <= one.high
            widths[name] += one.high - one.low
    for name, count in hits.items():
        assert 0.90 <= count / tries <= 0.99, name
    assert widths["dr"] < widths["pdis"]


def test_clusters_widen_intervals():
    world = World(3)
    log = world.log(300, np.random.default_rng(0))
    twice = LoggedSequences(
        *(np.repeat(getattr(log, name), 3, axis=0)
          for name in ("propensities", "target", "rewards", "lengths")),
        clusters=np.repeat(np.arange(300), 3),
    )  # fmt: skip
    once = LoggedSequences(log.propensities, log.target, log.rewards, log.lengths)
    one, other = evaluate_sequences(once)["pdis"], evaluate_sequences(twice)["pdis"]
    assert other.value == pytest.approx(one.value, abs=1e-12)
    assert other.standard_error == pytest.approx(one.standard_error, rel=1e-9)


def test_selections_of_different_lengths_end_where_they_end():
    p = np.array([[0.5, 0.5], [0.5, 1.0]])
    log = LoggedSequences(p, p.copy(), np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([2, 1]))
    assert np.allclose(log.weights, 1.0)
    with pytest.raises(InputError, match="after the end"):
        LoggedSequences(p, p.copy(), np.ones((2, 2)), np.array([2, 1]))


@pytest.mark.slow
def test_a_log_that_says_too_little_is_refused_and_never_raises():
    world = World(3)
    few = evaluate_sequences(world.log(40, np.random.default_rng(0)))
    assert few.refused
    assert few["dr"].value is None
    assert "Too little overlap" in " ".join(few.reasons)

    log = world.log(2000, np.random.default_rng(0))
    wrong = LoggedSequences(log.propensities * 0.9, log.target, log.rewards, log.lengths)
    assert "Mean weight" in " ".join(evaluate_sequences(wrong).reasons)

    # One selection that was next to impossible when it was logged decides everything.
    p, target = np.full((2000, 2), 0.5), np.full((2000, 2), 0.5)
    p[0] = 1e-3
    one = LoggedSequences(p, target, np.zeros((2000, 2)), np.full(2000, 2))
    assert "dominates" in " ".join(evaluate_sequences(one).reasons)

    # Without a choice in the log, what another policy would do is not known.
    never = LoggedSequences(np.ones((500, 2)), np.full((500, 2), 0.5), np.zeros((500, 2)),
                            np.full(500, 2))  # fmt: skip
    assert "could not have drawn 75.0%" in " ".join(evaluate_sequences(never).reasons)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("propensities", np.zeros((3, 2))),
        ("propensities", np.full((3, 2), np.nan)),
        ("propensities", np.full((3, 2), 1.5)),
        ("target", np.full((3, 2), 1.2)),
        ("target", np.full((3, 2), np.nan)),
        ("target", np.ones((3, 3))),
        ("rewards", np.full((3, 2), np.inf)),
        ("lengths", np.array([1, 2, 3])),
        ("lengths", np.array([1.0, 2.0, 2.0])),
        ("lengths", np.array([1, 2])),
        ("lengths", [[1], [1, 2], [2]]),
        ("lengths", np.ma.array([1, 2, 2], mask=[True, False, False])),
        ("q_hat", np.zeros((3, 2))),
        ("clusters", np.zeros(2)),
    ],
)
def test_bad_logs_are_refused_with_what_is_wrong(name, value):
    good = {
        "propensities": np.full((3, 2), 0.5),
        "target": np.full((3, 2), 0.5),
        "rewards": np.zeros((3, 2)),
        "lengths": np.full(3, 2),
    }
    LoggedSequences(**good)
    with pytest.raises(InputError):
        LoggedSequences(**(good | {name: value}))


def test_unknown_estimators_and_levels_are_refused():
    log = World(0).log(300, np.random.default_rng(0))
    with pytest.raises(InputError, match="pdis"):
        evaluate_sequences(log, estimators=("ips",))
    with pytest.raises(InputError, match="level"):
        evaluate_sequences(log, level=1.0)
    with pytest.raises(InputError, match="adaptive is 'yes'; allowed: True or False"):
        evaluate_sequences(log, adaptive="yes")


class Leading:
    """Eight lead in the log, drawn evenly; the target likes some of these, and some others."""

    def __init__(self, elsewhere, steps=2, names=8):
        self.steps, self.names, self.elsewhere = steps, names, elsewhere
        likes = np.linspace(1.0, 2.0, names)
        self.target = (1.0 - elsewhere) * likes / likes.sum()
        self.worth = np.linspace(0.2, 0.8, names)
        self.other = 0.1

    def value(self):
        """The last step decides; what is elsewhere at either step earns little."""
        there = (1.0 - self.elsewhere) ** self.steps
        inside = float(self.target @ self.worth) / (1.0 - self.elsewhere)
        return there * inside + (1.0 - there) * self.other

    def log(self, count, rng, *, told=True):
        drawn = rng.integers(self.names, size=(count, self.steps))
        rewards = np.zeros((count, self.steps))
        rewards[:, -1] = rng.random(count) < self.worth[drawn[:, -1]]
        p = np.full((count, self.steps), 1.0 / self.names)
        missing = np.full((count, self.steps), self.elsewhere) if told else None
        lengths = np.full(count, self.steps)
        return LoggedSequences(p, self.target[drawn], rewards, lengths, missing=missing)


def test_what_the_log_could_not_draw_is_told_exactly_and_refused():
    rng = np.random.default_rng(0)
    for elsewhere in (0.02, 0.1, 0.15):
        world, passed = Leading(elsewhere), 0
        for _ in range(20):
            log = world.log(1_000, rng)
            found = evaluate_sequences(log)
            lost = 1.0 - (1.0 - elsewhere) ** 2
            assert found.diagnostics.unsupported == pytest.approx(lost)
            assert found.refused
            assert "raise leading" in " ".join(found.reasons)
            assert found["wpdis"].value is None
            passed += not evaluate_sequences(replace(log, missing=None)).refused
        assert passed > 10 or elsewhere > 0.02  # weights alone do not show it


@pytest.mark.slow
def test_intervals_cover_where_little_is_missing():
    rng, world = np.random.default_rng(1), Leading(0.004)
    truth, inside = world.value(), {"pdis": 0, "wpdis": 0}
    for _ in range(200):
        found = evaluate_sequences(world.log(1_000, rng))
        assert not found.refused
        assert found.diagnostics.unsupported < 0.01
        for name in inside:
            inside[name] += found[name].low <= truth <= found[name].high
    assert min(inside.values()) >= 0.9 * 200, inside


def test_what_is_missing_after_the_first_step_counts_for_those_that_get_there():
    p, target = np.full((4, 2), 0.5), np.full((4, 2), 0.5)
    target[:2, 0] = [1.0, 0.0]
    missing = np.array([[0.0, 0.2], [0.0, 0.6], [0.0, 0.2], [0.1, 0.0]])
    log = LoggedSequences(
        p, target, np.zeros((4, 2)), np.array([2, 2, 2, 1]), missing=missing,
    )  # fmt: skip
    expected = 1.0 - (1.0 - 0.1 / 4) * (1.0 - (2 * 0.2 + 1 * 0.2) / 4)
    assert evaluate_sequences(log).diagnostics.unsupported == pytest.approx(expected)
    with pytest.raises(InputError, match="missing"):
        replace(log, missing=missing - 0.5)


def test_what_is_no_log_of_selections_is_said():
    halves, zeros = np.full((2, 1), 0.5), np.zeros((2, 1))
    for further, said in [
        ({"clusters": [0.0, np.nan]}, "clusters holds NaN"),
        ({"reward_range": (0.0, 1.0, 2.0)}, "reward_range is"),
        ({"reward_range": "wide"}, "reward_range is 'wide'"),
        ({"rewards": [["a"], ["b"]]}, "rewards has type <U1"),
        ({"rewards": [["1"], ["0"]]}, "rewards has type <U1; allowed: real numbers"),
        ({"rewards": [[1.0], [1.0, 2.0]]}, "rewards is not an array"),
        ({"rewards": [[1e300], [0.0]]}, r"rewards\[0, 0\] is 1e\+300; allowed: up to 1e\+100"),
        ({"rewards": [[0.0], [math.nan]]}, r"rewards\[1, 0\] is nan"),
        ({"rewards": [[2.0], [0.0]], "reward_range": (0.0, 1.0)}, r"rewards span \[0.0, 2.0\]"),
    ]:
        fields = {"rewards": zeros, **further}
        with pytest.raises(InputError, match=said):
            LoggedSequences(halves, halves, lengths=[1, 1], **fields)
    log = World(3).log(400, np.random.default_rng(0))
    alone = evaluate_sequences(log, estimators="wpdis")
    assert list(alone.estimates) == ["wpdis"]
    for wrong in (None, (), "best", 5, ["pdis", 3]):
        with pytest.raises(InputError, match="allowed: pdis, wpdis, dr, gain"):
            evaluate_sequences(log, estimators=wrong)


def test_weights_beyond_floats_are_the_largest_and_refused():
    rng = np.random.default_rng(0)
    propensities, target = np.full((400, 2), 0.5), np.full((400, 2), 0.5)
    propensities[7] = 1e-200
    log = LoggedSequences(propensities, target, rng.random((400, 2)) / 2, np.full(400, 2))
    assert log.weights.max() == np.finfo(np.float64).max
    found = evaluate_sequences(log)
    assert found.refused
    assert found.ess == pytest.approx(1.0)


def test_a_step_that_the_target_never_takes_ends_weights_beyond_floats():
    propensities, target = np.full((400, 3), 0.5), np.full((400, 3), 0.5)
    propensities[7, :2], target[7, 2] = 1e-200, 0.0
    log = LoggedSequences(propensities, target, np.zeros((400, 3)), np.full(400, 3))
    assert log.weights[7].tolist() == [5e199, np.finfo(np.float64).max, 0.0]
    assert np.isfinite(evaluate_sequences(log).max_weight)


def test_selections_without_a_step_earn_nothing():
    none = np.ones((300, 0))
    log = LoggedSequences(none, none, none, np.zeros(300, np.int64), q_hat=none, v_hat=none)
    found = evaluate_sequences(log)
    assert [one.value for one in found.estimates.values()] == [0.0] * 4


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_policy_that_logged_gains_exactly_nothing(steps, scale):
    """What rounding leaves of its gain usually misses 0, and half of it is above."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(150, 1_500))
        lengths = rng.integers(1, steps + 1, count)
        there = np.arange(steps) < lengths[:, None]
        p = np.where(there, rng.uniform(0.2, 0.9, (count, steps)), 1.0)
        rewards = np.where(np.arange(steps) == lengths[:, None] - 1, rng.random((count, 1)), 0.0)
        log = LoggedSequences(p, p.copy(), scale * rewards, lengths)
        found = evaluate_sequences(log, estimators="gain")["gain"]
        assert (found.value, found.low, found.high, found.standard_error) == (0.0, 0.0, 0.0, 0.0)
        # One that leaves it a little is weighed as ever.
        nearby = p * rng.choice([0.999, 1.001], p.shape)
        other = replace(log, target=np.where(there, nearby, 1.0))
        assert evaluate_sequences(other, estimators="gain")["gain"].standard_error > 0.0


def test_nothing_is_gained_where_all_earned_the_same_and_nobody_knows_how_much_less():
    rng = np.random.default_rng(0)
    p, ones = np.full((400, 1), 0.5), np.ones((400, 1))
    target = rng.choice([0.4, 0.6], (400, 1))
    log = LoggedSequences(p, target, ones, np.ones(400, np.int64))
    found = evaluate_sequences(log, estimators="gain")["gain"]
    assert found.value == 0.0
    assert found.low < -0.005
