"""Its distribution is exact, and gates are stronger than its beliefs."""

import numpy as np
import pytest

from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.strategies.factored import Factored
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(), tuned(gamma=0.05, delta=0.05)


def learned(policy=TUNED, evaluations=10):
    strategy, rng = Factored(policy, len(WORLD)), np.random.default_rng(0)
    for _ in range(evaluations):
        asked = strategy.ask(rng)
        batch = WORLD.evaluate(asked.configuration, rng.choice(len(WORLD), 32, replace=False))
        strategy.tell(batch, reward_of(batch, policy))
    return strategy


def test_the_propensity_is_the_mass_that_it_was_drawn_from():
    strategy = learned()
    masses = strategy.distribution(np.random.default_rng(5))
    asked = strategy.ask(np.random.default_rng(5))  # the same posterior draws
    assert masses.sum() == pytest.approx(1)
    assert asked.propensity == masses[TUNED.space.index[asked.configuration]]
    assert (masses >= 0.05 * TUNED.space.draw_probabilities - 1e-15).all()


def test_what_broke_a_gate_comes_by_the_floor_alone():
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 6.0})
    policy = TUNED.model_copy(update={"thresholds": limits})
    strategy = learned(policy, 25)
    masses = strategy.distribution(np.random.default_rng(1))
    broken = strategy._broken()
    assert broken
    floor = 0.05 * policy.space.draw_probabilities
    assert masses[broken] == pytest.approx(floor[broken])
    assert strategy.recommend() in strategy._ledger.configurations
    assert strategy.recommend() not in [policy.space.all[place] for place in broken]


def test_where_gates_broke_it_looks_less_and_less():
    """Every reranked configuration breaks the gate, and would be the best if it did not."""
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 6.0})
    policy = TUNED.model_copy(update={"thresholds": limits})
    strategy = learned(policy, 40)
    masses = strategy.distribution(np.random.default_rng(1))
    reranked = np.array([one.rerank for one in policy.space.all])
    assert masses[reranked].sum() < 0.1


def test_what_comes_for_nothing_is_used():
    """One evaluation of many passages tells what few would have given."""
    batch = WORLD.evaluate(Configuration(k=32, expansion=True), np.arange(len(WORLD)))
    plain, told = Factored(TUNED, len(WORLD)), Factored(TUNED, len(WORLD))
    for one in (plain, told):
        one.tell(batch, reward_of(batch, TUNED))
    told.tell_smaller(WORLD.smaller(batch))
    few = TUNED.space.index[Configuration(k=4, expansion=True)]
    true = reward_of(WORLD.evaluate(TUNED.space.all[few], np.arange(len(WORLD))), TUNED)
    quality = (true.per_query + true.spent).mean()
    missed = [abs(one._belief.quality.mean()[few] - quality) for one in (plain, told)]
    assert missed[1] < 0.03 < missed[0]


def test_fewer_than_the_space_allows_are_left_out():
    strategy = Factored(TUNED, len(WORLD))
    before = strategy._belief.quality.mean()
    batch = WORLD.evaluate(Configuration(k=2), np.arange(5))
    strategy.tell_smaller([batch])
    assert (strategy._belief.quality.mean() == before).all()
