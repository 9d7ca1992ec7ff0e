"""One number per unit, entered when its window closes, whatever the order of what comes in."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
from steersman.rollouts.units import AnalysedDecision, Units, value_of

GUARDRAILS = (
    PlannedGuardrail("reward", "reward", better="higher"),
    PlannedGuardrail("errors", "errors"),
    PlannedGuardrail("late", "above", "latency_ms", 900.0),
)
PLAN = RolloutPlan(
    "s",
    (PlannedStage("canary", 0.05, 1, 0.0),),
    GUARDRAILS,
    unit_window_s=60.0,
    reward_window_s=30.0,
)


def seen(unit, at, reward=1.0, arm="control", latency=100.0, failed=False):
    return AnalysedDecision(unit, arm, at, reward, {"latency_ms": latency}, failed)


@pytest.mark.parametrize(
    ("guardrail", "outcomes", "value"),
    [
        (PlannedGuardrail("g", "above", "ms", 900.0), {"ms": 900.0}, 0.0),
        (PlannedGuardrail("g", "above", "ms", 900.0), {"ms": 900.1}, 1.0),
        (PlannedGuardrail("g", "below", "score", 0.5), {"score": 0.4}, 1.0),
        (PlannedGuardrail("g", "mean", "usd", high=0.1), {"usd": 0.025}, 0.25),
        (PlannedGuardrail("g", "mean", "usd", high=0.1), {"usd": 7.0}, 1.0),
        (PlannedGuardrail("g", "mean", "usd", low=-1.0), {"usd": 0.0}, 0.5),
        (PlannedGuardrail("g", "mean", "usd"), {"usd": math.nan}, None),
        (PlannedGuardrail("g", "above", "ms", 900.0), {"ms": math.inf}, None),
        (PlannedGuardrail("g", "mean", "usd"), {}, None),
        (PlannedGuardrail("reward", "reward"), {"reward": 1.0}, None),
        (PlannedGuardrail("errors", "errors"), {}, 0.0),
        (PlannedGuardrail("errors", "errors"), {"error": 1.0}, 1.0),
        (PlannedGuardrail("errors", "errors"), {"error": math.nan}, 0.0),
    ],
)
def test_the_number_of_a_decision(guardrail, outcomes, value):
    assert value_of(guardrail, AnalysedDecision("u", "control", 0.0, None, outcomes)) == value


def test_what_the_arm_could_not_answer_is_an_error():
    assert value_of(GUARDRAILS[1], seen("u", 0.0, failed=True)) == 1.0


def test_a_unit_is_the_mean_of_its_decisions_within_its_window():
    units = Units(PLAN)
    for at, reward in ((0.0, 1.0), (10.0, 0.0), (59.9, 0.5), (60.0, 0.0)):
        units.add(seen("u", at, reward))
    assert units.close(89.99) == 0
    assert units.metrics()["reward"].control.n == 0
    assert units.close(90.0) == 1
    assert units.metrics()["reward"].control.mean == 0.5
    # It is closed for good: a regular user is one piece of evidence.
    units.add(seen("u", 500.0, 0.0))
    assert units.close(1e9) == 0
    assert (units.arrived, units.closed) == ((0, 1), (0, 1))


def test_decisions_without_a_number_are_left_out_and_their_units_counted():
    units = Units(PLAN)
    units.add(seen("a", 0.0, None))
    units.add(seen("b", 0.0, None))
    units.add(seen("b", 1.0, 0.25))
    units.close(100.0)
    assert (units.closed, units.metrics()["reward"].control.n) == ((0, 2), 1)
    assert units.metrics()["reward"].control.mean == 0.25
    assert units.metrics()["late"].control.n == 2


def test_units_of_a_step_are_those_that_came_in_it():
    units = Units(PLAN)
    for place, at in enumerate((0.0, 10.0, 20.0)):
        units.add(seen(f"u{place}", at, arm="candidate"))
    units.add(seen("v", 15.0))
    units.close(1000.0)
    assert units.closed_since(10.0) == (2, 1)
    assert units.closed_since(21.0) == (0, 0)


decisions = st.lists(
    st.tuples(
        st.integers(0, 15),
        st.floats(0, 300, allow_nan=False),
        st.none() | st.floats(0, 1),
        st.floats(0, 2000) | st.just(math.nan),
        st.booleans(),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(decisions)
def test_it_is_what_a_second_implementation_says_however_often_it_is_closed(rows):
    rows.sort(key=lambda row: row[1])
    often, once = Units(PLAN), Units(PLAN)
    for unit, at, reward, latency, failed in rows:
        arm = "candidate" if unit % 2 else "control"
        for units in (often, once):
            units.add(seen(str(unit), at, reward, arm, latency, failed))
        often.close(at)
    often.close(1e6)
    once.close(1e6)
    for place, guardrail in enumerate(GUARDRAILS):
        for side, odd in (("candidate", 1), ("control", 0)):
            values = []
            for unit in range(odd, 16, 2):
                own = [row for row in rows if row[0] == unit]
                within = [row for row in own if row[1] < own[0][1] + 60.0] if own else []
                numbers = {
                    0: [row[2] for row in within if row[2] is not None],
                    1: [float(row[4]) for row in within],
                    2: [float(row[3] > 900) for row in within if not math.isnan(row[3])],
                }[place]
                values += [np.mean(numbers)] if numbers else []
            for units in (often, once):
                moments = getattr(units.metrics()[guardrail.name], side)
                assert moments.n == len(values)
                if values:
                    assert moments.mean == pytest.approx(np.mean(values), abs=1e-12)
                if len(values) > 1:
                    assert moments.variance == pytest.approx(np.var(values, ddof=1), abs=1e-12)
    assert often.closed == once.closed == often.arrived


def test_the_same_decisions_give_the_same_bits_whenever_they_are_read():
    rng = np.random.default_rng(0)
    rows = [seen(f"u{rng.integers(200)}", float(at), float(rng.random())) for at in range(2000)]
    early, late = Units(PLAN), Units(PLAN)
    for row in rows:
        early.add(row)
        early.close(row.at)
        late.add(row)
    early.close(1e5)
    late.close(1e5)
    assert early.metrics() == late.metrics()


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (seen("u", 0.0, arm="both"), "invalid arm 'both'"),
        (seen("u", math.nan), "time nan"),
        (seen("known", 1.0, arm="candidate"), "on both arms"),
    ],
)
def test_what_cannot_be_counted_is_refused(decision, said):
    units = Units(PLAN)
    units.add(seen("known", 0.0))
    with pytest.raises(InputError, match=said):
        units.add(decision)
