"""Which outcomes count, when a value is there, who is credited, and what a correction changes."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.rewards import Outcome, Reward, credit, evaluate_window, revision
from steersman.spec.reward import Reward as RewardSpec

TERMS = {
    "success": {"weight": 2.0},
    "latency_ms": {"weight": -1.0, "high": 1000},
    "flag": {"weight": -1.0, "missing": 0.0},
}


def spec(**more):
    return RewardSpec.model_validate({"terms": TERMS, "window_s": 60.0, **more})


def seen(declared, outcomes, now, decided_at=100.0):
    return evaluate_window(declared, outcomes, decided_at=decided_at, now=now)


SUCCESS = Outcome("success", 1, at=110.0)
LATENCY = Outcome("latency_ms", 500, at=101.0)
FLAG = Outcome("flag", 1, at=130.0)


def test_first_trigger_scores_once_all_required_terms_are_in_and_revises():
    outcomes = [SUCCESS, LATENCY, FLAG]
    waiting = seen(spec(), outcomes, now=105.0)
    assert (waiting.value, waiting.status, waiting.absent) == (None, "waiting", ("success",))
    first = seen(spec(), outcomes, now=110.0)
    assert (first.value, first.final) == (pytest.approx((2 - 0.5 + 2) / 4), False)
    later = seen(spec(), outcomes, now=159.9)
    assert (later.value, later.final) == (pytest.approx((2 - 0.5 - 1 + 2) / 4), False)
    assert seen(spec(), outcomes, now=160.0).final
    assert seen(spec(), outcomes, now=160.0).value == later.value


def test_window_trigger_waits_for_the_window_to_close():
    declared = spec(trigger="window")
    assert seen(declared, [SUCCESS, LATENCY], now=159.9).status == "waiting"
    assert seen(declared, [SUCCESS, LATENCY], now=159.9).terms == {
        "success": 1.0,
        "latency_ms": 500.0,
    }
    assert seen(declared, [SUCCESS, LATENCY], now=160.0).status == "scored"


def test_outcomes_after_the_window_never_count():
    late = Outcome("success", 1, at=160.1)
    assert seen(spec(), [LATENCY, late], now=1e6).status == "dropped"
    assert seen(spec(missing={"value": 0.0}), [LATENCY, late], now=1e6).value == 0.0
    on_time = Outcome("success", 1, at=160.0)
    assert seen(spec(), [LATENCY, on_time], now=1e6).status == "scored"


def test_nothing_is_assumed_before_the_window_closes():
    declared = spec(missing={"value": 0.5})
    assert seen(declared, [], now=150.0).status == "waiting"
    assert seen(declared, [], now=160.0).status == "assumed"


def test_outcomes_of_a_clock_that_runs_behind_count():
    early = Outcome("latency_ms", 500, at=99.0)
    assert seen(spec(), [SUCCESS, early], now=120.0).status == "scored"


def test_the_latest_outcome_of_a_name_counts():
    wrong, right = Outcome("success", 1, at=105.0), Outcome("success", 0, at=115.0)
    assert seen(spec(), [right, wrong, LATENCY], now=200.0).terms["success"] == 0.0
    assert seen(spec(), [right, wrong, LATENCY], now=110.0).terms["success"] == 1.0
    same_time = [Outcome("success", value, at=105.0) for value in (1, 0, 1)]
    assert seen(spec(), [*same_time, LATENCY], now=200.0).terms["success"] == 1.0


@pytest.mark.parametrize("when", ["decided_at", "now"])
@pytest.mark.parametrize("value", [math.nan, math.inf, None, "now"])
def test_times_are_finite(when, value):
    times = {"decided_at": 100.0, "now": 200.0, when: value}
    with pytest.raises(InputError, match=f"{when} got"):
        evaluate_window(spec(), [], **times)


@pytest.mark.parametrize("outcomes", [None, 3, "success", b"success", {"success": 1}])
def test_outcomes_are_listed(outcomes):
    got = rf"outcomes got {type(outcomes).__name__} .*"
    message = rf"{got}; allowed: a list .*; send \[\] if there are none"
    with pytest.raises(InputError, match=message):
        evaluate_window(spec(), outcomes, decided_at=0.0, now=1.0)
    with pytest.raises(InputError, match=message):
        credit(spec(), {"a": 0.0}, outcomes, now=1.0)
    with pytest.raises(
        InputError, match=r"outcome 1 got str 'success'; .* create one with Outcome"
    ):
        evaluate_window(spec(), [SUCCESS, "success"], decided_at=0.0, now=1.0)


@pytest.mark.parametrize("wrong", [None, 3, "a", b"a", ["a"]])
def test_episodes_need_a_declaration_and_their_decisions(wrong):
    kind = type(wrong).__name__
    with pytest.raises(InputError, match=rf"spec got {kind} .*; allowed: a declared reward"):
        credit(wrong, {"a": 0.0}, [], now=1.0)
    with pytest.raises(InputError, match=rf"spec got {kind} .*; allowed: a declared reward"):
        evaluate_window(wrong, [], decided_at=0.0, now=1.0)
    with pytest.raises(InputError, match=rf"decisions got {kind} .*; allowed: a mapping"):
        credit(spec(), wrong, [], now=1.0)


@pytest.mark.parametrize("name", [None, 3, b"a", ["a"]])
def test_an_outcome_and_its_decision_are_named_by_text(name):
    with pytest.raises(InputError, match=rf"outcome name got {type(name).__name__} .*text"):
        Outcome(name, 1.0, at=1.0)
    if name is not None:
        with pytest.raises(InputError, match=r"decision of outcome 'a' got .*text"):
            Outcome("a", 1.0, at=1.0, decision=name)


@pytest.mark.parametrize(
    "arguments", [("a", math.nan, 1.0), ("a", 1.0, math.inf), ("a", "1", 1.0), ("a", 1.0, None)]
)
def test_an_outcome_is_finite_or_does_not_exist(arguments):
    name, value, at = arguments
    with pytest.raises(InputError, match=r"outcome 'a' got .* finite number"):
        Outcome(name, value, at)
    assert Outcome("a", np.True_, 1) == Outcome("a", 1.0, 1.0)


EVENTS = st.lists(
    st.builds(
        Outcome,
        st.sampled_from(["success", "latency_ms", "flag", "other"]),
        st.floats(-1e300, 1e300),
        st.floats(90, 200),
        st.sampled_from([None, "a", "b"]),
    ),
    max_size=12,
    unique_by=lambda outcome: outcome.at,
)


@pytest.mark.slow
@given(events=EVENTS, data=st.data(), now=st.floats(100, 300), scope=st.sampled_from(["d", "e"]))
def test_order_of_arrival_does_not_matter(events, data, now, scope):
    shuffled = data.draw(st.permutations(events))
    declared = spec(scope={"d": "decision", "e": "episode"}[scope])
    decisions = {"a": 100.0, "b": 120.0}
    found = credit(declared, decisions, events, now=now)
    assert found == credit(declared, decisions, shuffled, now=now)
    assert found == credit(declared, decisions, [*shuffled, *events], now=now)


@pytest.mark.slow
@given(events=EVENTS, now=st.floats(160, 300), later=st.floats(0, 1e6))
def test_a_final_reward_stays(events, now, later):
    assert seen(spec(), events, now) == seen(spec(), events, now + later)


def test_a_decision_is_credited_with_its_own_outcomes():
    outcomes = [
        Outcome("success", 1, 105.0, decision="a"),
        Outcome("latency_ms", 0, 105.0, decision="a"),
        Outcome("success", 0, 130.0, decision="b"),
        Outcome("latency_ms", 1000, 130.0, decision="b"),
        Outcome("flag", 1, 130.0),
    ]
    rewards = credit(spec(), {"a": 100.0, "b": 120.0, "c": 120.0}, outcomes, now=1000.0)
    assert {name: reward.value for name, reward in rewards.items()} == {
        "a": 1.0,
        "b": 0.25,
        "c": None,
    }


def test_an_episode_credits_all_its_decisions_within_their_own_windows():
    outcomes = [
        Outcome("latency_ms", 0, 105.0, decision="a"),
        Outcome("latency_ms", 1000, 125.0, decision="b"),
        Outcome("success", 1, 170.0),
    ]
    declared = spec(scope="episode")
    rewards = credit(declared, {"a": 100.0, "b": 120.0}, outcomes, now=1000.0)
    assert rewards["a"].status == "dropped"  # its window closed at 160
    assert rewards["b"].value == pytest.approx(0.75)
    assert rewards["b"].terms == {"flag": 0.0, "latency_ms": 1000.0, "success": 1.0}


def test_an_episode_without_decisions_credits_nobody():
    assert credit(spec(), {}, [SUCCESS], now=1.0) == {}


def scored(value):
    return Reward(value, "scored" if value is not None else "waiting")


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, None, None),
        (None, 0.75, (0.75, 1.0)),
        (None, 0.0, (0.0, 1.0)),
        (0.75, 0.5, (-0.25, 0.0)),
        (0.75, 0.75, None),
        (0.75, None, (-0.75, -1.0)),
    ],
)
def test_a_revision_is_what_is_left_to_learn(before, after, change):
    assert revision(scored(before), scored(after)) == change
    if before is None:
        assert revision(None, scored(after)) == change


@pytest.mark.parametrize("wrong", [0.5, "scored", {"value": 0.5}, [], object()])
def test_a_revision_is_of_rewards(wrong):
    reward = Reward(0.5, "scored")
    with pytest.raises(InputError, match=r"after got .*; allowed: a steersman\.rewards\.Reward"):
        revision(reward, wrong)
    with pytest.raises(InputError, match="before got"):
        revision(wrong, reward)
    with pytest.raises(InputError, match="after got NoneType"):
        revision(reward, None)


@given(values=st.lists(st.none() | st.integers(0, 64).map(lambda n: n / 64), max_size=8))
def test_revisions_add_up_to_the_last_reward(values):
    steps = [None, *(scored(value) for value in values)]
    changes = [revision(a, b) or (0.0, 0.0) for a, b in pairwise(steps)]
    last = values[-1] if values else None
    assert sum(change for change, _ in changes) == (last or 0.0)
    assert sum(weight for _, weight in changes) == float(last is not None)
