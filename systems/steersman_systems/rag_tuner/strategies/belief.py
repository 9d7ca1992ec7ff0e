"""Posterior of every configuration's reward, from all evaluations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.strategies.surface import Surface, features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Space
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

_SPENT_NOISE = 1e-3
"""Variance of a query's cost under one configuration: far below that of its quality."""
_QUERIES = 256


class _Paid(NamedTuple):
    batch: Batch
    penalty: float
    smaller: list[Batch]


class Belief:
    """Posterior with two linear models of the whole space: quality, and weighted latency and cost.

    Latency and cost have a separate model, because they hardly vary by query. All batches are
    kept for replay after a change of the reward weights.

    Args:
        tuned: Space and weights.
        queries: Number of queries; grows for larger indexes.
    """

    def __init__(self, tuned: PolicyConfig, queries: int = _QUERIES) -> None:
        self._tuned, self._space = tuned, tuned.space
        self._queries = queries
        design = _design(self._space)
        self.quality = Surface(design, queries)
        self._spent = Surface(design, queries, noise_var=_SPENT_NOISE, query_var=_SPENT_NOISE)
        self._paid: list[_Paid] = []

    def __len__(self) -> int:
        """Return the number of reported evaluations."""
        return len(self._paid)

    def learn(self, batch: Batch, reward: Reward) -> None:
        """Learn from an evaluation."""
        if batch.configuration in self._space.index:
            self._learn(batch, reward, reward.penalty)
            self._paid.append(_Paid(batch, reward.penalty, []))

    def learn_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn the results of the last evaluation with fewer passages.

        Together they count as one evaluation, because their queries are the same.
        """
        known = [one for one in batches if one.configuration in self._space.index]
        if not known:
            return
        weights = self._tuned.reward_weights
        places = [self._space.index[one.configuration] for one in known]
        worth = np.array([one.scored for one in known]) @ [weights.alpha, weights.beta]
        self.quality.add_together(places, known[0].queries, worth, 1.0 / len(known))
        if self._paid:
            self._paid[-1].smaller.extend(known)

    def retold(self, tuned: PolicyConfig) -> Belief:
        """Return the posterior under other reward weights, from the same evaluations."""
        found = Belief(tuned, self._queries)
        for batch, penalty, smaller in self._paid:
            found._learn(batch, reward_of(batch, tuned), penalty)
            found._paid.append(_Paid(batch, penalty, []))
            found.learn_smaller(smaller)
        return found

    def mean(self) -> Floats:
        """Return the posterior mean of every configuration's reward, (configurations,)."""
        return self.quality.mean() - self._spent.mean()

    def draws(self, count: int, rng: np.random.Generator) -> Floats:
        """Return joint draws of all configurations' rewards, (configurations, count).

        Args:
            count: Number of draws, ≥ 1.
        """
        return self.quality.draws(count, rng) - self._spent.mean()[:, None]

    def drawn(self, rng: np.random.Generator | None = None) -> Floats:
        """Return one draw from the posterior, for `best` and `ahead`."""
        return self.quality.drawn(rng)

    def best(self, drawn: Floats | None = None) -> int:
        """Return the index of the configuration with the highest reward."""
        weights = self.quality.drawn() if drawn is None else drawn
        return int((self.quality.worth(weights) - self._spent.mean()).argmax())

    def ahead(
        self, place: int, others: NDArray[np.intp], drawn: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the reward of every configuration minus that of one."""
        mean, deviation = self.quality.ahead(place, others, drawn)
        return mean - self._spent.ahead(place, others)[0], deviation

    def _learn(self, batch: Batch, reward: Reward, penalty: float) -> None:
        place = self._space.index[batch.configuration]
        # Penalties are added: similar configurations are likely to have the same ones.
        charged = self._tuned.reward_weights.penalty * penalty
        self.quality.add(place, batch.queries, reward.per_query + reward.spent - charged)
        self._spent.add(place, batch.queries, reward.spent)


@lru_cache(maxsize=4)
def _design(space: Space) -> Floats:
    found = features(space)
    found.flags.writeable = False
    return found
