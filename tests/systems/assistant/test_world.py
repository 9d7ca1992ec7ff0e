"""What a choice sees, and what comes of it."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.assistant.history import TOOL_FEATURES, lead
from steersman_systems.assistant.routes import ROUTES, Deep, guardian_flag


def column(features, name):
    return features[:, TOOL_FEATURES.index(name)]


@pytest.mark.slow
def test_without_a_past_the_fused_feature_ranks_as_the_engines_do(world):
    history = world.history()
    right = [
        world.tool_right(i, world.shortlist(i)[column(x, "fused").argmax()])
        for i in range(len(world))
        for x in [world.tool_features(i, history)]
    ]
    assert np.mean(right) == pytest.approx(world.recording.figures()["fused"], abs=0.002)


def test_shortlists_are_in_the_order_of_the_fused_score(world):
    history = world.history()
    for i in range(0, len(world), 20):
        assert (np.diff(column(world.tool_features(i, history), "fused")) <= 1e-3).all()


def test_features_are_finite_and_of_order_one_with_and_without_a_past(world):
    history = world.history()
    for i in range(300):
        features = world.tool_features(i, history)
        assert features.shape == (len(world.shortlist(i)), len(TOOL_FEATURES))
        assert np.isfinite(features).all()
        assert np.abs(features).max() <= 1.0 + 1e-3
        tool = world.shortlist(i)[column(features, "fused").argmax()]
        history.add(int(tool), world.embedding(i), right=world.tool_right(i, tool))


def test_reading_features_changes_nothing(world):
    history = world.history()
    history.add(int(world.shortlist(3)[0]), world.embedding(3), right=True)
    first = world.tool_features(3, history)
    np.testing.assert_array_equal(first, world.tool_features(3, history))


def test_a_success_speaks_for_the_tool_on_similar_requests_and_a_failure_against_it(world):
    tool = int(world.shortlist(0)[0])
    before = world.history()
    served, failed = world.history(), world.history()
    served.add(tool, world.embedding(0), right=True)
    failed.add(tool, world.embedding(0), right=False)
    rows = [world.tool_features(0, history)[0] for history in (failed, before, served)]
    for name in ("success_rate", "similarity", "neighbour_share", "neighbour_similarity"):
        low, middle, high = (row[TOOL_FEATURES.index(name)] for row in rows)
        assert low <= middle < high


def test_the_past_of_one_tool_leaves_the_scores_of_the_others(world):
    history, tools = world.history(), world.shortlist(0)
    before = world.tool_features(0, history)
    history.add(int(tools[1]), world.embedding(0), right=True)
    after = world.tool_features(0, history)
    others = np.arange(len(tools)) != 1
    for name in ("success_rate", "similarity", "neighbour_share", "neighbour_similarity"):
        np.testing.assert_array_equal(column(before, name)[others], column(after, name)[others])


def test_memory_is_bounded_and_forgets_the_oldest(world):
    history, tool = world.history(), int(world.shortlist(0)[0])
    for _ in range(64):
        history.add(tool, world.embedding(0), right=True)
    full = history.summary(np.array([tool]), world.embedding(0))
    for _ in range(64):
        history.add(tool, world.embedding(0), right=False)
    empty = history.summary(np.array([tool]), world.embedding(0))
    assert history.uses(tool) == 128
    assert full[0, 2] > 0.9
    assert empty[0, 2] == 0.0


UNIT = np.eye(384, dtype=np.float32)[0]


@pytest.mark.parametrize(
    ("tool", "embedding", "says"),
    [
        (-1, UNIT, r"0\.\.728"),
        (729, UNIT, r"0\.\.728"),
        (0, np.zeros(3), "embedding"),
        (0, np.full(384, np.nan), "embedding"),
    ],
)
def test_history_with_a_bad_tool_or_embedding_names_it(world, tool, embedding, says):
    with pytest.raises(InputError, match=says):
        world.history().add(tool, embedding, right=True)


def test_lead_of_a_tie_is_zero():
    assert lead(np.array([1.0, 1.0, 0.0])).tolist() == [0.0, 0.0, -1.0]
    assert lead(np.array([1.0])).tolist() == [0.0]


def test_context_has_what_the_route_needs(world):
    for i in range(0, len(world), 50):
        context = world.context(i)
        assert set(context) == {
            "text", "intent", "language", "text_len", "confidence", "score_gap", "dense_gap",
            "agreement",
        }  # fmt: skip
        assert 0 <= context["score_gap"] <= 1
        assert context["agreement"] in (0.0, 1.0)
        assert -1 <= context["confidence"] <= 1


def test_engines_do_not_agree_where_one_of_them_knows_no_word(world):
    mute = np.flatnonzero(~world.recording.bm25.any(axis=1)).tolist()
    assert {world.context(i)["language"] for i in mute} == {"cjk", "hangul", "thai"}
    assert not any(world.context(i)["agreement"] for i in mute)
    assert not any(world.tool_right(i, world.bm25_best(i)) for i in mute)
    for i in set(range(0, len(world), 50)) - set(mute):
        by_meaning = world.recording.shortlist[i, world.recording.dense[i].argmax()]
        assert world.context(i)["agreement"] == (world.bm25_best(i) == by_meaning)


def test_languages_are_told_apart_by_script(world):
    seen = {world.context(i)["language"] for i in range(len(world))}
    assert {"latin", "cjk", "hangul"} <= seen


def test_micro_is_bm25_and_planner_is_the_tool_policy(world):
    deep = Deep()
    right = {
        "micro": [world.route_right(i, "micro", planned=-1, deep=deep) for i in range(len(world))],
        "planner": [
            world.route_right(i, "planner", planned=int(world.recording.truth[i]), deep=deep)
            for i in range(len(world))
        ],
    }
    assert np.mean(right["micro"]) == pytest.approx(world.recording.figures()["bm25"], abs=1e-3)
    assert all(right["planner"])


@pytest.mark.parametrize("worth", [0.0, 0.5, 0.7, 1.0])
def test_escalating_is_right_as_often_as_it_is_worth(world, worth):
    deep = Deep(worth=worth)
    right = [world.route_right(i, "deep", planned=0, deep=deep) for i in range(len(world))]
    assert np.mean(right) == pytest.approx(worth, abs=0.04)


def test_what_is_right_at_a_worth_is_right_at_a_larger_one(world):
    for request in world.catalogue.requests:
        assert Deep(worth=0.5).right(request.id) <= Deep(worth=0.7).right(request.id)


def test_deep_takes_longer_and_costs_more(world):
    deep = Deep()
    for i in range(100):
        micro, planner, dear = (world.latency_ms(i, route, deep=deep) for route in ROUTES)
        assert micro == planner < 1000
        assert 1000 <= dear - planner <= 2000
        assert world.cost_usd(i, "deep", deep=deep) > 1000 * world.cost_usd(i, "micro", deep=deep)


@pytest.mark.parametrize(
    "bad",
    [{"worth": 1.1}, {"worth": float("nan")}, {"low_ms": -1.0}, {"low_ms": 9e9}, {"cost_usd": -1}],
)
def test_impossible_escalations_are_refused(bad):
    with pytest.raises(InputError):
        Deep(**bad)


def test_the_guardian_objects_to_what_is_too_heavy():
    allowed = {
        state: [route for route in ROUTES if not guardian_flag(state, route)]
        for state in ("normal", "brownout", "emergency")
    }
    assert allowed == {
        "normal": ["micro", "planner", "deep"],
        "brownout": ["micro", "planner"],
        "emergency": ["micro"],
    }


def test_asking_takes_no_machine_time_and_has_no_price():
    ask = Deep.ask(0.7)
    assert ask.latency_ms("anything") == 0.0
    assert ask.cost_usd == 0.0
    assert ask.right("anything") == Deep(worth=0.7).right("anything")
