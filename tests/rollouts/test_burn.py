"""The error budget burns when a long and a short window say so, whatever the period's scale."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman.rollouts.error_budget import Counts, burn_rate, burn_windows, burning, stretches
from steersman.rollouts.plan import PlannedBudget

BUDGET = PlannedBudget()


def counts(budget, rates, total=10_000):
    """Return counts of each stretch, by its place among the six."""
    return [
        Counts(length, rate * (1 - budget.objective) * total, total)
        for length, rate in zip(stretches(budget), rates, strict=True)
    ]


def test_windows_of_thirty_days_are_those_of_the_workbook():
    minutes, hours = 60.0, 3600.0
    assert [window[:3] for window in burn_windows(BUDGET)] == [
        (hours, 5 * minutes, 14.4),
        (6 * hours, 30 * minutes, 6.0),
        (72 * hours, 6 * hours, 1.0),
    ]


@given(st.floats(1.0, 1e8))
def test_all_windows_shrink_with_the_period(period_s):
    scaled = burn_windows(PlannedBudget(period_s=period_s))
    for window, day in zip(scaled, burn_windows(BUDGET), strict=True):
        assert window.long_s / period_s == pytest.approx(day.long_s / BUDGET.period_s)
        assert window.short_s == pytest.approx(window.long_s / 12)


def test_a_rate_counts_when_both_windows_have_it():
    # Stretches: 300 s, 1,800 s, 3,600 s, 21,600 s (long and short), 259,200 s.
    assert len(stretches(BUDGET)) == 5
    fast = burning(BUDGET, counts(BUDGET, (15, 0, 15, 0, 0)))
    assert [(burn.window.rate, burn.window.worse) for burn in fast] == [(14.4, "roll_back")]
    assert fast[0].long_rate == pytest.approx(15.0)
    assert not burning(BUDGET, counts(BUDGET, (0, 0, 50, 0, 0)))  # over by now
    assert not burning(BUDGET, counts(BUDGET, (50, 0, 0, 0, 0)))  # only just begun
    slow = burning(BUDGET, counts(BUDGET, (0, 0, 0, 1.01, 1.01)))
    assert [burn.window.worse for burn in slow] == ["hold"]


def test_few_errors_are_no_rate():
    hour, minutes = Counts(3600.0, 9, 10), Counts(300.0, 9, 10)
    assert not burning(BUDGET, [hour, minutes])
    assert burning(BUDGET, [hour._replace(bad=10), minutes])


def test_what_was_not_counted_does_not_burn():
    assert not burning(BUDGET, [])
    assert not burning(BUDGET, [Counts(3600.0, 100, 100)])
    assert burn_rate(BUDGET, 0, 0) == 0.0


@pytest.mark.parametrize("pair", [(2, 1), (-1, 1), (math.nan, 1), (0, math.inf)])
def test_counts_that_are_none(pair):
    with pytest.raises(InputError, match="0 <= bad <= total"):
        burn_rate(BUDGET, *pair)
