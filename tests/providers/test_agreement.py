"""Agreement with people, and biases, against counts made by hand and a world that is known."""

import math

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.providers.judges.agreement import Verdicts, agreement

LONG_FIRST = (90, 50)


def test_counts_by_hand():
    rows = [
        Verdicts(1, 1, 1, LONG_FIRST),  # agrees, takes the longer
        Verdicts(2, 1, 1, LONG_FIRST),  # disagrees, takes the longer
        Verdicts(2, 2, 2, LONG_FIRST),  # agrees, takes the shorter
        Verdicts(1, 1, 2, LONG_FIRST),  # first shown, both times
        Verdicts(0, 0, 0, LONG_FIRST),  # a tie for both
        Verdicts(1, None, 1, LONG_FIRST),  # one order unread
    ]
    found = agreement(rows)
    assert (found.pairs, found.judged, found.unread) == (6, 4, 1)
    assert found.agree == 3 / 4
    assert found.consistent == 4 / 5
    assert found.first_shown == pytest.approx((0.5 + 0.5 + 0.5 + 1.0) / 4)
    assert (found.longer_judge, found.longer_human) == (2 / 3, 1 / 3)
    # Kappa of [[1,0,0],[0,1,0],[0,1,1]]/4: (3/4 − 5/16) / (1 − 5/16).
    assert found.kappa == pytest.approx((3 / 4 - 5 / 16) / (1 - 5 / 16), abs=1e-12)


def test_wilson_against_the_known_value():
    rows = [Verdicts(1, 1, 1, LONG_FIRST)] * 8 + [Verdicts(2, 1, 1, LONG_FIRST)] * 2
    low, high = agreement(rows).agree_interval
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=5e-4)


def test_a_judge_by_length_and_place_is_seen_through():
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(2000):
        lengths = tuple(int(n) for n in rng.integers(10, 99, 2))
        human = int(rng.integers(1, 3))
        longer = 1 if lengths[0] > lengths[1] else 2
        by_place, by_length = rng.random() < 0.3, rng.random() < 0.8
        orig, swapped = (1, 2) if by_place else ((longer, longer) if by_length else (human, human))
        rows.append(Verdicts(human, orig, swapped, lengths))
    found = agreement(rows)
    assert found.consistent == pytest.approx(0.7, abs=0.03)
    assert 0.15 in found.position_bias
    assert found.longer_judge == pytest.approx(0.9, abs=0.03)
    assert 0.4 in found.length_bias
    assert found.longer_human == pytest.approx(0.5, abs=0.04)


def test_verdicts_on_one_prompt_count_together():
    rows, alone, once = [], [], []
    for prompt in range(40):
        human = 1 + prompt % 2
        own = (human, 1, 1, LONG_FIRST if prompt % 3 else (5, 9))
        alone += [Verdicts(*own)] * 9
        rows += [Verdicts(*own, prompt=f"p{prompt}")] * 9
        once.append(Verdicts(*own))
    single, together, apart = (agreement(one) for one in (once, rows, alone))
    assert together.agree == apart.agree == single.agree
    assert tuple(together.length_bias) == pytest.approx(tuple(single.length_bias))
    assert width(together.agree_interval) == pytest.approx(width(single.agree_interval), rel=0.02)
    assert width(together.agree_interval) > 2.5 * width(apart.agree_interval)


def width(interval):
    return interval.high - interval.low


def test_prompts_that_all_agree_are_worth_no_more_than_they_are():
    many = agreement([Verdicts(1, 1, 1, LONG_FIRST, prompt=str(n % 4)) for n in range(40)])
    few = agreement([Verdicts(1, 1, 1, LONG_FIRST)] * 4)
    assert tuple(many.agree_interval) == tuple(few.agree_interval)
    one = agreement([Verdicts(1 + n % 2, 1, 1, LONG_FIRST, prompt="p") for n in range(9)])
    assert all(map(math.isnan, one.length_bias))


def test_values_that_are_all_alike_are_not_certain_beyond_what_was_seen():
    found = agreement([Verdicts(1, 1, 2, LONG_FIRST)] * 10)
    unseen = 1 - 0.025**0.1
    assert tuple(found.position_bias) == pytest.approx((0.5 - unseen, 0.5))
    assert all(map(math.isnan, found.length_bias))
    even = agreement([Verdicts(1, 1, 1, LONG_FIRST)] * 10)
    assert tuple(even.length_bias) == pytest.approx((-unseen, unseen))


def test_nothing_to_count_is_nan_and_no_number():
    found = agreement([Verdicts(1, None, None, LONG_FIRST)])
    assert (found.judged, found.unread) == (0, 1)
    assert all(map(math.isnan, (found.agree, found.kappa, found.consistent, *found.length_bias)))
    with pytest.raises(InputError, match="no pairs"):
        agreement([])


@pytest.mark.parametrize("wrong", [{"human": 3}, {"human": None}, {"orig": 4}, {"swapped": -1}])
def test_verdicts_of_no_answer_are_refused(wrong):
    with pytest.raises(InputError, match="allowed: 0, 1, 2"):
        Verdicts(**({"human": 1, "orig": 1, "swapped": 1, "lengths": (1, 2)} | wrong))


def test_each_verdict_counts_once_for_what_was_shown_first():
    """Two verdicts of three; the interval is that of the ratio, worked out by hand."""
    found = agreement([Verdicts(1, 1, 1, LONG_FIRST), Verdicts(1, 1, 0, LONG_FIRST)])
    assert found.first_shown == pytest.approx(2 / 3)
    # Residuals hits − R · verdicts are ∓ 1/3; by 1.5 verdicts a pair, the error is 2/9.
    half = 1.959963984540054 * 2 / 9
    assert tuple(found.position_bias) == pytest.approx((1 / 6 - half, 1 / 6 + half))


def test_the_interval_of_the_share_of_verdicts_covers_it():
    """A judge that calls ties after a win of what was first makes pairs weigh unlike."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        rows = []
        for first, again, tie in rng.random((120, 3)) < (0.7, 0.7, 0.6):
            orig = 1 if first else 2
            swapped = 0 if first and tie else (2 if again else 1)
            rows.append(Verdicts(1, orig, swapped, LONG_FIRST))
        held += 0.2 in agreement(rows).position_bias
    # Verdicts are for the first with .7 whether a tie beside them or not: .7 · (1 + .58) of 1.58.
    assert held / 300 == pytest.approx(0.95, abs=0.04)
