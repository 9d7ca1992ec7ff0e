"""Simulated logs with known truth, for coverage: independent and adaptive ones."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, softmax

from steersman.ope import LoggedData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ADAPTIVE_WORLDS", "AdaptiveWorld", "IndependentWorld"]

# Runs are simulated in parallel, because a learner's rows are sequential.
_RUNS_AT_ONCE = 500


@dataclass(frozen=True)
class IndependentWorld:
    """World with 64 kinds of contexts, four actions, logistic rewards, soft logging policy.

    Args:
        floor: Minimum propensity of every action.
        units: Number of rows that share a unit effect; 1 for independent rows.
        seed: Random seed of the world.
    """

    floor: float = 0.05
    units: int = 1
    seed: int = 42

    def log(self, rng: np.random.Generator, rows: int) -> LoggedData:
        """Return one log with contexts."""
        kinds, means, logging, target = self._tables()
        kind = rng.integers(len(kinds), size=rows)
        actions = _draw(rng, logging[kind])
        chance = means[kind, actions]
        clusters = None
        if self.units > 1:
            clusters = np.arange(rows) // self.units
            # A unit effect shifts the rewards of a unit together and keeps their mean.
            taste = rng.choice([-1.0, 1.0], size=int(clusters[-1]) + 1)[clusters]
            chance = chance + 0.5 * taste * np.minimum(chance, 1.0 - chance)
        return LoggedData(
            actions=actions,
            rewards=(rng.random(rows) < chance).astype(float),
            propensities=logging[kind, actions],
            target=target[kind],
            contexts=kinds[kind],
            clusters=clusters,
        )

    @property
    def truth(self) -> float:
        """Exact value of the target policy."""
        _, means, _, target = self._tables()
        return float((means * target).sum(axis=1).mean())

    def _tables(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return contexts, mean rewards, logging and target distributions by kind."""
        rng = np.random.default_rng(self.seed)
        kinds = rng.normal(size=(64, 5))
        scores = kinds @ rng.normal(size=(5, 4)) / np.sqrt(5)
        wanted = softmax(2.0 * scores, axis=1)
        logged = softmax(kinds @ rng.normal(size=(5, 4)), axis=1)
        return kinds, expit(scores), self.floor + (1.0 - 4 * self.floor) * logged, wanted


@dataclass(frozen=True)
class AdaptiveWorld:
    """World with a learning logging policy, an exploration floor and a fixed target policy.

    Args:
        name: Name in the table.
        means: Probability of reward 1 of each arm.
        target: Target distribution.
        thompson: True for Thompson sampling, False for greedy; the floor applies to both.
        floor: Minimum propensity of every arm.
    """

    name: str
    means: tuple[float, ...]
    target: tuple[float, ...]
    thompson: bool = False
    floor: float = 0.05

    @property
    def truth(self) -> float:
        """Exact value of the target policy."""
        return float(np.dot(self.means, self.target))

    def logs(self, rng: np.random.Generator, runs: int, rows: int) -> Iterator[LoggedData]:
        """Yield one log for each run."""
        for start in range(0, runs, _RUNS_AT_ONCE):
            batch = min(_RUNS_AT_ONCE, runs - start)
            actions, rewards, propensities = self._simulate(rng, batch, rows)
            target = np.tile(self.target, (rows, 1))
            for run in range(batch):
                yield LoggedData(actions[:, run], rewards[:, run], propensities[:, run], target)

    def _simulate(
        self, rng: np.random.Generator, runs: int, rows: int
    ) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Return actions, rewards and propensities, each (rows, runs)."""
        means = np.array(self.means)
        wins, losses = np.ones((runs, len(means))), np.ones((runs, len(means)))
        actions = np.empty((rows, runs), dtype=np.int64)
        rewards, propensities = np.empty((2, rows, runs))
        every = np.arange(runs)
        for row in range(rows):
            distribution = self._distribution(rng, wins, losses)
            arm = _draw(rng, distribution)
            reward = (rng.random(runs) < means[arm]).astype(float)
            wins[every, arm] += reward
            losses[every, arm] += 1.0 - reward
            actions[row], rewards[row] = arm, reward
            propensities[row] = distribution[every, arm]
        return actions, rewards, propensities

    def _distribution(self, rng: np.random.Generator, wins: Floats, losses: Floats) -> Floats:
        shares = wins / (wins + losses)
        if self.thompson:
            spread = np.sqrt(shares * (1.0 - shares) / (wins + losses + 1.0))
            draws = rng.standard_normal((32, *shares.shape))
            draws *= spread
            draws += shares
            # The logged distribution is exactly the frequencies of posterior draws, with the floor.
            of_arm = [draws[:, :, arm] for arm in range(shares.shape[1])]
            top = functools.reduce(np.maximum, of_arm)  # not along the short axis, which is slow
            best = np.stack([(one == top).sum(axis=0, dtype=np.uint8) for one in of_arm], axis=1)
            best = best / len(draws)
        else:
            tied = shares == shares.max(axis=1, keepdims=True)
            best = tied / tied.sum(axis=1, keepdims=True)
        return np.asarray(self.floor + (1.0 - shares.shape[1] * self.floor) * best)


ADAPTIVE_WORLDS = (
    AdaptiveWorld("greedy, equal arms, one arm", (0.5,) * 4, (1.0, 0.0, 0.0, 0.0)),
    AdaptiveWorld("greedy, best arm apart, mixed", (0.3, 0.4, 0.5, 0.6), (0.1, 0.1, 0.1, 0.7)),
    AdaptiveWorld(
        "Thompson, near arms, last arm", (0.45, 0.5, 0.55), (0.0, 0.0, 1.0), thompson=True
    ),
    AdaptiveWorld("greedy, arms that mostly succeed, one arm", (0.9,) * 4, (1.0, 0.0, 0.0, 0.0)),
)


def _draw(rng: np.random.Generator, distributions: Floats) -> NDArray[np.int64]:
    """Return one action for each row of distributions."""
    below = distributions.cumsum(axis=1) < rng.random(len(distributions))[:, None]
    return np.asarray(np.minimum(below.sum(axis=1), distributions.shape[1] - 1), dtype=np.int64)
