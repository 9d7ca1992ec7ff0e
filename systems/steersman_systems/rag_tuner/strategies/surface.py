"""Bayesian linear model of the rewards of all configurations, with shared features.

Similar configurations have similar rewards. The similarity is an ANOVA kernel: a sum over the parts
and their pairs, so the effect of a part is shared by all configurations with it. The features are
the leading directions of the kernel over the space; their weights have independent normal priors.
An easy query is easy under every configuration, so every query has a level, which is integrated
out. So configurations on different queries are comparable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Space

    Floats = NDArray[np.float64]

_WEIGHT_SCALE = 0.35
_LOG_K_SCALE = 0.8
_RANK = 96
_GUESSED = 64
_TOLERANCE = 1e-6
# Prior variances, in squared units of reward: of the whole space's level, of each part's effect,
# of each pair's, and of all parts together.
_LEVEL, _PART, _PAIR, _ALL = 0.25, 0.01, 0.003, 0.0005


def features(space: Space, rank: int = _RANK) -> Floats:
    """Return the features of each configuration.

    Returns:
        (configurations, features) float64; the dot product of two rows is their prior covariance.

    Source: Durrande et al., ANOVA kernels and RKHS of zero mean functions (2013), section 2, for
    the sum over parts; the features are the pivoted partial Cholesky factor of Harbrecht, Peters &
    Schneider (2012), algorithm 1.
    """
    parts = _parts(space)
    found = np.zeros((len(space.all), rank))
    left = _variances(parts)
    tolerance = _TOLERANCE * left.max()
    for column in range(min(rank, len(space.all))):
        pivot = int(np.argmax(left))
        if left[pivot] < tolerance:
            return found[:, :column]
        row = _covariance(parts, pivot) - found @ found[pivot]
        found[:, column] = row / np.sqrt(left[pivot])
        left = np.maximum(left - found[:, column] ** 2, 0.0)
    return found


class Surface:
    """Posterior of every configuration's mean reward.

    Args:
        design: (configurations, features) from `features`.
        queries: Number of queries for slices, ≥ 1; grows for larger indexes.
        noise_var: Prior variance of a query's reward around its level and its configuration's
            mean, > 0; it counts as 64 rewards and is updated with observed residuals.
        query_var: Prior variance of a query's level, > 0.

    Source: Henderson's mixed model equations (Henderson 1950; Searle, Casella & McCulloch,
    Variance Components (1992), section 7.6), the query levels absorbed.
    """

    def __init__(
        self, design: Floats, queries: int, *, noise_var: float = 0.04, query_var: float = 0.1
    ) -> None:
        if queries < 1 or not noise_var > 0 or not query_var > 0:
            raise InputError(
                f"queries {queries!r}, noise_var {noise_var!r}, query_var {query_var!r}; "
                "allowed: 1 or more, and numbers above 0"
            )
        self._design = design
        size = design.shape[1]
        self._query_var = query_var
        self._guess = self.noise_var = noise_var
        self._gram = np.zeros((size, size))
        self._moment = np.zeros(size)
        self._square = 0.0
        self._counts = np.zeros(queries)
        self._sums = np.zeros(queries)
        self._seen = np.zeros((queries, size))
        self._known: tuple[Floats, Floats] | None = None

    def add(
        self, place: int, queries: NDArray[np.intp], rewards: Floats, weight: float = 1.0
    ) -> None:
        """Learn some queries' rewards under one configuration.

        Args:
            weight: Number of independent rewards that each counts as, above 0.
        """
        known = ~np.isnan(rewards)
        self.add_together([place], queries[known], rewards[known][None], weight)

    def add_together(
        self,
        places: Sequence[int],
        queries: NDArray[np.intp],
        rewards: Floats,
        weight: float = 1.0,
    ) -> None:
        """Learn some queries' rewards under several configurations at once.

        Args:
            weight: Number of independent rewards that each counts as, above 0.
        """
        known = ~np.isnan(rewards).any(axis=0)
        queries, rewards = queries[known], rewards[:, known]
        if not len(queries):
            return
        self._make_room(int(queries.max()) + 1)
        rows = self._design[list(places)]
        self._gram += weight * len(queries) * rows.T @ rows
        self._moment += weight * rewards.sum(axis=1) @ rows
        self._square += weight * float((rewards**2).sum())
        np.add.at(self._counts, queries, weight * len(rows))
        np.add.at(self._sums, queries, weight * rewards.sum(axis=0))
        np.add.at(self._seen, queries, weight * rows.sum(axis=0))
        self._known = None

    def _make_room(self, queries: int) -> None:
        more = max(queries, 2 * len(self._counts)) - len(self._counts)
        if queries > len(self._counts):
            self._counts = np.append(self._counts, np.zeros(more))
            self._sums = np.append(self._sums, np.zeros(more))
            self._seen = np.append(self._seen, np.zeros((more, self._seen.shape[1])), axis=0)

    def mean(self) -> Floats:
        """Return the posterior mean of every configuration's reward, (configurations,)."""
        weights, _ = self._posterior()
        return np.asarray(self._design @ weights)

    def draws(self, count: int, rng: np.random.Generator) -> Floats:
        """Return joint draws of all configurations' rewards from the posterior.

        Args:
            count: Number of draws, ≥ 1.
        """
        weights, lower = self._posterior()
        normal = rng.standard_normal((len(weights), count))
        return np.asarray(
            self._design
            @ (weights[:, None] + solve_triangular(lower, normal, trans="T", lower=True))
        )

    def drawn(self, rng: np.random.Generator | None = None) -> Floats:
        """Return one draw of the feature weights from the posterior."""
        weights, lower = self._posterior()
        if rng is None:
            return weights
        normal = rng.standard_normal(len(weights))
        return np.asarray(
            weights + solve_triangular(lower, normal, trans="T", lower=True, check_finite=False)
        )

    def worth(self, weights: Floats) -> Floats:
        """Return every configuration's reward for given feature weights, (configurations,)."""
        return np.asarray(self._design @ weights)

    def ahead(
        self, place: int, others: NDArray[np.intp], weights: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the reward of every configuration minus that of one."""
        mean, lower = self._posterior()
        rows = self._design[others] - self._design[place]
        spread = solve_triangular(lower, rows.T, lower=True, check_finite=False)
        return rows @ (mean if weights is None else weights), np.sqrt((spread**2).sum(axis=0))

    def _posterior(self) -> tuple[Floats, Floats]:
        """Return the weights' mean, and the lower Cholesky factor of their precision."""
        if self._known is None:
            self._known = self._solved()
        return self._known

    def _solved(self) -> tuple[Floats, Floats]:
        kept = 1.0 / (self._counts + self.noise_var / self._query_var)
        absorbed = self._seen.T @ (self._seen * kept[:, None])
        precision = (self._gram - absorbed) / self.noise_var + np.eye(len(self._gram))
        moment = (self._moment - self._seen.T @ (self._sums * kept)) / self.noise_var
        lower = cholesky(precision, lower=True, check_finite=False)
        weights = cho_solve((lower, True), moment, check_finite=False)
        levels = (self._sums - self._seen @ weights) * kept
        self._learn_noise(weights, levels)
        return weights, lower

    def _learn_noise(self, weights: Floats, levels: Floats) -> None:
        """Update the noise variance with the residuals.

        With rewards y and their fit Hy, y·(y − Hy) is the noise variance times the number of
        rewards in expectation, if the priors are right.
        """
        left = self._square - weights @ self._moment - levels @ self._sums
        seen = float(self._counts.sum())
        self.noise_var = (_GUESSED * self._guess + max(float(left), 0.0)) / (_GUESSED + seen)


# -- similarity of configurations -----------------------------------------------------------------


class _Part(NamedTuple):
    """Part of a configuration: the level of every configuration, and the similarity of levels."""

    level: NDArray[np.intp]
    kernel: Floats

    def row(self, place: int) -> Floats:
        """Return the similarity of one configuration's part to that of every configuration."""
        return np.asarray(self.kernel[self.level[place]][self.level], np.float64)


def _parts(space: Space) -> list[_Part]:
    ways = [(one.variant, one.fusion_weight) for one in space.all]
    found = [
        _part(ways, _alike_ways),
        _part([one.k for one in space.all], _alike_counts),
        _part([one.rerank for one in space.all], _same),
        _part([one.expansion for one in space.all], _same),
        _part([one.prompt for one in space.all], _same),
    ]
    return [part for part in found if len(part.kernel) > 1]


def _part(values: Sequence[Any], alike: Callable[[Any, Any], float]) -> _Part:
    levels = list(dict.fromkeys(values))
    kernel = np.array([[alike(one, other) for other in levels] for one in levels])
    # Centred, so that only the term of the whole space has the common level.
    means = kernel.mean(axis=0)
    kernel = kernel - means - means[:, None] + kernel.mean()
    kernel /= max(float(np.trace(kernel)) / len(levels), 1e-12)
    place = {value: number for number, value in enumerate(levels)}
    return _Part(np.array([place[value] for value in values]), kernel)


def _alike_ways(one: tuple[str, float], other: tuple[str, float]) -> float:
    """Return the kernel of variants: distance in fusion weight, and a separate term."""
    nearby = _bell(_on_the_line(*one) - _on_the_line(*other), _WEIGHT_SCALE)
    return 0.7 * nearby + 0.3 * float(one[0] == other[0])


def _on_the_line(variant: str, weight: float) -> float:
    return {"bm25": 0.0, "dense": 1.0}.get(variant, weight)


def _alike_counts(one: int, other: int) -> float:
    """Return the kernel of k: logarithmic, because further passages help less; plus linear."""
    smooth = _bell(np.log(one / other), _LOG_K_SCALE)
    return smooth + (one - 16) * (other - 16) / 256


def _same(one: object, other: object) -> float:
    return float(one == other)


def _bell(distance: float, scale: float) -> float:
    return float(np.exp(-0.5 * (distance / scale) ** 2))


def _variances(parts: Sequence[_Part]) -> Floats:
    rows = np.array([np.diagonal(part.kernel)[part.level] for part in parts])
    return _summed(rows)


def _covariance(parts: Sequence[_Part], place: int) -> Floats:
    """Return the prior covariance of one configuration's reward with every other's."""
    return _summed(np.array([part.row(place) for part in parts]))


def _summed(rows: Floats) -> Floats:
    """Return the total covariance from that of each part, (parts, configurations)."""
    alone = rows.sum(axis=0)
    pairs = (alone**2 - (rows**2).sum(axis=0)) / 2
    return np.asarray(_LEVEL + _PART * alone + _PAIR * pairs + _ALL * rows.prod(axis=0))
