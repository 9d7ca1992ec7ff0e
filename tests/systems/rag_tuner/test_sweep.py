"""The best under each pair of weights."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.sweep import sweep
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, EVERY = world(queries=60), np.arange(60)
RRF = Configuration("rrf")


@pytest.mark.slow
def test_each_is_the_best_by_trying_all():
    for one in sweep(WORLD, tuned(), EVERY, RRF, gammas=(0.0, 0.5), deltas=(0.2,)):
        policy = tuned(gamma=one.gamma, delta=one.delta)
        values = [reward_of(WORLD.evaluate(c, EVERY), policy).value for c in policy.space.all]
        assert one.reward == pytest.approx(max(values))
        assert one.best == policy.space.all[int(np.argmax(values))]
        base = reward_of(WORLD.evaluate(RRF, EVERY), policy).value
        assert one.ahead == pytest.approx(one.reward - base)


@pytest.mark.slow
def test_dearer_passages_are_fewer():
    ks = [one.best.k for one in sweep(WORLD, tuned(), EVERY, RRF, gammas=(0.0,))]
    assert ks == sorted(ks, reverse=True)
    assert ks[0] > ks[-1]


@pytest.mark.slow
def test_none_holds_the_gates():
    limits = tuned().thresholds.model_copy(update={"p95_latency_ms": 1.0})
    policy = tuned().model_copy(update={"thresholds": limits})
    (one,) = sweep(WORLD, policy, EVERY, RRF, gammas=(0.1,), deltas=(0.1,))
    assert one.best is None
    assert np.isnan(one.reward)


def test_a_negative_weight_is_refused():
    with pytest.raises(InputError, match=r"weights \[-1\]"):
        sweep(WORLD, tuned(), EVERY, RRF, gammas=(-1,))
