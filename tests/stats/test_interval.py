"""An interval is a pair with names."""

import math

import pytest

from steersman.errors import InputError
from steersman.stats import Interval


def test_unpacks_and_answers_in():
    interval = Interval(1.0, 3.0)
    low, high = interval
    assert (low, high, interval.width) == (1.0, 3.0, 2.0)
    assert 1.0 in interval
    assert 3.5 not in interval


def test_ends_do_not_cross():
    with pytest.raises(InputError, match=r"interval is 2 to 1; allowed: low <= high; swap"):
        Interval(2, 1)
    assert Interval(1.0, 1.0).width == 0.0
    assert math.isnan(Interval(math.nan, math.nan).width)
