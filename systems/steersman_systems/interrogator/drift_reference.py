"""Reference of the drift guard: expected gains and contexts, fitted to a log without drift.

Only the gain in similarity is modelled. Cache hits are part of the reward but say nothing about the
questions: a cache that fills up does not count as drift.

The targets are split into three parts. Half fit the mean gain of every question as a linear
function of x, and mean and principal directions of x. A quarter calibrate these expectations: the
question with the largest expected gain is often overestimated, so expectations are shrunk until
gains match them on average, and the scatter of gains is fitted. The last quarter give the
thresholds: quantiles of sessions without drift, by split conformal prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

DIRECTIONS = 32
"""Number of principal directions of x; the rest counts by its length only."""
MONITORS = ("gains", "features", "strangeness")
"""Monitors of a session; each gets a third of the false alarm rate."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Expected gains and contexts, with thresholds.

    Args:
        models: (K, d) weights; the predicted gain of a question is ``models[a] @ x``.
        known: (K,) bool, questions with gains in the log.
        level: Intercept and slope from predicted to expected gain.
        noise: Intercept and slope from expected gain to variance of the gain.
        least: Minimum variance, > 0.
        unit_spread: Standard deviation of a session's mean standardised residual, > 0.
        sessions: Number of sessions for the thresholds.
        mean: (d,) mean of x.
        directions: (p, d) orthonormal principal directions of x.
        variances: (p,) variances of x along them, > 0.
        limits: Threshold by monitor.
    """

    models: Floats
    known: Flags
    level: tuple[float, float]
    noise: tuple[float, float]
    least: float
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
        gains: Floats,
        sessions: Ints,
        groups: Ints,
        *,
        questions: int,
        rng: np.random.Generator,
        alpha: float = 0.03,
        ridge: float = 0.1,
    ) -> Self:
        """Return the reference of a log.

        A session without drift passes a threshold, at any step, with probability at most about
        ``alpha``, over the draw of log and session. This is exact if each target has one session,
        targets are exchangeable and questions are chosen as in the log.

        Choices of a policy have no guarantee. Measured over 12 synthetic logs: 3.0 % of sessions
        of a frozen LinTS and 3.3 % of a learning one (1 to 8 % by log); 5 % if all questions are
        equal; see ``tests/systems/interrogator/test_drift.py``.

        Args:
            alpha: Probability of a false alarm in a session, in (0, 0.5].
            ridge: Ridge penalty of the models: variance of gains over that of weights, > 0.

        Raises:
            InputError: ``alpha`` is out of range, or there are too few sessions for it.

        Source: Vovk, Gammerman and Shafer (2005), Algorithmic learning in a random world, section
        4.1 (inductive conformal prediction); Jackson and Mudholkar (1979), Control procedures for
        residuals associated with principal component analysis, for the two monitors of x.
        """
        if not 0.0 < alpha <= 0.5:
            raise InputError(f"alpha is {alpha!r}; allowed: 0 < alpha <= 0.5; usual: 0.03")
        fitted, drawn_in, rest = _thirds(groups, rng)
        parts = _split(sessions[rest])
        needed = math.ceil(len(MONITORS) / alpha) - 1
        if len(parts) < needed:
            message = f"{len(parts)} sessions for thresholds; alpha {alpha} needs at least "
            raise InputError(f"{message}{needed}; log more sessions, or increase alpha")
        models, known = _models(x[fitted], actions[fitted], gains[fitted], questions, ridge)
        usable = drawn_in & known[actions]
        level, noise, least = _worth_of(_guesses(models, x[usable], actions[usable]), gains[usable])
        drafted = cls(models, known, level, noise, least, 1.0, len(parts), *_principal(x[fitted]),
                      dict.fromkeys(MONITORS, math.inf))  # fmt: skip
        z = drafted.residuals(x[rest], actions[rest], gains[rest])
        near, strange = drafted.distances(x[rest])
        paths = {
            "gains": [excursion(z[part]) for part in parts],
            "features": [float(near[part].max()) for part in parts],
            "strangeness": [float(strange[part].max()) for part in parts],
        }
        limits = {name: _threshold(paths[name], alpha / len(MONITORS)) for name in MONITORS}
        unit_spread = float(np.std([z[part].mean() for part in parts])) or 1e-9
        return replace(drafted, unit_spread=unit_spread, limits=limits)

    def residual(self, x: Floats, action: int, gain: float) -> float | None:
        """Return a gain minus its expectation, in standard deviations.

        Returns:
            The standardised residual; ``None`` for a question that is not in the log.
        """
        if not self.known[action]:
            return None
        return float(self.residuals(x[None], np.array([action]), np.array([gain]))[0])

    def residuals(self, x: Floats, actions: Ints, gains: Floats) -> Floats:
        """Return the `residual` of several steps, without a check for unknown questions."""
        expected = self.level[0] + self.level[1] * _guesses(self.models, x, actions)
        variances = np.maximum(self.noise[0] + self.noise[1] * expected, self.least)
        standardised: Floats = (gains - expected) / np.sqrt(variances)
        return standardised

    def distances(self, x: Any) -> tuple[Floats, Floats]:
        """Return the distances of contexts along the principal directions and orthogonal ones."""
        away = np.atleast_2d(x) - self.mean
        along = away @ self.directions.T
        near: Floats = (along**2 / self.variances).sum(axis=1)
        beside: Floats = (away**2).sum(axis=1) - (along**2).sum(axis=1)
        return near, beside


def excursion(z: Floats) -> float:
    """Return the largest standardised loss over all prefixes of a session.

    Args:
        z: (t,) standardised residuals, 1 or more.

    >>> round(excursion(np.array([1.0, -1.0, -2.0])), 4)
    1.1547
    """
    return float((-np.cumsum(z) / np.sqrt(np.arange(1, len(z) + 1))).max())


def _thirds(groups: Ints, rng: np.random.Generator) -> tuple[Flags, Flags, Flags]:
    """Return the steps of half, a quarter and the other quarter of the targets."""
    order = rng.permutation(np.unique(groups))
    half = len(order) // 2
    begins = (half, half + (len(order) - half) // 2)
    first, second, third = (np.isin(groups, part) for part in np.split(order, begins))
    return first, second, third


def _split(sessions: Ints) -> list[Ints]:
    """Return the indexes of each session's steps."""
    return [np.flatnonzero(sessions == one) for one in np.unique(sessions)]


