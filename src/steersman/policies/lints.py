"""Linear Thompson sampling with one model per arm and exact choice probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.policies import inputs
from steersman.policies.gaussian_choice import choose_normal
from steersman.policies.linear import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class LinTS(LinearPolicy):
    """Linear Thompson sampling: an arm's probability is that of the largest score θ_aᵀx.

    Per arm the precision is L_a = I/prior_var + Σ xxᵀ/noise_var and m_a = L_a⁻¹ Σ r x/noise_var, so
    the score is N(m_aᵀx, xᵀL_a⁻¹x), independent across arms. The probabilities are computed, in
    closed form or by quadrature, instead of drawing θ, so the logged propensity is exact and
    decisions vary less.

    Args:
        actions: K different names.
        dim: number of features d, in [1, 16384].
        prior_var: prior variance of each weight, in [1e-9, 1e9], and at most 1e12 noise_var.
            Trap: with a small value new arms are never tried. It corresponds to 1/ridge.
        noise_var: noise variance of the reward, in [1e-9, 1e9]. Rewards in [0, 1] have at
            most 0.25; larger values explore longer.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket (without buckets, per
            update).

    Raises:
        InputError: argument out of range.

    >>> policy = LinTS(["short", "long"], dim=2)
    >>> for _ in range(20):
    ...     policy.learn([1.0, 0.0], "short", 1.0)
    ...     policy.learn([1.0, 0.0], "long", 0.0)
    >>> policy.distribution([1.0, 0.0]).round(4)
    array([1., 0.])
    >>> policy.distribution([0.0, 1.0])
    array([0.5, 0.5])

    Source:
        Agrawal, Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs",
        algorithm 1, with one model per arm as in Li et al. (2010) and a Gaussian noise variance.
    """

    algorithm = "lin_ts"

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        prior_var: float = 1.0,
        noise_var: float = 0.1,
        floor: float = 0.0,
        forget: float = 1.0,
    ) -> None:
        self.prior_var, self.noise_var = inputs.variances(prior_var, noise_var)
        super().__init__(
            actions,
            dim,
            prior_precision=1.0 / self.prior_var,
            noise_var=self.noise_var,
            floor=floor,
            forget=forget,
        )

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        self._no_features(features)
        means, variances = self._arms.means_and_variances(self._vector(x))
        sds = np.sqrt(variances)
        if mask is None:
            return means, choose_normal(means, sds)
        distribution: Floats = np.zeros(len(means))
        distribution[mask] = choose_normal(means[mask], sds[mask])
        return means, distribution

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "prior_var": self.prior_var,
            "noise_var": self.noise_var,
            "forget": self.forget,
        }
