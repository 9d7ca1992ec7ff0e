"""What was told, by configuration."""

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.strategies.base import Ledger
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, TUNED = world(queries=40), tuned()
FEW, MANY = Configuration("bm25", k=3), Configuration("bm25", k=30)


def told(*evaluations, policy=TUNED):
    ledger = Ledger(policy)
    for configuration, queries in evaluations:
        batch = WORLD.evaluate(configuration, np.asarray(queries))
        ledger.enter(batch, reward_of(batch, policy))
    return ledger


def test_means_are_over_all_queries_of_a_configuration():
    ledger = told((FEW, range(10)), (MANY, range(5)), (FEW, range(10, 40)))
    whole = reward_of(WORLD.evaluate(FEW, np.arange(40)), TUNED)
    assert ledger.mean(FEW) == pytest.approx(whole.per_query.mean())
    assert ledger.configurations == (FEW, MANY)
    assert (len(ledger), ledger.evaluations(FEW), ledger.evaluations(Configuration())) == (3, 2, 0)
    assert len(ledger.quality(FEW)) == 2


def test_gates_are_held_by_all_queries_together():
    limits = TUNED.thresholds.model_copy(update={"p95_latency_ms": 4.0})
    policy = TUNED.model_copy(update={"thresholds": limits})
    ledger = told((FEW, range(10)), policy=policy)
    assert ledger.breaches(FEW) == ("p95_latency_ms",)
    with pytest.raises(InputError, match="each of 1 evaluated configurations"):
        ledger.best()


def test_what_has_no_reward_is_never_the_best():
    """Each query has one measure only: means are defined, and no query's reward is."""
    batch = WORLD.evaluate(FEW, np.arange(2))
    halves = np.array([[0.9, np.nan], [np.nan, 0.9]])
    ledger = told((MANY, range(40)))
    ledger.enter(replace(batch, quality=halves), reward_of(replace(batch, quality=halves), TUNED))
    assert ledger.best() == MANY


def test_the_best_is_the_best_of_those_asked_about():
    ledger = told((FEW, range(40)), (MANY, range(40)))
    best = max((FEW, MANY), key=ledger.mean)
    assert ledger.best() == best
    other = FEW if best == MANY else MANY
    assert ledger.best([other]) == other
    with pytest.raises(InputError, match="nothing was evaluated"):
        Ledger(TUNED).best()
