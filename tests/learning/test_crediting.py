"""Credit assignment from event rows, independent of the clock."""

import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.db.rewards import RewardDecision, RewardEvent
from steersman.errors import InputError
from steersman.learning.credit import Course, Credit, credit_of, is_learnable
from steersman.spec.loader import loads
from tests.learning.world import document

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
START = AT.timestamp()
SPEC = loads(document())


def made(**changes):
    row = RewardDecision(
        id=UUID(int=1),
        episode=None,
        spec_hash=bytes(32),
        feature_hash=bytes(32),
        context={},
        action="deep",
        x=None,
        key=None,
        p_kind="exact",
        degraded=False,
        weight=1.0,
        at=AT,
        window_ends=AT + timedelta(seconds=600),
        barred=False,
        revision=0,
        value=None,
        status=None,
        terms=None,
        final=None,
    )
    return row._replace(**changes)


def event(after_s, outcomes=None, **changes):
    row = RewardEvent(UUID(int=1), None, AT + timedelta(seconds=after_s), outcomes, None)
    return row._replace(**changes)


def test_an_outcome_ahead_of_our_clock_has_happened():
    credit = credit_of(SPEC, made(), [event(30, {"success": 1})], now=START + 1)
    assert credit == Credit(1.0, "scored", {"success": 1.0}, final=False)


def test_one_after_the_window_does_not_count_and_does_not_close_it():
    events = [event(30, {"success": 1}), event(601, {"success": 0})]
    assert credit_of(SPEC, made(), events, now=START + 40) == (
        1.0,
        "scored",
        {"success": 1.0},
        False,
    )
    assert credit_of(SPEC, made(), events, now=START + 700).final


def test_what_was_final_stays_final_when_the_clock_steps_back():
    earlier = made(final=True, value=1.0, status="scored")
    credit = credit_of(SPEC, earlier, [event(30, {"success": 0.5})], now=START - 9999)
    assert credit == (0.5, "scored", {"success": 0.5}, True)


def test_the_latest_value_of_a_name_counts():
    events = [event(1, {"success": 0.5}), event(2, {"success": 0.25}), event(2, {"other": 9})]
    assert credit_of(SPEC, made(), events, now=START + 5).value == 0.25


def test_another_action_withdraws_whatever_else_came():
    events = [event(1, {"success": 1}), event(2, action_taken="other")]
    assert credit_of(SPEC, made(), events, now=START + 5) == (
        *(None, "withdrawn", {"success": 1.0}, False),
    )


def test_the_action_that_was_decided_is_no_other():
    same = event(2, action_taken=made().action)
    assert credit_of(SPEC, made(), [event(1, {"success": 1}), same], now=START + 5).value == 1.0
    other = event(3, action_taken="other")
    assert credit_of(SPEC, made(), [same, other], now=START + 5).status == "withdrawn"


def test_another_decisions_other_action_withdraws_nothing():
    events = [event(1, {"success": 1}), event(2, decision=UUID(int=2), action_taken="other")]
    assert credit_of(SPEC, made(), events, now=START + 5).value == 1.0


def test_outcomes_that_are_no_numbers_are_refused():
    with pytest.raises(InputError):
        credit_of(SPEC, made(), [event(1, {"success": "yes"})], now=START + 5)


@pytest.mark.parametrize(
    ("changes", "learnable"),
    [
        ({}, True),
        ({"p_kind": "imported", "weight": 0.1}, True),
        ({"p_kind": "none"}, True),
        ({"p_kind": "client"}, False),
        ({"p_kind": "fallback"}, False),
        ({"degraded": True}, False),
        ({"weight": 0.0}, False),
        ({"barred": True}, False),
    ],
)
def test_what_a_policy_may_learn_from(changes, learnable):
    assert is_learnable(made(**changes)) == learnable


def test_of_a_long_episode_only_what_counts_is_looked_at():
    """A scan of all events for each decision would block other learning."""
    names = {f"outcome {place}": 0.0 for place in range(64)}
    course = Course(event(place % 500, names | {"success": place / 1000}) for place in range(1000))
    looked_at = []
    for place in range(500):
        one = made(id=UUID(int=place), at=AT - timedelta(seconds=place))
        credit = credit_of(SPEC, one, course, now=START - 1000)
        closes = min(499, 600 - place)
        wanted = (500 + closes) / 1000 if closes >= 0 else None
        looked_at.append(credit.value == wanted)
    assert all(looked_at)


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["success", "other"]))), st.data())
def test_a_course_finds_what_a_walk_finds(told, data):
    events = [event(at, {name: place}) for place, (at, name) in enumerate(told)]
    closes = START + data.draw(st.integers(-1, 41))
    walk = {}
    for one in sorted(events, key=lambda one: one.at):
        if one.at.timestamp() <= closes:
            walk.update(one.outcomes)
    found = Course(events).latest(["success", "other", "none"], closes)
    assert {one.name: one.value for one in found} == walk
    newest = [one.at.timestamp() for one in events if one.at.timestamp() <= closes]
    assert Course(events).newest(closes) == max(newest, default=-math.inf)
