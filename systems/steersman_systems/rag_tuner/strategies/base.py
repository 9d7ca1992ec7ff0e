"""Interface of a strategy: the next configuration, and the recommendation."""

from __future__ import annotations

from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.reward import breaches, mean_of_defined, pooled

if TYPE_CHECKING:
    from collections.abc import Collection

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward


class Proposal(NamedTuple):
    """Configuration to evaluate next.

    Args:
        configuration: Configuration in canonical form.
        propensity: Probability of the draw; 1 without a draw; NaN if unknown, which excludes it
            from off-policy evaluation.
    """

    configuration: Configuration
    propensity: float


class Strategy(Protocol):
    """Strategy that asks for evaluations and learns from them."""

    name: str

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return the configuration to evaluate next."""

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Learn from an evaluation, requested or not."""

    def recommend(self) -> Configuration:
        """Return the configuration to serve, by the results so far.

        Raises:
            InputError: No results yet, or every known configuration breaks a hard gate.
        """


class Ledger:
    """All reported evaluations, by configuration.

    Args:
        tuned: Policy configuration with the gates.
    """

    def __init__(self, tuned: PolicyConfig) -> None:
        self._tuned = tuned
        self._batches: dict[Configuration, list[Batch]] = {}
        self._rewards: dict[Configuration, list[Reward]] = {}
        self._breaches: dict[Configuration, tuple[str, ...]] = {}

    def enter(self, batch: Batch, reward: Reward) -> None:
        """Add an evaluation."""
        self._batches.setdefault(batch.configuration, []).append(batch)
        self._rewards.setdefault(batch.configuration, []).append(reward)
        together = pooled(self._batches[batch.configuration])
        self._breaches[batch.configuration] = breaches(together, self._tuned.thresholds)

    def __len__(self) -> int:
        return sum(map(len, self._batches.values()))

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Evaluated configurations, in the order of their first evaluation."""
        return tuple(self._batches)

    def evaluations(self, configuration: Configuration) -> int:
        """Return the number of evaluations of a configuration."""
        return len(self._batches.get(configuration, ()))

    def quality(self, configuration: Configuration) -> list[float]:
        """Return the mean quality of each of a configuration's batches."""
        return [sum(one.quality) / 2 for one in self._rewards.get(configuration, ())]

    def mean(self, configuration: Configuration) -> float:
        """Return the mean reward of all queries of a configuration, without penalties.

        Returns:
            The mean over the queries with both measures; minus infinity if no query has both, so
            that it is never the best.
        """
        told = np.concatenate([one.per_query for one in self._rewards[configuration]])
        mean = mean_of_defined(told)
        return -inf if isnan(mean) else mean

    def breaches(self, configuration: Configuration) -> tuple[str, ...]:
        """Return the hard gates that a configuration breaks over all its queries."""
        return self._breaches[configuration]

    def best(self, among: Collection[Configuration] | None = None) -> Configuration:
        """Return the configuration with the greatest mean reward that holds every gate.

        Args:
            among: Configurations to compare; ``None`` for all evaluated ones.

        Raises:
            InputError: No such configuration.
        """
        looked = self.configurations if among is None else tuple(among)
        held = [one for one in looked if not self.breaches(one) and isfinite(self.mean(one))]
        if not held:
            raise InputError(nothing_holds(len(looked)))
        return max(held, key=self.mean)


def nothing_holds(count: int) -> str:
    """Return the message for a missing recommendation."""
    if not count:
        return "nothing was evaluated yet; tell it an evaluation first"
    return (
        f"each of {count} evaluated configurations breaks a hard gate, so none may serve; "
        "evaluate more, or change the thresholds of the policy if they are not meant"
    )
