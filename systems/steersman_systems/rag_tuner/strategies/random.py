"""Random configurations: the baseline of all strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal

if TYPE_CHECKING:
    import numpy as np

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward


class Random:
    """Strategy that draws each part uniformly and recommends the best mean.

    Args:
        tuned: Bounds and gates.

    >>> import numpy as np
    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> asked = Random(load_policy_config()).ask(np.random.default_rng(0))
    >>> asked.configuration.variant, round(1 / asked.propensity)
    ('hybrid', 7560)

    Source: Bergstra & Bengio, Random Search for Hyper-Parameter Optimization (2012).
    """

    name = "random"

    def __init__(self, tuned: PolicyConfig) -> None:
        self._space = tuned.space
        self._ledger = Ledger(tuned)

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return a configuration at random."""
        drawn = self._space.draw(rng)
        mass = self._space.draw_probabilities[self._space.index[drawn]]
        return Proposal(drawn, float(mass))

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Record an evaluation."""
        self._ledger.enter(batch, reward)

    def recommend(self) -> Configuration:
        """Return the configuration with the best mean that holds every gate.

        Raises:
            InputError: No such configuration.
        """
        return self._ledger.best()
