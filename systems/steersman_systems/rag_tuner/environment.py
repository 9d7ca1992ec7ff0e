"""Simulator for training a sequential policy: batches of queries, with optional drift."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError, StateError
from steersman_systems.rag_tuner.actions import Moves
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.features import Features, RecentResults, Situation
from steersman_systems.rag_tuner.reward import Reward, reward_of
from steersman_systems.rag_tuner.strategies.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.recorded import Recorded

    Floats = NDArray[np.float64]


class Stage(NamedTuple):
    """Collection and reward weights of a part of an episode.

    Args:
        recorded: Recorded evaluations of the collection.
        tuned: Policy configuration with the reward weights.
    """

    recorded: Recorded
    tuned: PolicyConfig


class StepResult(NamedTuple):
    """Result of a move.

    Args:
        state: (features,) unscaled; NaN: unknown.
        reward: Expected reward of the live configuration minus that of the middle of the space,
            minus the switching cost.
        last: Whether the episode is over.
        running: Live configuration.
    """

    state: Floats
    reward: float
    last: bool
    running: Configuration


class TuningEnvironment:
    """Simulator with episodes of `horizon` batches; a move of the configuration precedes each.

    Each episode draws a collection, reward weights and an initial configuration. In some
    episodes the collection or the weights change midway. The policy sees one batch; its reward is
    the mean over all queries of the collection, which only a simulator knows. The reward of the
    middle of the space is subtracted. The state includes the posterior from the batches so far:
    it is replayed after a change of weights, and reset with another collection.

    Args:
        recordings: One or more collections, recorded over the whole space; a repeated one is drawn
            more often.
        tuned: Bounds, gates and weights; episode weights are drawn around these.
        features: Features of a situation; default: those of the space.
        horizon: Number of batches per episode, ≥ 2.
        batch: Number of queries per batch, ≥ 1; smaller collections use all queries.
        switching_cost: Cost of each changed part, in units of reward, ≥ 0.
        drift: Probability that an episode changes midway, in [0, 1].
        window: Number of batches in the state, ≥ 1.

    Raises:
        InputError: No collection, or a number out of range.
    """

    def __init__(
        self,
        recordings: Sequence[Recorded],
        tuned: PolicyConfig,
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

        Both share the cached rewards of configurations.
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
            rng, [(world, weighed), after], changes, RecentResults(self.window), start
        )
        return self._state(self._episode)

    def step(self, values: Sequence[int]) -> StepResult:
        """Move the live configuration, and evaluate a batch under it.

        Raises:
            StateError: No episode has begun, or it is over.
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
        return StepResult(self._state(episode), ahead - moved, last, episode.running)

    def stage(self) -> Stage:
        """Return the current collection and weights.

        Raises:
            StateError: No episode has begun.
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


def drawn_weights(tuned: PolicyConfig, rng: np.random.Generator) -> PolicyConfig:
    """Return the configuration with random reward weights: α + β = 1, γ and δ in .01 to .5."""
    alpha = rng.uniform(0.3, 0.7)
    gamma, delta = np.exp(rng.uniform(np.log(0.01), np.log(0.5), 2))
    drawn = {"alpha": alpha, "beta": 1 - alpha, "gamma": float(gamma), "delta": float(delta)}
    return tuned.model_copy(
        update={"reward_weights": tuned.reward_weights.model_copy(update=drawn)}
    )


def changed_parts(one: Configuration, other: Configuration) -> int:
    """Return the number of parts in which two configurations differ.

    >>> changed_parts(Configuration("bm25", k=5), Configuration("bm25", k=7, rerank=True))
    2
    """
    names = Configuration.__slots__
    return sum(getattr(one, name) != getattr(other, name) for name in names)


class _World:
    """Collection with the cached rewards of its configurations."""

    def __init__(self, recorded: Recorded, tuned: PolicyConfig) -> None:
        self.recorded = recorded
        self._tuned = tuned
        self._found: dict[Configuration, Reward] = {}

    def mean(self, configuration: Configuration, tuned: PolicyConfig) -> float:
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
    """State of an episode."""

    def __init__(
        self,
        rng: np.random.Generator,
        stages: list[tuple[_World, PolicyConfig]],
        changes: int,
        observed: RecentResults,
        start: Configuration,
    ) -> None:
        self.rng, self.observed, self.running = rng, observed, start
        self.number = 0
        self._stages, self._changes = stages, changes
        self.belief = Belief(stages[0][1], len(stages[0][0].recorded))

    @property
    def stage(self) -> tuple[_World, PolicyConfig]:
        return self._stages[self.number >= self._changes]

    def passed(self) -> None:
        """Count a batch; a change is reported before the next move, as in production."""
        self.number += 1
        if self.number == self._changes:
            world, tuned = self.stage
            same = world.recorded is self._stages[0][0].recorded
            self.belief = self.belief.retold(tuned) if same else Belief(tuned, len(world.recorded))
