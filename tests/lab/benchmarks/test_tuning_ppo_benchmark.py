"""When a strategy has recovered after a change, and that what it knew before is kept apart."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import tuning_ppo
from benchmarks.tuning import World, policies
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.strategies.fixed import Fixed
from tests.systems.rag_tuner.worlds import world

LIGHT = policies()["light"]
FIRST = World(world(queries=40), LIGHT)
SECOND = World(replace(world(queries=50, seed=1), collection="second"), LIGHT)
GOOD, BAD = Configuration("hybrid", k=9), Configuration("bm25", k=3)


class Late(Fixed):
    """Recommends the good one from its fourth evaluation on."""

    def __init__(self):
        super().__init__(BAD)
        self.told = []

    def tell(self, batch, reward):
        self.told.append((batch, reward))
        super().tell(batch, reward)

    def recommend(self):
        return GOOD if len(self.told) >= 4 else BAD


def change(before=FIRST, after=SECOND):
    true = np.zeros(len(LIGHT.space.all))
    true[LIGHT.space.index[GOOD]] = 0.5
    return tuning_ppo.Change(before, after, true)


def test_recovered_is_the_first_of_five_in_a_row():
    assert tuning_ppo._recovered(Fixed(GOOD), change(), seed=0) == 1
    assert tuning_ppo._recovered(Late(), change(), seed=0) == 4


def test_what_never_recovers_counts_the_most():
    assert tuning_ppo._recovered(Fixed(BAD), change(), seed=0) == 64


def test_queries_of_a_second_collection_are_numbered_after_those_of_the_first():
    strategy = Late()
    tuning_ppo._recovered(strategy, change(), seed=0)
    asked = np.concatenate([batch.queries for batch, _ in strategy.told])
    assert asked.min() >= 40
    assert asked.max() < change().queries == 90


def test_queries_of_the_same_collection_keep_their_numbers():
    strategy = Late()
    same = change(FIRST, World(FIRST.recorded, policies()["default"]))
    tuning_ppo._recovered(strategy, same, seed=0)
    asked = np.concatenate([batch.queries for batch, _ in strategy.told])
    assert asked.max() < same.queries == 40


def test_tries_of_one_policy_are_no_independent_draws():
    """Two policies, each with tries that all come out alike: what is known of them is two means."""
    tries = np.repeat([[10.0], [20.0]], 50, axis=1)
    rival = np.full(50, 40.0)
    mean, half = tuning_ppo.apart(tries, rival)
    assert mean == -25.0
    assert half == pytest.approx(12.706 * 5.0, rel=1e-3)  # Student's t of one degree of freedom
    assert tuning_ppo.apart(np.full((2, 5), 64.0), np.full(5, 64.0)) == (0.0, 0.0)


def test_the_interval_is_that_of_student():
    mean, half = tuning_ppo.interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert half == pytest.approx(4.3027 / np.sqrt(3), abs=1e-3)
