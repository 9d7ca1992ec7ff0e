"""Kernel UCB with random Fourier features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.policies import inputs
from steersman.policies.linear import LinearPolicy
from steersman.policies.linucb import bounded_choice, bounded_choices_of_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class KernelUCB(LinearPolicy):
    """Bounded LinUCB on x and on random Fourier features of x, for nonlinear rewards.

    The features √(2/D)·cos(Wx + b), W ~ N(0, 1/lengthscale²), b ~ U(0, 2π), have inner products
    that approximate the Gaussian kernel exp(-|x - x'|²/2·lengthscale²). They follow x itself, so
    whatever is linear stays cheap to learn. The draw of W and b depends on ``seed`` alone.

    Args:
        actions: K different names.
        dim: number of context features d >= 1.
        alpha: width of the bonus, >= 0.
        ridge: prior precision, in [1e-9, 1e9].
        ceiling: largest possible reward.
        random_features: D in [1, 4096]; a decision costs (d + D)² per action.
        lengthscale: distance in x over which rewards change, > 0. Trap: it is in the units of x,
            so scale features to a norm of about 1 (``FeatureMap`` does).
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket.
        seed: seed of the random features.

    Raises:
        InputError: argument out of range.

    >>> policy = KernelUCB(["inside", "outside"], dim=1, lengthscale=0.3)
    >>> rng = np.random.default_rng(0)
    >>> for x in rng.uniform(-1.0, 1.0, 200):
    ...     choice = policy.decide([x], rng=rng)
    ...     truth = "inside" if abs(x) < 0.5 else "outside"  # no line separates these
    ...     policy.learn([x], choice.action, float(choice.action == truth))
    >>> [policy.decide([x], rng=rng).action for x in (-0.9, 0.0, 0.9)]
    ['outside', 'inside', 'outside']

    Source:
        Valko, Korda, Munos, Flaounas, Cristianini (2013), "Finite-time analysis of kernelised
        contextual bandits", algorithm 1; Rahimi, Recht (2007), "Random features for large-scale
        kernel machines", algorithm 1.
    """

    algorithm = "kernel_ucb"
    continuous = False
    _scores_rows = True

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        alpha: float = 0.5,
        ridge: float = 0.3,
        ceiling: float = 1.0,
        random_features: int = 256,
        lengthscale: float = 1.0,
        floor: float = 0.0,
        forget: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.alpha = inputs.parameter("alpha", alpha, 0.0, 1e6)
        self.ridge = inputs.parameter("ridge", ridge, 1e-9, 1e9)
        self.ceiling = inputs.parameter("ceiling", ceiling, -1e9, 1e9)
        self.context_dim = inputs.whole("dim", dim, 1, inputs.MOST_FEATURES)
        self.random_features = inputs.whole("random_features", random_features, 1, 4096)
        self.lengthscale = inputs.parameter("lengthscale", lengthscale, 1e-6, 1e6)
        self.seed = inputs.whole("seed", seed, 0, 2**63)
        both, most = self.context_dim + self.random_features, inputs.MOST_FEATURES
        if both > most:
            message = f"dim + random_features is {both:,}; allowed: up to {most:,}"
            raise InputError(f"{message}; lower one of them")
        super().__init__(
            actions,
            both,
            prior_precision=self.ridge,
            noise_var=1.0,
            floor=floor,
            forget=forget,
        )
        rng = np.random.default_rng(self.seed)
        shape = (self.random_features, self.context_dim)
        self._frequencies: Floats = rng.standard_normal(shape) / self.lengthscale
        self._phases: Floats = rng.uniform(0.0, 2.0 * np.pi, self.random_features)

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        self._no_features(features)
        return bounded_choice(self._arms, self._vector(x), self.alpha, self.ceiling, mask)

    def _score_moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        bounds = means + self.alpha * np.sqrt(variances)
        tolerance = self._arms.working_precision
        return bounded_choices_of_rows(means, bounds, self.ceiling, tolerance=tolerance)

    def _vector(self, x: Any) -> Floats:
        return self._lifted(inputs.vector(x, self.context_dim))

    def _vectors(self, contexts: Sequence[Any] | Floats) -> Floats:
        # One by one: a product of matrices sums in another order, and bits would differ.
        return np.array([self._vector(x) for x in contexts])

    def _matrix(self, rows: Any) -> Floats:
        if len(rows) == 0:
            return np.zeros((0, self.dim))
        return self._lifted(inputs.matrix(rows, self.context_dim))

    def _lifted(self, x: Floats) -> Floats:
        """Return x (..., d) followed by its D random features."""
        waves = np.cos(x @ self._frequencies.T + self._phases)
        waves *= np.sqrt(2.0 / self.random_features)
        return np.concatenate((x, waves), axis=-1)

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.context_dim,
            "alpha": self.alpha,
            "ridge": self.ridge,
            "ceiling": self.ceiling,
            "forget": self.forget,
            "random_features": self.random_features,
            "lengthscale": self.lengthscale,
            "seed": self.seed,
        }
