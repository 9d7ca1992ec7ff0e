import numpy as np
import pytest

from steersman.errors import InputError
from steersman.systems.interrogator.measures import (
    Course,
    calls_to_the_same,
    hit_rate,
    mean_with_interval,
    per_target,
    steps_until,
)


def course(similarity, calls=None, hits=None):
    k = len(similarity) - 1
    calls = range(0, 10 * (k + 1), 10) if calls is None else calls
    return Course(
        np.array(similarity, float), np.array(calls), np.array(hits or [False] * k, dtype=bool)
    )


def test_a_level_is_reached_by_the_first_question_that_comes_so_far():
    one = course([0.1, 0.4, 0.4, 0.6])
    assert one.steps_to(0.4) == (1, True)
    assert one.steps_to(0.05) == (0, True)
    assert one.steps_to(0.7) == (3, False)
    assert one.calls_to(0.5) == 30


def test_nobody_is_charged_for_going_further_than_the_other():
    near, far = course([0.1, 0.5]), course([0.1, 0.3, 0.5, 0.8])
    assert calls_to_the_same(near, far) == (10, 20)
    assert calls_to_the_same(far, near) == (20, 10)


def test_a_session_without_questions_costs_its_opening():
    found = course([0.95], calls=[1])
    assert calls_to_the_same(found, course([0.95, 0.96], calls=[0, 9])) == (1, 0)
    assert hit_rate(found) == 0.0


def test_a_measure_of_a_target_is_the_mean_over_seeds():
    runs = [[course([0, 0.4]), course([0, 0.6])], [course([0, 0.6]), course([0, 0.6])]]
    assert per_target(runs, lambda one: one.reached) == pytest.approx([0.5, 0.6])


def test_sessions_that_never_get_there_are_cut_off_and_not_dropped():
    quick, slow = course([0, 0.9]), course([0] * 11)
    found = steps_until([[quick, slow, slow]], np.full(3, 0.9))
    assert found["median"] is None  # beyond ten questions for more than half
    assert found["solved"] == pytest.approx(1 / 3)
    assert found["restricted_mean"] == pytest.approx((1 + 10 + 10) / 3)
    half = steps_until([[quick, quick, slow]], np.full(3, 0.9))
    assert half["median"] == 1.0


def test_an_interval_over_one_target_is_refused():
    with pytest.raises(InputError, match="at least 2"):
        mean_with_interval(np.array([1.0]))
