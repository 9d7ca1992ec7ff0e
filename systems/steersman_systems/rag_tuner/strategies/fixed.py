"""Fixed configuration: the live one, or a manual baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.rag_tuner.strategies.base import Proposal

if TYPE_CHECKING:
    import numpy as np

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.reward import Batch, Reward


class Fixed:
    """Strategy with one fixed configuration.

    Args:
        configuration: The configuration; it may be outside the space, like rrf by default.

    >>> import numpy as np
    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> Fixed(Configuration("rrf")).ask(np.random.default_rng(0)).propensity
    1.0
    """

    name = "fixed"

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration.canonical()

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return the configuration."""
        return Proposal(self._configuration, 1.0)

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Learn nothing."""

    def recommend(self) -> Configuration:
        """Return the configuration, even with a broken gate, because it is the baseline."""
        return self._configuration
