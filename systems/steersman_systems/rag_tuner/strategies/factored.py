"""Factored linear Thompson sampling: the effect of a part is shared by all configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal, nothing_holds
from steersman_systems.rag_tuner.strategies.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

_DRAWS = 64


class Factored:
    """Thompson sampling over a linear model of the whole space.

    Posterior draws score every configuration. The share of draws in which a configuration is the
    best is its probability, mixed with a uniform floor, so propensities are exact. Configurations
    with a known broken gate are left out, except in the floor.

    Args:
        tuned: Bounds, gates, weights.
        queries: Number of queries for slices, ≥ 1.
        floor: Exploration floor, distributed as in `Space.draw`, in [0, 1).

    Source: Russo et al., A Tutorial on Thompson Sampling (2018), section 4, with the frequencies
    of seeded draws as the distribution.
    """

    name = "factored"

    def __init__(self, tuned: PolicyConfig, queries: int, *, floor: float = 0.05) -> None:
        self._space = tuned.space
        self._ledger = Ledger(tuned)
        self._belief = Belief(tuned, queries)
        self._floor = floor

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return a configuration, drawn with its probability of being the best."""
        masses = self.distribution(rng)
        place = int(np.searchsorted(masses.cumsum(), rng.random(), side="right"))
        place = min(place, int(np.flatnonzero(masses)[-1]))
        return Proposal(self._space.all[place], float(masses[place]))

    def distribution(self, rng: np.random.Generator) -> Floats:
        """Return the probability of each configuration.

        Returns:
            (configurations,) in the order of `Space.all`, summing to 1.
        """
        even = self._space.draw_probabilities
        broken = self._broken()
        if len(broken) == len(even):
            return even.copy()  # all configurations are left out
        draws = self._belief.draws(_DRAWS, rng)
        draws[broken] = -np.inf
        counts = np.bincount(draws.argmax(axis=0), minlength=len(draws))
        return np.asarray((1 - self._floor) * counts / _DRAWS + self._floor * even)

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Learn from an evaluation."""
        self._ledger.enter(batch, reward)
        self._belief.learn(batch, reward)

    def tell_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn the results of the same evaluation with fewer passages.

        Together they count as one evaluation, because their queries are the same.
        """
        self._belief.learn_smaller(batches)

    def recommend(self) -> Configuration:
        """Return the evaluated configuration of greatest posterior mean that holds every gate.

        An unevaluated configuration may break a gate.

        Raises:
            InputError: No results yet, or none without a broken gate.
        """
        index = self._space.index
        held = [
            index[one]
            for one in self._ledger.configurations
            if one in index and not self._ledger.breaches(one)
        ]
        if not held:
            raise InputError(nothing_holds(len(self._ledger.configurations)))
        mean = self._belief.mean()[held]
        return self._space.all[held[int(mean.argmax())]]

    def _broken(self) -> list[int]:
        index = self._space.index
        return [
            index[one]
            for one in self._ledger.configurations
            if one in index and self._ledger.breaches(one)
        ]
