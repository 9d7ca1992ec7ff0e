"""An interval is a pair with names."""

from steersman.stats import Interval


def test_unpacks_and_answers_in():
    interval = Interval(1.0, 3.0)
    low, high = interval
    assert (low, high, interval.width) == (1.0, 3.0, 2.0)
    assert 1.0 in interval
    assert 3.5 not in interval
