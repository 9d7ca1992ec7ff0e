"""What lies between two snapshots: parameters, traffic, off-policy difference; in three forms."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.points.policy_factory import load_policy
from steersman.policies import BetaThompson, JointSquareCB, LinTS, LinUCB
from steersman.registry.description import Published, describe
from steersman.snapshots.comparison import diff
from steersman.snapshots.reference_log import Reference

AT = datetime(2026, 1, 1, tzinfo=UTC)
ARMS = ["micro", "planner", "fused"]
ROWS = 3000


def _published(policy, version="0.1.0", point="route", **further):
    state = policy.state()
    named = {"tenant": "acme", "skill": "assistant", "point": point, "version": version}
    return Published(describe(state, **named, created_at=AT, **further), state)


def _world(rows=ROWS, seed=0):
    """Return contexts, uniformly drawn actions and rewards; the best arm depends on the context."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([np.ones(rows), rng.normal(size=rows)])
    drawn = rng.integers(0, 3, rows)
    best = np.where(contexts[:, 1] > 0.0, 1, 0)
    rewards = (rng.random(rows) < np.where(drawn == best, 0.7, 0.3)).astype(float)
    return contexts, drawn, rewards


def _reference(**further):
    contexts, drawn, rewards = _world()
    names = [ARMS[i] for i in drawn]
    return Reference(contexts, names, np.full(ROWS, 1 / 3), rewards, adaptive=False, **further)


def _learned(rows, **parameters):
    policy = LinTS(ARMS, dim=2, floor=0.1, **parameters)
    contexts, drawn, rewards = _world(1000, seed=1)
    policy.learn_batch(contexts[:rows], [ARMS[i] for i in drawn[:rows]], rewards[:rows])
    return policy


@pytest.mark.slow
def test_learning_more_is_a_patch_that_moves_traffic_and_is_worth_something():
    first, second = _published(_learned(0)), _published(_learned(1000), "0.1.1", samples=1000)
    found = diff(first, second, _reference())
    assert found.change == "patch"
    assert found.about["samples"].after == 1000
    assert not found.parameters
    assert found.traffic.rows == ROWS
    assert {shift.action for shift in found.traffic.shifts} == set(ARMS)
    for side in ("before", "after"):
        total = sum(getattr(shift, side) for shift in found.traffic.shifts)
        assert total == pytest.approx(1.0)
    assert found.traffic.shifts[0].action == "fused"  # never best, and now hardly ever chosen
    assert found.traffic.shifts[0].after < 0.1
    assert 0.3 < found.traffic.moved < 0.8
    policy, contexts = _learned(1000), _world()[0]
    best = np.where(contexts[:, 1] > 0.0, 1, 0)
    chosen = np.array([policy.distribution(x)[i] for x, i in zip(contexts, best, strict=True)])
    truth = 0.4 * float(chosen.mean() - 1 / 3)
    assert found.off_policy.low < truth < found.off_policy.high
    assert found.off_policy.low > 0.1
    assert min(found.off_policy.ess) > 1000


def test_two_equal_snapshots_differ_in_nothing():
    one = _published(_learned(1000))
    found = diff(one, one, _reference())
    assert (found.change, found.about, found.parameters) == ("patch", {}, {})
    assert (found.traffic.moved, found.traffic.flipped) == (0.0, 0.0)
    assert (found.off_policy.delta, found.off_policy.low, found.off_policy.high) == (0, 0, 0)


def test_other_parameters_and_actions_are_minor_and_another_algorithm_is_major():
    first = _published(_learned(10))
    found = diff(first, _published(_learned(10, noise_var=0.5), "0.2.0"))
    assert found.change == "minor"
    assert (found.parameters["noise_var"].before, found.parameters["noise_var"].after) == (0.1, 0.5)
    more = diff(first, _published(LinTS([*ARMS[1:], "ask"], dim=2, floor=0.1), "0.2.0"))
    assert (more.change, more.added, more.removed) == ("minor", ("ask",), ("micro",))
    other = diff(first, _published(LinUCB(ARMS, dim=2), "1.0.0"))
    assert other.change == "major"
    assert other.parameters["noise_var"].after is None


