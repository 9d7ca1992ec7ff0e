"""Simulator for training a sequential policy: batches of queries, with optional drift."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError, StateError
from steersman_systems.rag_tuner.actions import Moves
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.features import Features, Observed, Situation
from steersman_systems.rag_tuner.reward import Reward, reward_of
from steersman_systems.rag_tuner.strategies.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.policy_config import Tuned
    from steersman_systems.rag_tuner.recorded import Recorded

    Floats = NDArray[np.float64]


class Stage(NamedTuple):
    """What holds for a part of an episode.

    Args:
        recorded: The collection that is asked.
        tuned: The reward weights.
    """

    recorded: Recorded
    tuned: Tuned


class Stepped(NamedTuple):
    """Result of a move.

    Args:
        state: (features,) unscaled, NaN where nothing is known.
        reward: Expected reward of what runs now over that of the space's middle, less what
            switching costs.
        last: Whether the episode is over.
        running: What runs now.
    """

    state: Floats
    reward: float
    last: bool
    running: Configuration


class TuningEnvironment:
    """Episodes of `horizon` batches, in which the running configuration is moved before each.

    A collection, reward weights and a configuration to begin with are drawn for each episode; in
    some of them another collection or other weights hold from somewhere in the middle on. What is
    seen is a batch; what is rewarded is the mean over all queries of the collection, which only a
    simulator knows, and only what the action changes: the reward of a configuration in the middle
    of the space is taken off. What is believed from the batches so far is part of the state:
    replayed when the weights change, reset with another collection.

    Args:
        recordings: Collections, one or more, of the whole space; one that is there several times
            is drawn as many times as often.
        tuned: Bounds, gates and weights; the weights of an episode are drawn around them.
        features: What of a situation is seen; those of the space unless given.
        horizon: Batches of an episode, ≥ 2.
        batch: Queries of a batch, ≥ 1; all of a collection if it has fewer.
        switching_cost: Of each part that a move changes, in units of reward, ≥ 0.
        drift: Chance that an episode changes midway, in [0, 1].
        window: Batches that are remembered, ≥ 1.

    Raises:
        InputError: No collection, or a number out of its range.
    """

    def __init__(
        self,
        recordings: Sequence[Recorded],
        tuned: Tuned,
        *,
        features: Features | None = None,
        horizon: int = 32,
        batch: int = 100,
        switching_cost: float = 0.002,
        drift: float = 0.5,
        window: int = 4,
    ) -> None:
        fine = horizon >= 2 and batch >= 1 and switching_cost >= 0 and 0 <= drift <= 1
        if not recordings or not fine or window < 1:
            message = f"{len(recordings)} collections, horizon {horizon!r}, batch {batch!r}, "
            message += f"switching_cost {switching_cost!r}, drift {drift!r}, window {window!r}"
            raise InputError(f"{message}; see the ranges in the docstring of TuningEnvironment")
        self.space = tuned.space
        self.features = features or Features(self.space)
        self.moves = Moves(self.space)
        self.horizon, self.window = horizon, window
        self._tuned, self._batch = tuned, batch
        self._switching_cost, self._drift = switching_cost, drift
        worlds = {id(one): _World(one, tuned) for one in recordings}
        self._worlds = [worlds[id(one)] for one in recordings]
        self._middle = self.space.all[len(self.space.all) // 2]
        self._episode: _Episode | None = None

    def beside(self) -> TuningEnvironment:
        """Return a copy of this environment with a separate episode.

        What configurations are worth is looked up once for both.
        """
        other = copy(self)
        other._episode = None  # noqa: SLF001 - its own class
        return other

    def reset(self, rng: np.random.Generator) -> Floats:
        """Begin an episode."""
        start = self.space.draw(rng)
        world, weighed = self._drawn_world(rng), drawn_weights(self._tuned, rng)
        changes = self.horizon + 1
        after = (world, weighed)
        if rng.random() < self._drift:
            changes = int(rng.integers(self.horizon // 4, 3 * self.horizon // 4 + 1))
            if rng.random() < 0.5 and len(self._worlds) > 1:
                after = (self._drawn_world(rng), weighed)
            else:
                after = (world, drawn_weights(self._tuned, rng))
        self._episode = _Episode(
            rng, [(world, weighed), after], changes, Observed(self.window), start
        )
        return self._state(self._episode)

    def step(self, values: Sequence[int]) -> Stepped:
        """Move the running configuration, and evaluate a batch under it.

        Raises:
            StateError: No episode was begun, or it is over.
        """
        episode = self._episode
        if episode is None or episode.number >= self.horizon:
            raise StateError("no episode is running; call reset first")
        before = episode.running
        episode.running = self.moves.apply(before, values)
        world, tuned = episode.stage
        recorded = world.recorded
        size = min(self._batch, len(recorded))
        queries = episode.rng.choice(len(recorded), size, replace=False)
        batch = recorded.evaluate(episode.running, queries)
        labels = [recorded.categories[place] for place in queries]
        episode.observed.see(batch, tuned.thresholds.latency_unit_ms, labels)
        if "belief" in self.features.groups:
            episode.belief.learn(batch, reward_of(batch, tuned))
            episode.belief.learn_smaller(recorded.smaller(batch))
        ahead = world.mean(episode.running, tuned) - world.mean(self._middle, tuned)
        moved = changed_parts(before, episode.running) * self._switching_cost
        episode.passed()
        last = episode.number >= self.horizon
        return Stepped(self._state(episode), ahead - moved, last, episode.running)

    def stage(self) -> Stage:
        """Return what holds now.

        Raises:
            StateError: No episode was begun.
        """
        if self._episode is None:
            raise StateError("no episode is running; call reset first")
        world, tuned = self._episode.stage
        return Stage(world.recorded, tuned)

    def _drawn_world(self, rng: np.random.Generator) -> _World:
        return self._worlds[int(rng.integers(len(self._worlds)))]

    def _state(self, episode: _Episode) -> Floats:
        tuned = episode.stage[1]
        seen = Situation(episode.observed, episode.running, tuned, belief=episode.belief)
        return self.features.raw(seen, episode.rng)


def drawn_weights(tuned: Tuned, rng: np.random.Generator) -> Tuned:
    """Return a policy with other reward weights: α + β = 1, γ and δ of .01 to .5."""
    alpha = rng.uniform(0.3, 0.7)
    gamma, delta = np.exp(rng.uniform(np.log(0.01), np.log(0.5), 2))
    drawn = {"alpha": alpha, "beta": 1 - alpha, "gamma": float(gamma), "delta": float(delta)}
    return tuned.model_copy(
        update={"reward_weights": tuned.reward_weights.model_copy(update=drawn)}
    )


def changed_parts(one: Configuration, other: Configuration) -> int:
    """Return in how many parts two configurations differ.

    >>> changed_parts(Configuration("bm25", k=5), Configuration("bm25", k=7, rerank=True))
    2
    """
    names = Configuration.__slots__
    return sum(getattr(one, name) != getattr(other, name) for name in names)


class _World:
    """A collection and what its configurations are worth, looked up once each."""

    def __init__(self, recorded: Recorded, tuned: Tuned) -> None:
        self.recorded = recorded
        self._tuned = tuned
        self._found: dict[Configuration, Reward] = {}

    def mean(self, configuration: Configuration, tuned: Tuned) -> float:
        """Return the expected reward, penalties included, under some weights."""
        found = self._found.get(configuration)
        if found is None:
            every = np.arange(len(self.recorded))
            found = reward_of(self.recorded.evaluate(configuration, every), self._tuned)
            self._found[configuration] = found
        weights = tuned.reward_weights
        gained = weights.alpha * found.quality[0] + weights.beta * found.quality[1]
        spent = weights.gamma * found.latency + weights.delta * found.cost
        return gained - spent - weights.penalty * found.penalty


class _Episode:
    """What an episode remembers."""

    def __init__(
        self,
        rng: np.random.Generator,
        stages: list[tuple[_World, Tuned]],
        changes: int,
        observed: Observed,
        start: Configuration,
    ) -> None:
        self.rng, self.observed, self.running = rng, observed, start
        self.number = 0
        self._stages, self._changes = stages, changes
        self.belief = Belief(stages[0][1], len(stages[0][0].recorded))

    @property
    def stage(self) -> tuple[_World, Tuned]:
        return self._stages[self.number >= self._changes]

    def passed(self) -> None:
        """Count a batch; a change is reported before the next move, as in production."""
        self.number += 1
        if self.number == self._changes:
            world, tuned = self.stage
            same = world.recorded is self._stages[0][0].recorded
            self.belief = self.belief.retold(tuned) if same else Belief(tuned, len(world.recorded))
