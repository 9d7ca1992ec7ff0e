"""LinUCB and bounded LinUCB with one model per arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.policies import inputs
from steersman.policies.batch import share_ties_of_rows
from steersman.policies.choice import share_ties
from steersman.policies.linear import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.arm_sums import ArmSums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class LinUCB(LinearPolicy):
    """LinUCB: the arm with the largest upper confidence bound θ_aᵀx + alpha·√(xᵀA_a⁻¹x).

    A_a = ridge·I + Σ xxᵀ, θ_a = A_a⁻¹ Σ r x. The bonus is the width of a confidence ellipsoid at x.
    The choice is deterministic, so without a ``floor`` all propensities are 0 or 1 (or shared by
    ties), and off-policy evaluation refuses the log.

    Args:
        actions: K different names.
        dim: number of features d, in [1, 16384].
        alpha: width of the bonus, >= 0; 0 is greedy. Trap: it multiplies a standard deviation in
            units of the features' scale, so features should have a norm of about 1.
        ridge: prior precision, in [1e-9, 1e9]. Trap: large values shrink the bonus of new arms too.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket (without buckets, per
            update).

    Raises:
        InputError: argument out of range.

    >>> policy = LinUCB(["micro", "planner"], dim=2)
    >>> policy.learn([1.0, 0.5], "micro", 0.0)
    >>> policy.learn([1.0, 0.5], "planner", 1.0)
    >>> choice = policy.decide([1.0, 0.4], rng=np.random.default_rng(0))
    >>> choice.action, choice.propensity
    ('planner', 1.0)

    Source:
        Li, Chu, Langford, Schapire (2010), "A contextual-bandit approach to personalized news
        article recommendation", algorithm 1 (ridge in place of 1 is ours).
    """

    algorithm = "lin_ucb"
    continuous = False
    _scores_rows = True

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        alpha: float = 1.0,
        ridge: float = 1.0,
        floor: float = 0.0,
        forget: float = 1.0,
    ) -> None:
        self.alpha = inputs.parameter("alpha", alpha, 0.0, 1e6)
        self.ridge = inputs.parameter("ridge", ridge, 1e-9, 1e9)
        super().__init__(
            actions, dim, prior_precision=self.ridge, noise_var=1.0, floor=floor, forget=forget
        )

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        self._no_features(features)
        _, bounds = upper_bounds(self._arms, self._vector(x), self.alpha)
        return bounds, share_ties(bounds, mask, tolerance=self._arms.working_precision)

    def _score_moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        bounds = means + self.alpha * np.sqrt(variances)
        return bounds, share_ties_of_rows(bounds, tolerance=self._arms.working_precision)

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "alpha": self.alpha,
            "ridge": self.ridge,
            "forget": self.forget,
        }


class BoundedLinUCB(LinearPolicy):
    """LinUCB with upper bounds clipped at ``ceiling``, the largest possible reward.

    At first almost every bound exceeds the largest reward, and plain LinUCB follows the widest
    bound. Here all arms whose bound reaches the ceiling tie, and the best mean among them wins. If
    none reaches it, the largest bound wins. With rewards in [0, 1], as declared, it explores less
    and learns faster: see ``benchmarks.learning``.

    Args:
        actions: K different names.
        dim: number of features d, in [1, 16384].
        alpha: width of the bonus, >= 0.
        ridge: prior precision, in [1e-9, 1e9].
        ceiling: largest possible reward. Trap: below the true maximum it stops exploring.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket.

    Raises:
        InputError: argument out of range.

    >>> policy = BoundedLinUCB(["a", "b"], dim=1)
    >>> policy.learn([1.0], "a", 1.0)
    >>> policy.distribution([1.0])  # both bounds reach 1; a has the better mean
    array([1., 0.])

    Source:
        Bounds cut at the largest possible value: Azar, Osband, Munos (2017), "Minimax regret bounds
        for reinforcement learning", algorithm 2. Breaking the resulting ties by the mean is ours.
    """

    algorithm = "bounded_lin_ucb"
    continuous = False
    _scores_rows = True

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        alpha: float = 1.0,
        ridge: float = 1.0,
        ceiling: float = 1.0,
        floor: float = 0.0,
        forget: float = 1.0,
    ) -> None:
        self.alpha = inputs.parameter("alpha", alpha, 0.0, 1e6)
        self.ridge = inputs.parameter("ridge", ridge, 1e-9, 1e9)
        self.ceiling = inputs.parameter("ceiling", ceiling, -1e9, 1e9)
        super().__init__(
            actions, dim, prior_precision=self.ridge, noise_var=1.0, floor=floor, forget=forget
        )

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        self._no_features(features)
        return bounded_choice(self._arms, self._vector(x), self.alpha, self.ceiling, mask)

    def _score_moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        bounds = means + self.alpha * np.sqrt(variances)
        tolerance = self._arms.working_precision
        return bounded_choices_of_rows(means, bounds, self.ceiling, tolerance=tolerance)

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "alpha": self.alpha,
            "ridge": self.ridge,
            "ceiling": self.ceiling,
            "forget": self.forget,
        }


def upper_bounds(arms: ArmSums, x: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the means (K,) at ``x`` and the bounds (K,) that lie ``alpha`` deviations above."""
    means, variances = arms.means_and_variances(x)
    return means, means + alpha * np.sqrt(variances)


def bounded_choice(
    arms: ArmSums, x: Floats, alpha: float, ceiling: float, mask: Mask | None
) -> tuple[Floats, Floats]:
    """Return the bounds (K,) cut at ``ceiling``, and the greedy distribution (K,) over them.

    Among the arms that reach the ceiling the best mean wins; if none does, the best bound.
    """
    means, bounds = upper_bounds(arms, x, alpha)
    reaching = bounds >= ceiling
    if mask is not None:
        reaching &= mask
    if reaching.any():
        chosen = share_ties(means, reaching, tolerance=arms.working_precision)
        return np.minimum(bounds, ceiling), chosen
    return bounds, share_ties(bounds, mask, tolerance=arms.working_precision)


def bounded_choices_of_rows(
    means: Floats, bounds: Floats, ceiling: float, *, tolerance: float
) -> tuple[Floats, Floats]:
    """Return bounds and distributions (n, K) of means and bounds (n, K): as `bounded_choice`."""
    reaching: Mask = bounds >= ceiling
    some = np.logical_or.reduce(reaching, axis=1, keepdims=True)
    ranked = np.where(some, np.where(reaching, means, -np.inf), bounds)
    chosen = share_ties_of_rows(ranked, tolerance=tolerance)
    return np.where(some, np.minimum(bounds, ceiling), bounds), chosen