def test_what_both_have_lost_is_in_the_log_still():
    """An action was taken out two versions ago, and the log is older than that."""
    kept = ARMS[1:]
    first = _published(LinTS(kept, dim=2, floor=0.1), "0.2.0")
    learned = LinTS(kept, dim=2, floor=0.1)
    contexts, drawn, rewards = _world(1000, seed=1)
    for x, i, reward in zip(contexts, drawn, rewards, strict=True):
        if i > 0:
            learned.learn(x, ARMS[i], reward)
    found = diff(first, _published(learned, "0.2.1"), _reference())
    assert found.traffic.rows == ROWS
    assert {shift.action for shift in found.traffic.shifts} == set(kept)
    policy = load_policy(learned.state())
    planner = np.array([policy.distribution(x)[0] for x in _world()[0]])
    means = np.where(_world()[0][:, 1] > 0.0, 0.7, 0.3)
    truth = float(((planner - 0.5) * (means - 0.3)).mean())
    assert found.off_policy.low < truth < found.off_policy.high


def test_requests_that_only_the_fallback_would_answer_are_left_out():
    first, second = (
        _published(LinTS(names, dim=2, floor=0.1), version)
        for names, version in ((ARMS, "0.1.0"), (ARMS[1:], "0.2.0"))
    )
    actions = _reference().actions
    alone = [actions[row] == "micro" and row % 10 == 0 for row in range(ROWS)]
    eligible = [["micro"] if it else None for it in alone]
    found = diff(first, second, _reference(eligible=eligible, units=list(range(ROWS))))
    assert found.traffic.rows == ROWS - sum(alone) < ROWS
    assert found.off_policy.rows == found.traffic.rows
    with pytest.raises(InputError, match="in no request of the reference log"):
        diff(first, second, _reference(eligible=[["micro"]] * ROWS))


def test_another_encoding_takes_contexts_of_its_own():
    wide = LinTS(ARMS, dim=3, floor=0.1)
    contexts = _world()[0]
    wider = np.column_stack([contexts, contexts[:, 1] ** 2])
    pair = _published(_learned(10)), _published(wide, "0.2.0", feature_hash="b" * 32)
    found = diff(*pair, _reference(other_contexts=wider))
    assert found.about["dim"].after == 3
    with pytest.raises(InputError, match="row 0 of the reference log cannot be decided"):
        diff(*pair, _reference())


def test_a_snapshot_that_lost_an_action_gives_it_nothing():
    second = _published(LinTS(ARMS[:2], dim=2, floor=0.1), "0.2.0")
    found = diff(_published(_learned(0)), second, _reference(eligible=[ARMS] * ROWS))
    shares = {shift.action: shift.after for shift in found.traffic.shifts}
    assert shares["fused"] == 0.0
    assert not found.off_policy.refused


def test_evidence_is_refused_with_reasons_and_traffic_is_still_shown():
    contexts, drawn, rewards = _world(60)
    few = Reference(contexts, [ARMS[i] for i in drawn], np.full(60, 1 / 3), rewards)
    found = diff(_published(_learned(0)), _published(_learned(500), "0.1.1"), few)
    assert found.off_policy.refused
    assert found.off_policy.delta is None
    assert any("second snapshot: " in reason for reason in found.off_policy.reasons)
    assert found.traffic.rows == 60
    assert "refused: " in found.text()


