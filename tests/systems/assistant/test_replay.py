"""Replays: what is logged is what happened, and what is learned is learned from it alone."""

import numpy as np
import pytest
from scipy.stats import norm

from steersman.errors import DataError, InputError
from steersman.ope import evaluate
from steersman_systems.assistant import choosers
from steersman_systems.assistant.consequences import Consequences
from steersman_systems.assistant.points import load_points
from steersman_systems.assistant.replay import replay
from steersman_systems.assistant.routes import ROUTES, Deep
from steersman_systems.assistant.stream import draw_stream
from steersman_systems.assistant.summary import by_tool_use, summarise

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def points():
    return load_points()


@pytest.fixture(scope="module")
def stream(world):
    return draw_stream(world, np.random.default_rng(0))


@pytest.fixture(scope="module")
def consequences(world, points):
    return Consequences(world, points, Deep())


@pytest.fixture(scope="module")
def logs(world, stream, consequences, points):
    sets = {
        "learned": choosers.learned(points),
        "rules": choosers.rules(points),
        "oracle": choosers.oracle(),
    }
    return {
        name: replay(world, consequences, stream, policies, np.random.default_rng(1), keep=True)
        for name, policies in sets.items()
    }


def test_a_stream_brings_every_request_and_repeats_some(world, stream):
    assert set(stream.requests.tolist()) == set(range(len(world)))
    assert len(stream) > len(world) == stream.first_seen.sum()
    assert (np.diff(stream.times_s) >= 0).all()


def test_the_tiers_know_a_text_only_after_it_came(stream):
    for place in np.flatnonzero(stream.first_seen)[:50]:
        lookup = stream.glances[place].lookups["bypass"]
        assert not lookup.hit
    assert not any(lookup.hit for lookup in stream.glances[0].lookups.values())


def test_every_arrival_is_answered_and_every_reward_within_0_and_1(logs, stream):
    for log in logs.values():
        assert len(log) == len(stream)
        assert [a.request for a in log.answered] == stream.requests.tolist()
        assert (log.rewards >= 0).all()
        assert (log.rewards <= 1).all()


def test_every_decision_carries_the_probability_it_was_drawn_with(logs):
    for decision in logs["learned"].decisions:
        drawn = decision.drawn
        assert drawn.distribution.sum() == pytest.approx(1.0, abs=1e-9)
        assert drawn.propensity == drawn.distribution[drawn.index] > 0
        assert len(drawn.distribution) == len(decision.seen.eligible) == len(decision.seen.truth())
        assert decision.action == decision.seen.eligible[drawn.index]


def test_floors_are_kept_at_every_declared_point(logs, points):
    for decision in logs["learned"].decisions:
        floor = getattr(points, decision.point).floor
        least = decision.drawn.distribution.min()
        assert least >= floor / len(decision.seen.eligible) - 1e-12


def test_actions_are_drawn_with_their_probabilities(logs):
    for point in ("cache", "route", "tool"):
        rows = logs["learned"].of(point)
        likely = np.array([row.drawn.distribution.max() for row in rows])
        taken = np.array([row.drawn.index == row.drawn.distribution.argmax() for row in rows])
        z = (taken - likely).sum() / np.sqrt((likely * (1 - likely)).sum() + 1e-12)
        assert 2 * norm.sf(abs(z)) > 1e-4


def test_a_hit_ends_the_request_and_only_the_planner_decides_on_tools(logs):
    log = logs["learned"]
    for place, answered in enumerate(log.answered):
        made = [decision.point for decision in log.at(place)] if place < 300 else None
        if made is None:
            continue
        wanted = ["cache"]
        if not answered.hit:
            wanted.append("route")
        if answered.route == "planner":
            wanted.append("tool")
        assert made == wanted


