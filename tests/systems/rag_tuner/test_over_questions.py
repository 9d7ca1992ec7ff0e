"""Means over questions: what their intervals cover, and that none has no width."""

import numpy as np
import pytest

from steersman_systems.rag_tuner.question_means import mean_over


def test_intervals_over_conversations_cover_the_mean():
    rng = np.random.default_rng(5)
    runs, alone, together = 400, 0, 0
    for _ in range(runs):
        turns = rng.integers(1, 8, 30)
        talks = np.repeat(np.arange(30), turns)
        values = rng.normal(0.0, 0.2, 30)[talks] + rng.normal(0.0, 0.1, len(talks))
        found = mean_over(values, within=(-2, 2), groups=talks.astype(str).tolist())
        naive = mean_over(values, within=(-2, 2))
        together += found.low <= 0.0 <= found.high
        alone += naive.low <= 0.0 <= naive.high
    assert together / runs > 0.92
    assert alone / runs < 0.80  # as if turns were independent


def test_each_alone_is_the_t_interval_and_one_unit_has_none():
    values = np.random.default_rng(0).uniform(size=30)
    alone = mean_over(values, within=(0, 1))
    assert alone == mean_over(values, within=(0, 1), groups=[str(place) for place in range(30)])
    assert alone.error == pytest.approx(values.std(ddof=1) / np.sqrt(30))
    assert np.isnan(mean_over(values, within=(0, 1), groups=["x"] * 30).low)


def test_what_is_all_alike_has_a_width_unless_nothing_can_differ():
    ten = mean_over(np.full(10, 0.5), within=(0, 1))
    assert ten.low < 0.4
    assert ten.high > 0.6
    talks = mean_over(np.full(10, 0.5), within=(0, 1), groups=["x"] * 5 + ["y"] * 5)
    assert talks.low < ten.low  # two units have shown less
    assert mean_over(np.zeros(10), within=(0, 0)).high == 0.0


def test_turns_that_differ_in_conversations_that_do_not_have_a_width_too():
    talks = [name for name in "abcde" for _ in range(2)]
    found = mean_over(np.array([0.0, 1.0] * 5), within=(0, 1), groups=talks)
    assert found.low < 0.3
    assert found.high > 0.7
