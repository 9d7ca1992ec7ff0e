import numpy as np
import pytest

from steersman_systems.interrogator.latency import steps_until, timed
from steersman_systems.interrogator.measures import Course


def course(steps, *, limit=10):
    """Return a session that comes to .9 with so many questions; None: not within the limit."""
    asked = limit if steps is None else steps
    similarity = np.zeros(asked + 1)
    similarity[-1] = 0.0 if steps is None else 0.9
    return Course(similarity, np.arange(asked + 1), np.zeros(asked, bool))


def until(runs, **options):
    return steps_until(
        [[course(s) for s in run] for run in runs], np.full(len(runs[0]), 0.9), 10, **options
    )


def test_sessions_that_never_get_there_are_cut_off_and_not_dropped():
    found = until([[1, None, None]])
    assert found["median"] is None  # beyond ten questions for more than half
    assert found["solved"] == pytest.approx(1 / 3)
    assert found["restricted_mean"] == pytest.approx((1 + 10 + 10) / 3)
    assert until([[1, 1, None]])["median"] == 1.0


def test_the_mean_is_restricted_to_the_limit_and_not_to_the_longest_session():
    found = until([[2, 4, 4, 6]])
    assert found["restricted_mean"] == pytest.approx(4.0)
    # One more that never gets there counts ten, whatever the others needed.
    assert until([[2, 4, 4, 6, None]])["restricted_mean"] == pytest.approx(5.2)


def test_nobody_gets_there():
    found = until([[None, None]])
    assert (found["median"], found["low"], found["high"]) == (None, None, None)
    assert found["solved"] == 0.0
    assert found["restricted_mean"] == pytest.approx(10.0)


def test_the_interval_is_around_the_median_of_all_seeds():
    # The first seed alone says 2; all three say 6.
    rng = np.random.default_rng(4)
    runs = [rng.integers(1, 4, 80), rng.integers(5, 8, 80), rng.integers(5, 8, 80)]
    found = until([[int(s) for s in run] for run in runs])
    assert found["low"] <= found["median"] == 5.0 <= found["high"]
    assert found["low"] < 5.0  # that seeds differ is seen
    assert found == until([[int(s) for s in run] for run in runs])


@pytest.mark.slow
def test_the_interval_covers_the_median():
    """Geometric sessions, whose median is 3 questions, from runs that do not differ."""
    rng, held = np.random.default_rng(6), 0
    for _ in range(60):
        drawn = np.repeat(rng.geometric(0.24, (1, 60)), 2, axis=0)
        found = until([[int(s) if s <= 10 else None for s in run] for run in drawn])
        held += found["low"] <= 3.0 <= found["high"]
    assert held >= 54


def test_who_does_not_get_there_counts_as_the_limit():
    runs = [[course(3), course(None)]]
    steps, solved = timed(runs, np.full(2, 0.9), 10)
    assert steps.tolist() == [[3.0, 10.0]]
    assert solved.tolist() == [[True, False]]
