"""The shadow: the same queries under both, in turns, and no way past a hard gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.shadow import mirror
from steersman_systems.rag_tuner.slices import rotating
from tests.systems.rag_tuner.worlds import tuned, world

GOOD, POOR = Configuration("hybrid", k=10, fusion_weight=0.6), Configuration("bm25", k=10)
WORLD = world(queries=200)
FREE = tuned(gamma=0.0, delta=0.0)


class Watched:
    """A recording that remembers who was asked what, and may slow one configuration down."""

    def __init__(self, slow=None, at=()):
        self.asked, self._slow, self._at = [], slow, at

    def evaluate(self, configuration, queries):
        self.asked.append((configuration, queries.tolist()))
        batch = WORLD.evaluate(configuration, queries)
        episode = (len(self.asked) + 1) // 2
        if configuration == self._slow and episode in self._at:
            return replace(batch, latency_ms=batch.latency_ms + 900.0)
        return batch


def slices(size=40, seed=0):
    return rotating(np.arange(len(WORLD)), size, np.random.default_rng(seed))


def test_both_see_the_same_queries_and_take_turns_at_being_first():
    asked = Watched()
    found = mirror(asked, GOOD, POOR, slices(), FREE, episodes=4)
    assert [one for one, _ in asked.asked] == [GOOD, POOR, POOR, GOOD] * 2
    pairs = zip(asked.asked[::2], asked.asked[1::2], strict=True)
    assert all(first[1] == second[1] for first, second in pairs)
    assert len(found.episodes) == 4
    assert found.verdict.queries == 160
    assert (found.verdict.state, found.goes_on) == ("gain", True)
    assert str(found).startswith("4 episodes in the shadow. Gain:")


def test_what_is_worse_does_not_go_on():
    found = mirror(Watched(), POOR, GOOD, slices(), FREE, episodes=5)
    assert found.verdict.state == "loss"
    assert not found.goes_on
    assert "it is worse by" in found.reasons[0]


def test_one_episode_that_breaks_a_gate_is_enough():
    """All queries together would hold it."""
    found = mirror(Watched(slow=GOOD, at={2}), GOOD, POOR, slices(4), FREE, episodes=3)
    assert "episode 2 breaks p95_latency_ms" in found.reasons
    assert not found.goes_on
    assert "Not yet: episode 2 breaks" in str(found)


def test_a_query_that_comes_again_is_no_further_unit():
    found = mirror(Watched(), GOOD, POOR, slices(size=150), FREE, episodes=3)
    assert found.verdict.queries == 200


@pytest.mark.parametrize(
    ("episodes", "candidate", "message"),
    [
        (2, GOOD, "episodes is 2; allowed: 3 to 5"),
        (6, GOOD, "episodes is 6"),
        (3, replace(POOR, fusion_weight=0.1), "is already live"),
    ],
)
def test_what_is_no_shadow(episodes, candidate, message):
    with pytest.raises(InputError, match=message):
        mirror(Watched(), candidate, POOR, slices(), FREE, episodes=episodes)
