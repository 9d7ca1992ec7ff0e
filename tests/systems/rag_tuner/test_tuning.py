"""The loop."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.systems.rag_tuner.configuration import Configuration
from steersman.systems.rag_tuner.slices import rotating
from steersman.systems.rag_tuner.strategies import Fixed, Random
from steersman.systems.rag_tuner.tuning import tune
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(queries=40), tuned()


def episodes(strategy, count, size=16):
    rng = np.random.default_rng(0)
    slices = rotating(np.arange(40), size, rng)
    return tune(strategy, WORLD, TUNED, slices, evaluations=count, rng=rng)


def test_each_evaluation_is_told_before_it_is_given():
    strategy = Random(TUNED)
    for number, one in enumerate(episodes(strategy, 4), 1):
        assert one.number == number
        assert len(one.batch) == 16
        assert strategy.recommend()


def test_a_configuration_whose_quality_scatters_is_told_unstable():
    """A slice of one query has quality 0 or more: that scatters more than the band."""
    found = [one.reward.penalty for one in episodes(Fixed(Configuration(k=3)), 8, size=1)]
    assert found[:2] == [0.0, 0.0]
    assert 0.5 in found[2:]


def test_no_evaluations():
    with pytest.raises(InputError, match="evaluations is 0"):
        next(episodes(Random(TUNED), 0))