def test_the_reward_of_a_taken_action_is_its_truth_where_nothing_is_left_to_chance(logs):
    for decision in logs["learned"].decisions:
        truth = decision.seen.truth()[decision.drawn.index]
        if decision.point == "tool" or decision.action in {"micro", "deep"}:
            assert decision.reward == pytest.approx(truth, abs=1e-12)
        assert decision.seen.truth().min() - 1e-12 <= truth <= 1.0


def test_expected_rewards_are_unbiased_for_what_came(logs):
    for point in ("cache", "route"):
        rows = logs["learned"].of(point)
        gaps = np.array([row.reward - row.seen.truth()[row.drawn.index] for row in rows])
        assert abs(gaps.mean()) < 4 * gaps.std() / np.sqrt(len(gaps)) + 1e-12


@pytest.mark.parametrize("choice", [("l1", "planner"), ("l2", "planner"), ("l1", "deep")])
def test_learning_beats_fixed_choices(world, stream, consequences, logs, choice):
    log = replay(world, consequences, stream, choosers.fixed(*choice), np.random.default_rng(0))
    assert logs["learned"].rewards.mean() > log.rewards.mean() + 0.02


def test_learning_beats_rules_and_an_oracle_beats_learning(logs):
    learned, rules, oracle = (logs[name].rewards.mean() for name in ("learned", "rules", "oracle"))
    assert rules + 0.04 < learned < oracle


def test_success_grows_over_the_stream_with_the_cache_and_deep_left_out(
    world, stream, consequences, points
):
    policies = choosers.fixed("bypass", "planner")
    policies = choosers.Policies(
        "tools", policies.cache, policies.route, choosers.learned(points).tool
    )
    log = replay(world, consequences, stream, policies, np.random.default_rng(2))
    success = log.outcome("success")
    default = world.recording.figures()["fused"]
    assert success.mean() > default + 0.05
    assert success[-500:].mean() > success[:200].mean() + 0.03
    familiar = by_tool_use(world, stream, log)
    assert familiar["head"]["success"] > familiar["tail"]["success"]


def test_the_oracle_sees_the_ceiling(logs, world):
    # Only requests whose right tool is not on the shortlist are left to an escalation.
    figures = summarise(logs["oracle"])
    assert figures["success"] > world.recording.figures()["shortlist"]
    assert figures["wrong_hit_rate"] == 0.0


def test_the_same_seed_gives_the_same_log(world, stream, consequences, points, logs):
    first = logs["learned"]
    policies = choosers.learned(points)
    second = replay(world, consequences, stream, policies, np.random.default_rng(1))
    np.testing.assert_array_equal(first.rewards, second.rewards)
    assert first.answered == second.answered


def test_policies_of_two_arms_never_meet_in_the_tiers(world, stream):
    again = draw_stream(world, np.random.default_rng(0))
    assert again.glances == stream.glances


def test_off_policy_estimates_bracket_the_exact_truth(logs):
    log = logs["learned"]
    rows = log.of("route")
    for route in range(len(ROUTES)):
        target = np.zeros((len(rows), len(ROUTES)))
        target[:, route] = 1.0
        mixed = 0.9 * np.stack([row.drawn.distribution for row in rows]) + 0.1 * target
        report = evaluate(log.logged_data("route", mixed), estimators=("snips",), level=0.999)
        truth = log.truth("route", mixed)
        assert report["snips"].low <= truth <= report["snips"].high


def test_the_simpler_rival_learns_per_intent_and_tool(world, consequences, points, stream):
    policies = choosers.beta_tools(points, world)
    log = replay(world, consequences, stream, policies, np.random.default_rng(3), keep=True)
    row = log.of("tool")[-1]
    assert row.drawn.distribution.sum() == pytest.approx(1.0)
    assert row.drawn.x == row.seen.context["intent"]


def test_points_without_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"folder with cache\.yaml, route\.yaml and tool\.yaml"):
        load_points(tmp_path / "nowhere")


def test_streams_shorter_than_the_requests_are_refused(world):
    with pytest.raises(InputError, match="1311"):
        draw_stream(world, np.random.default_rng(0), n_arrivals=10)
