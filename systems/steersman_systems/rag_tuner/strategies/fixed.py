"""Fixed configuration: the live one, or a manual baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.rag_tuner.strategies.base import Asked

if TYPE_CHECKING:
    import numpy as np

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.reward import Batch, Reward


class Fixed:
    """One configuration, whatever comes.

    Args:
        configuration: It; it need not be in the space, as rrf is not by default.

    >>> import numpy as np
    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> Fixed(Configuration("rrf")).ask(np.random.default_rng(0)).propensity
    1.0
    """

    name = "fixed"

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration.canonical()

    def ask(self, rng: np.random.Generator) -> Asked:
        """Return it."""
        return Asked(self._configuration, 1.0)

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Learn nothing."""

    def recommend(self) -> Configuration:
        """Return it, whether it holds the gates or not: it is what the others are held against."""
        return self._configuration