def _models(
    x: Floats, actions: Ints, gains: Floats, questions: int, ridge: float
) -> tuple[Floats, Flags]:
    """Return the posterior means of a linear model per question, as LinTS has them."""
    models = np.zeros((questions, x.shape[1]))
    known = np.zeros(questions, np.bool_)
    for action in np.unique(actions):
        own = actions == action
        gram = x[own].T @ x[own] + ridge * np.eye(x.shape[1])
        models[action] = np.linalg.solve(gram, x[own].T @ gains[own])
        known[action] = True
    return models, known


def _guesses(models: Floats, x: Floats, actions: Ints) -> Floats:
    guesses: Floats = np.einsum("nd,nd->n", models[actions], x)
    return guesses


def _worth_of(
    guesses: Floats, gains: Floats
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return level, noise and least variance of a `Reference`, by least squares."""
    level = _line(guesses, gains)
    expected = level[0] + level[1] * guesses
    squares = (gains - expected) ** 2
    return level, _line(expected, squares), float(0.1 * squares.mean()) or 1e-18


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    solved = np.linalg.lstsq(np.stack([np.ones_like(x), x], axis=1), y, rcond=None)[0]
    return float(solved[0]), float(solved[1])


def _principal(x: Floats) -> tuple[Floats, Floats, Floats]:
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(x.T)))
    kept = min(DIRECTIONS, x.shape[1])
    # A direction without variance would make any noise in it infinite.
    variances = np.maximum(values[::-1][:kept], 1e-9)
    return mean, vectors[:, ::-1][:, :kept].T, variances


def _threshold(scores: list[float], alpha: float) -> float:
    """Return the conformal quantile: a new score exceeds it with probability at most alpha."""
    place = math.ceil((len(scores) + 1) * (1.0 - alpha))
    return sorted(scores)[place - 1] if place <= len(scores) else math.inf