@pytest.mark.slow
def test_rewards_that_never_came_count_for_traffic_alone():
    contexts, drawn, rewards = _world()
    rewards[::2] = np.nan
    names = [ARMS[i] for i in drawn]
    log = Reference(contexts, names, np.full(ROWS, 1 / 3), rewards, adaptive=False)
    found = diff(_published(_learned(0)), _published(_learned(500), "0.1.1"), log)
    assert (found.traffic.rows, found.off_policy.rows) == (ROWS, ROWS // 2)
    none = Reference(contexts, names, np.full(ROWS, 1 / 3), np.full(ROWS, np.nan))
    found = diff(_published(_learned(0)), _published(_learned(500), "0.1.1"), none)
    assert found.off_policy.reasons == ("no decision of the reference log has a reward",)


@pytest.mark.slow
def test_keys_are_contexts_too():
    rng = np.random.default_rng(0)
    keys = ["faq" if coin else "refund" for coin in rng.integers(0, 2, 2000)]
    drawn = rng.integers(0, 2, 2000)
    rewards = (rng.random(2000) < np.where(drawn == [key == "faq" for key in keys], 0.8, 0.2)) * 1.0
    names = [("a", "b")[i] for i in drawn]
    learned = BetaThompson(["a", "b"], floor=0.1)
    learned.learn_batch(keys[:200], names[:200], rewards[:200])
    log = Reference(keys, names, np.full(2000, 0.5), rewards, adaptive=False)
    found = diff(_published(BetaThompson(["a", "b"], floor=0.1)), _published(learned, "0.1.1"), log)
    assert found.off_policy.low > 0.2


def test_open_candidates_are_compared_by_place():
    rng = np.random.default_rng(0)
    rows, eligible, features, actions, rewards = 1500, [], [], [], []
    for row in range(rows):
        names = [f"tool {(row + k) % 7}" for k in range(3)]
        table = rng.normal(size=(3, 2))
        place = int(rng.integers(3))
        eligible.append(names)
        features.append(table)
        actions.append(names[place])
        rewards.append(float(rng.random() < 1 / (1 + np.exp(-2 * table[place, 0]))))
    learned = JointSquareCB((), dim=2, floor=0.1)
    for row in range(300):
        learned.learn(features[row][eligible[row].index(actions[row])], actions[row], rewards[row])
    log = Reference(
        [None] * rows,
        actions,
        np.full(rows, 1 / 3),
        rewards,
        eligible=eligible,
        features=features,
        adaptive=False,
        units=np.arange(rows) // 3,
    )
    found = diff(_published(JointSquareCB((), dim=2, floor=0.1)), _published(learned, "0.1.1"), log)
    assert found.off_policy.estimator == "snips"
    assert found.off_policy.low > 0.05
    assert len(found.traffic.shifts) == 7
    with pytest.raises(InputError, match="open candidates"):
        diff(_published(learned), _published(_learned(0), "0.2.0"), log)


def test_features_belong_to_names_and_only_joint_models_take_them():
    rng = np.random.default_rng(0)
    rows, names = 400, ["a", "b", "c"]
    features = rng.normal(size=(rows, 3, 2))
    drawn = rng.integers(0, 3, rows)
    rewards = rng.random(rows)
    log = Reference(
        features[:, 0, :],
        [names[i] for i in drawn],
        np.full(rows, 1 / 3),
        rewards,
        eligible=[names] * rows,
        features=list(features),
        adaptive=False,
    )
    joint = JointSquareCB(names, dim=2, floor=0.1)
    joint.learn_batch(features[:, 2, :], ["c"] * rows, features[:, 2, 0])
    turned = JointSquareCB(["c", "a"], dim=2, floor=0.1)
    turned.learn_batch(features[:, 2, :], ["c"] * rows, features[:, 2, 0])
    fewer = diff(_published(joint), _published(turned, "0.2.0"), log)
    assert next(shift for shift in fewer.traffic.shifts if shift.action == "b").after == 0.0
    assert fewer.traffic.flipped < 0.45  # only where b was likeliest
    other = diff(_published(joint), _published(LinTS(names, dim=2, floor=0.1), "1.0.0"), log)
    assert (other.change, other.traffic.rows) == ("major", rows)


def test_text_is_for_people_and_json_for_programs():
    found = diff(
        _published(_learned(0)), _published(_learned(800, prior_var=2.0), "0.2.0"), _reference()
    )
    lines = found.text().splitlines()
    assert lines[0] == "0.1.0 → 0.2.0  (minor: other parameters or features)"
    assert max(map(len, lines)) <= 100
    for word in ("prior_var", "planner", "difference", "effective sample size"):
        assert word in found.text()
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["parameters"] == {"prior_var": {"before": 1.0, "after": 2.0}}
    assert document["off_policy"]["delta"] == found.off_policy.delta
    assert document["traffic"]["actions"][0]["action"] == found.traffic.shifts[0].action
    assert diff(_published(_learned(0)), _published(_learned(0))).to_json()["traffic"] is None


def test_control_characters_of_names_do_not_reach_the_terminal():
    odd = "evil\x1b[2J"
    text = diff(_published(_learned(0)), _published(LinTS([*ARMS, odd], dim=2))).text()
    assert "\x1b" not in text
    assert "+ action evil?[2J" in text


def test_many_actions_are_shortened_in_text_and_whole_in_json():
    names = [f"tool_{i:03}" for i in range(60)]
    log = Reference(
        np.ones((300, 1)), [names[i % 60] for i in range(300)], np.full(300, 1 / 60), np.ones(300)
    )
    found = diff(_published(LinTS(names, dim=1)), _published(LinTS(names, dim=1), "0.1.1"), log)
    assert "and 40 more actions" in found.text()
    assert len(found.to_json()["traffic"]["actions"]) == 60


@pytest.mark.slow
def test_the_picture_shows_traffic_and_difference(tmp_path):
    pytest.importorskip("matplotlib")
    found = diff(_published(_learned(0)), _published(_learned(800), "0.1.1"), _reference())
    for name in ("one.png", "two.png"):
        found.picture(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with pytest.raises(InputError, match="reference log"):
        diff(_published(_learned(0)), _published(_learned(0))).picture(tmp_path / "no.png")
    for name in ("no.xyz", "no"):
        with pytest.raises(InputError, match=r"allowed endings: .*\.png, .*\.svg"):
            found.picture(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "two.png"]


def test_snapshots_of_different_points_are_not_compared():
    with pytest.raises(InputError, match="are different decision points"):
        diff(_published(_learned(0)), _published(_learned(0), point="model"))


def test_a_log_that_does_not_fit_is_named():
    contexts, drawn, rewards = _world(30)
    names = [ARMS[i] for i in drawn]
    with pytest.raises(InputError, match="rewards have 29 rows"):
        Reference(contexts, names, np.full(30, 1 / 3), rewards[:29])
    with pytest.raises(InputError, match="empty"):
        Reference([], [], [], [])
    other = JointSquareCB((), dim=2)
    log = Reference(
        [None] * 30, ["else", *names[1:]], np.full(30, 1 / 3), rewards,
        eligible=[ARMS] * 30, features=[np.zeros((3, 2))] * 30,
    )  # fmt: skip
    with pytest.raises(InputError, match="row 0 of the reference log chose 'else'"):
        diff(_published(other), _published(other), log)
    # What no snapshot knows they never draw: of such rows alone nothing is told.
    log = _reference()
    strangers = Reference(log.contexts, ["else"] * ROWS, log.propensities, log.rewards)
    found = diff(_published(_learned(0)), _published(_learned(10)), strangers)
    assert found.off_policy.refused


def test_an_action_that_the_log_never_drew_has_no_evidence():
    contexts, drawn, rewards = _world(1200)
    names = [ARMS[i % 2] for i in drawn]
    log = Reference(contexts, names, np.full(1200, 0.5), rewards, adaptive=False)
    second = _published(LinTS([*ARMS[:2], "new"], dim=2, floor=0.03), "0.2.0")
    first = _published(LinTS(ARMS[:2], dim=2, floor=0.03))
    found = diff(first, second, log)
    assert found.off_policy.refused
    (reason,) = [one for one in found.off_policy.reasons if "could not have drawn" in one]
    assert reason.startswith("second snapshot: ")
    assert {shift.action for shift in found.traffic.shifts} == {*ARMS[:2], "new"}
