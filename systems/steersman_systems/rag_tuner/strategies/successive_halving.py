"""Successive halving: evaluate many configurations briefly, then the better half longer."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal

if TYPE_CHECKING:
    import numpy as np

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

_FIRST = 4
_KEPT = 2


class Halving:
    """Brackets of 4, 8, 16, … random configurations; each rung keeps the better half.

    Every rung of a bracket costs the same: half as many configurations, each evaluated twice as
    often. A bracket ends when one configuration is left. The next bracket starts with twice as
    many, including earlier winners. So it needs no budget, and can be stopped at any time.

    Args:
        tuned: Bounds and gates.

    Source: Jamieson & Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
    Optimization (2016), algorithm 1, with the doubling of its section 3 in place of a budget.
    """

    name = "halving"

    def __init__(self, tuned: PolicyConfig) -> None:
        self._space = tuned.space
        self._ledger = Ledger(tuned)
        self._size = _FIRST
        self._rung: list[Configuration] = []
        self._due: list[Configuration] = []
        self._times = 1
        self._winners: list[Configuration] = []

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return the next configuration of the rung; its propensity depends on the bracket."""
        if not self._due:
            self._climb(rng)
        return Proposal(self._due[0], nan)

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Record an evaluation; a requested one is done."""
        self._ledger.enter(batch, reward)
        if batch.configuration in self._due:
            self._due.remove(batch.configuration)

    def recommend(self) -> Configuration:
        """Return the best of the most often evaluated configurations that hold every gate.

        Raises:
            InputError: No such configuration.
        """
        held = [one for one in self._ledger.configurations if not self._ledger.breaches(one)]
        most = max(map(self._ledger.evaluations, held), default=0)
        # One rung less counts too: an earlier winner in a new bracket has half as many evaluations.
        often = [one for one in held if self._ledger.evaluations(one) > most / _KEPT]
        return self._ledger.best(often or None)

    def _climb(self, rng: np.random.Generator) -> None:
        if len(self._rung) > 1:
            ranked = sorted(self._rung, key=self._rank, reverse=True)
            self._rung = ranked[: len(ranked) // _KEPT]
            self._times *= _KEPT
        if len(self._rung) <= 1:
            self._winners += self._rung
            fresh = dict.fromkeys(self._winners)
            while len(fresh) < min(self._size, len(self._space.all)):
                fresh[self._space.draw(rng)] = None
            self._rung, self._times = list(fresh), 1
            self._size *= _KEPT
        self._due = [one for one in self._rung for _ in range(self._times)]

    def _rank(self, configuration: Configuration) -> tuple[bool, float]:
        held = not self._ledger.breaches(configuration)
        return held, self._ledger.mean(configuration)
