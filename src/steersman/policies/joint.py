"""Joint linear policies: one weight vector over action features, for changing candidates.

Scores of a shared model are not independent across actions, so Thompson probabilities have no
one-dimensional integral. Two distributions have exact propensities: SquareCB's closed form, and the
frequencies of M seeded posterior draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.policies import inputs
from steersman.policies.choice import share_ties
from steersman.policies.linear import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class JointPolicy(LinearPolicy):
    """Base class of policies with one linear model over the features of (request, action).

    ``features`` of a request are a mapping name -> (d,), or an (n, d) array in the order of
    ``eligible`` (or of ``actions`` if ``eligible`` is None). With ``actions=()`` the set is open:
    ``eligible`` names the candidates of each request and sets the order of its arrays. Decisions
    ignore the context ``x``; ``learn`` takes the features of the chosen action as ``x``.
    ``eligible`` needs full names, also for configurations.
    """

    reads = "action_features"
    state_per_action = False

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        prior_precision: float,
        noise_var: float,
        floor: float,
        forget: float,
    ) -> None:
        super().__init__(
            actions,
            dim,
            prior_precision=prior_precision,
            noise_var=noise_var,
            floor=floor,
            forget=forget,
        )
        self.open = not self.actions

    @cached_property
    def _are_configurations(self) -> bool:
        return False  # some of the parts would name several actions, and have one row of features

    @property
    def theta(self) -> Floats:
        """(d,) posterior mean of the shared weights."""
        weights: Floats = self._arms.theta[0].copy()
        return weights

    def index(self, action: str) -> int:
        """Return the index of ``action``; 0 for any name of an open set."""
        if self.open and inputs.is_text(action):
            return 0
        return super().index(action)

    def add_action(self, name: str, *, explore: int = 0, share: float = 0.05) -> None:
        """Add an action, as in ``ChoicePolicy``; an open set takes candidates as they come."""
        self._refuse_if_open()
        super().add_action(name, explore=explore, share=share)

    def remove_action(self, name: str) -> None:
        """Remove an action, as in ``ChoicePolicy``; an open set has none to remove."""
        self._refuse_if_open()
        super().remove_action(name)

    def _refuse_if_open(self) -> None:
        if self.open:
            raise InputError(
                "this policy has an open set of actions: pass the candidates as eligible instead"
            )

    def _decide(
        self, x: Any, eligible: Sequence[str] | None, features: Any
    ) -> tuple[tuple[str, ...], Mask | None, Floats, Floats]:
        mask = None if self.open else self._mask(eligible)
        names = self.actions if eligible is None else inputs.names(eligible, "eligible")
        if not names:
            raise ActionError(
                "no action is eligible; name this request's candidates (eligible, with features "
                "of each), or serve the decision point's fallback with p 1"
            )
        scores, distribution = self._score(x, None, self._rows(names, features))
        if not self.open and eligible is not None:
            scores, distribution = self._placed(names, scores), self._placed(names, distribution)
        return (names if self.open else self.actions), mask, scores, self._mixed(mask, distribution)

    def _placed(self, names: Sequence[str], values: Floats) -> Floats:
        """Return ``values`` of ``names`` as a (K,) array in ``actions`` order, zero elsewhere."""
        placed: Floats = np.zeros(len(self.actions))
        placed[[self._index[name] for name in names]] = values
        return placed

    def _rows(self, names: Sequence[str], features: Any) -> Floats:
        if features is None:
            raise InputError(f"{type(self).__name__} needs features: one row per eligible action")
        if isinstance(features, Mapping):
            missing = [name for name in names if name not in features]
            if missing:
                raise InputError(
                    f"features are missing for {missing[:5]}; pass one row per eligible action"
                )
            return inputs.matrix([features[name] for name in names], self.dim)
        rows = inputs.matrix(features, self.dim)
        if len(rows) != len(names):
            raise InputError(
                f"features must have one row per eligible action ({len(names)}, in their "
                f"order); got {len(rows)}"
            )
        return rows


class JointSquareCB(JointPolicy):
    """SquareCB: inverse gap weighting, p_a = 1 / (n + gamma·(best − score_a)).

    The best action gets the remaining probability. An action with a larger gap in predicted reward
    is chosen less often. The closed form makes propensities exact and cheap.

    Args:
        actions: K different names, or () if every request sends its candidates.
        dim: number of action features d, in [1, 16384].
        gamma: > 0; a larger value explores less. Trap: its unit is 1 / reward; with rewards in
            [0, 1] and n candidates, gamma below n is close to uniform.
        ridge: prior precision of the weights, in [1e-9, 1e9].
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket (without buckets, per
            update).

    Raises:
        InputError: argument out of range.

    >>> policy = JointSquareCB((), dim=2, gamma=20.0)
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(50):
    ...     policy.learn(rows[0], "weather.today", 1.0)
    ...     policy.learn(rows[1], "weather.history", 0.0)
    >>> names = ["weather.today", "weather.history"]
    >>> policy.distribution(None, eligible=names, features=rows).round(4)
    array([0.9537, 0.0463])

    Source:
        Foster, Rakhlin (2020), "Beyond UCB: optimal and efficient contextual bandits with
        regression oracles", algorithm 1 (mu = n); after Abe, Long (1999).
    """

    algorithm = "joint_squarecb"

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        gamma: float = 100.0,
        ridge: float = 1.0,
        floor: float = 0.0,
        forget: float = 1.0,
    ) -> None:
        self.gamma = inputs.parameter("gamma", gamma, 0.0, 1e12, open_low=True)
        self.ridge = inputs.parameter("ridge", ridge, 1e-9, 1e9)
        super().__init__(
            actions, dim, prior_precision=self.ridge, noise_var=1.0, floor=floor, forget=forget
        )

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        scores: Floats = features @ self._arms.theta[0]
        best = share_ties(scores, None)
        distribution = 1.0 / (len(scores) + self.gamma * (scores.max() - scores))
        distribution[best > 0.0] = 0.0
        distribution += best * (1.0 - distribution.sum())
        return scores, distribution

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "gamma": self.gamma,
            "ridge": self.ridge,
            "forget": self.forget,
        }


class JointLinTS(JointPolicy):
    """Linear Thompson sampling with a shared model and M seeded posterior draws.

    The seed of the M weight vectors depends on the number of updates, so a state has one
    distribution: the share of draws that rank an action first. This share approximates the Thompson
    probability, but is exact as a propensity. Actions that no draw ranks first have probability 0,
    so off-policy evaluation needs a ``floor``.

    Args:
        actions: K different names, or () if every request sends its candidates.
        dim: number of action features d, in [1, 16384].
        prior_var: prior variance of each weight, in [1e-9, 1e9], and at most 1e12 noise_var.
        noise_var: noise variance of the reward, in [1e-9, 1e9].
        draws: M in [1, 10000]; the distribution has steps of 1/M.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket (without buckets, per
            update).
        seed: seed of the posterior draws.

    Raises:
        InputError: argument out of range.

    >>> policy = JointLinTS((), dim=2, draws=100)
    >>> rows = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    >>> policy.learn(rows["a"], "a", 1.0)
    >>> float(policy.distribution(None, eligible=["a", "b"], features=rows)[0])
    0.82

    Source:
        Agrawal, Goyal (2013), algorithm 1, with its single shared weight vector.
    """

    algorithm = "joint_lin_ts"

    def __init__(
        self,
        actions: Sequence[str],
        dim: int,
        *,
        prior_var: float = 1.0,
        noise_var: float = 0.1,
        draws: int = 64,
        floor: float = 0.0,
        forget: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.prior_var, self.noise_var = inputs.variances(prior_var, noise_var)
        self.draws = inputs.whole("draws", draws, 1, 10_000)
        self.seed = inputs.whole("seed", seed, 0, 2**63)
        super().__init__(
            actions,
            dim,
            prior_precision=1.0 / self.prior_var,
            noise_var=self.noise_var,
            floor=floor,
            forget=forget,
        )
        self._drawn: tuple[int, Floats] | None = None

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        sampled = features @ self._weights()
        best = sampled.max(axis=0)
        tied = sampled >= best - 1e-12 * np.maximum(1.0, np.abs(best))
        distribution: Floats = (tied / tied.sum(axis=0)).mean(axis=1)
        return features @ self._arms.theta[0], distribution

    def _weights(self) -> Floats:
        """Return (d, M) posterior draws; the same for the same state."""
        version = self._arms.version
        if self._drawn is None or self._drawn[0] != version:
            rng = np.random.default_rng([self.seed, self.updates])
            standard = rng.standard_normal((self.dim, self.draws))
            spread = root(self._arms.covariance(0)) @ standard
            self._drawn = version, self._arms.theta[0][:, None] + spread
        return self._drawn[1]

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "prior_var": self.prior_var,
            "noise_var": self.noise_var,
            "draws": self.draws,
            "forget": self.forget,
            "seed": self.seed,
        }


def root(covariance: Floats) -> Floats:
    """Return R (d, d) with R Rᵀ = covariance.

    Nearly collinear features with huge norms leave eigenvalues that are rounding noise on either
    side of zero, where no Cholesky factor exists: those directions are known, and count as zero.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        found: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return found
