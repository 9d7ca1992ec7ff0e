import numpy as np

from steersman_systems.interrogator.measures import (
    Course,
    calls_to_the_same,
    compared,
    hit_rate,
    of_each,
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


def test_a_measure_is_kept_by_seed_and_target():
    runs = [[course([0, 0.4]), course([0, 0.6])], [course([0, 0.6]), course([0, 0.6])]]
    assert of_each(runs, lambda one: one.reached).tolist() == [[0.4, 0.6], [0.6, 0.6]]


def test_a_difference_that_one_run_of_three_makes_is_told_and_widens_the_interval():
    # Over targets alone, as the mean over seeds, the difference is 1 without any doubt.
    found = compared(np.outer([0.0, 0.0, 3.0], np.ones(50)))
    assert found["by_seed"] == [0.0, 0.0, 3.0]
    assert found["value"] == 1.0
    assert found["low"] < 0.0
