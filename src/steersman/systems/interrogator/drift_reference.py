"""What sessions are like as long as nothing drifts, learned from a log of such sessions.

Half of the targets fit what is expected: the mean reward of every question as a linear function of
x, and mean and principal directions of x. The other half say how far from that a session goes which
has not drifted: the thresholds are their quantiles, by split conformal prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

DIRECTIONS = 32
"""Principal directions of x that are looked at one by one; the rest only by its length."""
MONITORS = ("rewards", "features", "strangeness")
"""What a session is watched for; each gets a third of its chance of a false alarm."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What is expected, and how far a session may be from it.

    Args:
        models: (K, d) mean reward of a question is ``models[a] @ x``.
        known: (K,) bool, questions that the log knows rewards of.
        centre: Mean residual.
        spread: Standard deviation of a residual, > 0.
        unit_spread: Standard deviation of a session's mean standardised residual, > 0.
        sessions: Sessions that the thresholds come from.
        mean: (d,) of x.
        directions: (p, d) orthonormal.
        variances: (p,) of x along them, > 0.
        limits: Threshold by monitor.
    """

    models: Floats
    known: NDArray[np.bool_]
    centre: float
    spread: float
    unit_spread: float
    sessions: int
    mean: Floats
    directions: Floats
    variances: Floats
    limits: dict[str, float]

    @classmethod
    def fit(
        cls,
        x: Floats,
        actions: Ints,
        rewards: Floats,
        sessions: Ints,
        groups: Ints,
        *,
        questions: int,
        rng: np.random.Generator,
        alpha: float = 0.03,
        prior_var: float = 1.0,
        noise_var: float = 0.1,
    ) -> Self:
        """Return the reference of a log.

        A session like those of the log passes a threshold, at any of its steps, with a probability
        of at most ``alpha``, over the draw of log and session together: that is exact for sessions
        of targets drawn alike, whatever their law. A chooser that asks other questions, or about
        another kind of target, does not draw them alike.

        Args:
            x: (n, d) encoded contexts.
            actions: (n,) places of the questions asked.
            rewards: (n,) 0 to 1.
            sessions: (n,) equal within a session; steps in their order.
            groups: (n,) equal for sessions of the same target, which are not independent.
            questions: K.
            rng: Splits the targets.
            alpha: Chance of a false alarm in a session, in (0, 0.5].
            prior_var: Of the weights of the models.
            noise_var: Of a reward around its mean.

        Raises:
            InputError: ``alpha`` is out of range, or there are too few sessions for it.

        No doctest: it needs a log; ``tests/systems/interrogator/test_drift.py`` shows it.

        Source: Vovk, Gammerman and Shafer (2005), Algorithmic learning in a random world, section
        4.1 (inductive conformal prediction); Jackson and Mudholkar (1979), Control procedures for
        residuals associated with principal component analysis, for the two looks at x.
        """
        if not 0.0 < alpha <= 0.5:
            raise InputError(f"alpha is {alpha!r}; allowed is 0 < alpha <= 0.5; 0.03 is usual")
        fitted = np.isin(groups, _half(np.unique(groups), rng))
        models, known = _models(x[fitted], actions[fitted], rewards[fitted], questions,
                                noise_var / prior_var)  # fmt: skip
        mean, directions, variances = _principal(x[fitted])
        rest = ~fitted
        residuals = rewards[rest] - np.einsum("nd,nd->n", models[actions[rest]], x[rest])
        parts = _split(sessions[rest])
        needed = math.ceil(len(MONITORS) / alpha) - 1
        if len(parts) < needed:
            message = f"{len(parts)} sessions are left for thresholds; at alpha {alpha} it takes "
            raise InputError(f"{message}{needed} or more; log more, or raise alpha")
        centre = float(np.mean([residuals[part].mean() for part in parts]))
        spread = float(residuals.std()) or 1e-9
        drafted = cls(models, known, centre, spread, 1.0, len(parts), mean, directions, variances,
                      dict.fromkeys(MONITORS, math.inf))  # fmt: skip
        z = (residuals - centre) / spread
        paths = {"rewards": [excursion(z[part]) for part in parts]}
        near, strange = drafted.distances(x[rest])
        paths["features"] = [float(near[part].max()) for part in parts]
        paths["strangeness"] = [float(strange[part].max()) for part in parts]
        limits = {name: _threshold(paths[name], alpha / len(MONITORS)) for name in MONITORS}
        unit_spread = float(np.std([z[part].mean() for part in parts])) or 1e-9
        return cls(models, known, centre, spread, unit_spread, len(parts), mean, directions,
                   variances, limits)  # fmt: skip

    def residual(self, x: Floats, action: int, reward: float) -> float | None:
        """Return how far a reward is from what is expected, in standard deviations.

        Args:
            x: (d,) encoded context.
            action: Place of the question.
            reward: 0 to 1.

        Returns:
            The standardised residual; ``None`` for a question that the log does not know.
        """
        if not self.known[action]:
            return None
        return (reward - float(self.models[action] @ x) - self.centre) / self.spread

    def distances(self, x: Any) -> tuple[Floats, Floats]:
        """Return how far contexts are along the principal directions, and beside them.

        Args:
            x: (n, d) encoded contexts.

        Returns:
            (n,) squared Mahalanobis distances, and (n,) squared lengths of what is left.
        """
        away = np.atleast_2d(x) - self.mean
        along = away @ self.directions.T
        near: Floats = (along**2 / self.variances).sum(axis=1)
        beside: Floats = (away**2).sum(axis=1) - (along**2).sum(axis=1)
        return near, beside


def excursion(z: Floats) -> float:
    """Return the largest standardised sum of the first residuals of a session, over its steps.

    Args:
        z: (t,) standardised residuals, 1 or more.

    >>> round(excursion(np.array([1.0, 1.0, -4.0])), 4)
    1.4142
    """
    sums = np.abs(np.cumsum(z)) / np.sqrt(np.arange(1, len(z) + 1))
    return float(sums.max())


def _half(groups: Ints, rng: np.random.Generator) -> Ints:
    return rng.permutation(groups)[: len(groups) // 2]


def _split(sessions: Ints) -> list[Ints]:
    """Return the places of each session's steps."""
    return [np.flatnonzero(sessions == one) for one in np.unique(sessions)]


def _models(
    x: Floats, actions: Ints, rewards: Floats, questions: int, ridge: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the posterior means of a linear model per question, as LinTS has them."""
    models = np.zeros((questions, x.shape[1]))
    known = np.zeros(questions, np.bool_)
    for action in np.unique(actions):
        own = actions == action
        gram = x[own].T @ x[own] + ridge * np.eye(x.shape[1])
        models[action] = np.linalg.solve(gram, x[own].T @ rewards[own])
        known[action] = True
    return models, known


def _principal(x: Floats) -> tuple[Floats, Floats, Floats]:
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))
    kept = min(DIRECTIONS, x.shape[1])
    # A direction without variance would make any noise in it infinite.
    variances = np.maximum(values[::-1][:kept], 1e-9)
    return mean, vectors[:, ::-1][:, :kept].T, variances


def _threshold(scores: list[float], alpha: float) -> float:
    """Return the conformal quantile: a new score from the same law passes it with at most alpha."""
    place = math.ceil((len(scores) + 1) * (1.0 - alpha))
    return sorted(scores)[place - 1] if place <= len(scores) else math.inf
