"""Linear sequence policy with online learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.policies import inputs
from steersman.policies.linear import LinearPolicy
from steersman.policies.offered import STANDING
from steersman.policies.sequence import StepRule
from steersman.policies.sequential import SequencePolicy, form_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]


class SequenceLinear(SequencePolicy, LinearPolicy):
    """Sequence policy with a linear model of the reward of a whole selection.

    The model is r ≈ w₀ + Σ_t wᵀφ(a_t | s_t). So the policy learns from x = (Σ_t φ_t, 1) with the
    exact sums of every linear policy, and wᵀφ is the score of a step. Trap: a candidate without
    own reward that links to a rewarded candidate gets no credit.

    Args:
        actions: must be empty: candidates come with each request.
        features: names of the candidate features.
        max_steps: largest number of picks, 1 to 100.
        vector: length of the candidate vector after the features, 0 to 1,024.
        stop: whether a selection may stop before ``max_steps``.
        leading: number of best-scored candidates from which each step draws, 1 to 1,000.
        temperature: of the softmax, in units of the reward; or 0: greedy.
        start: prior mean of w by column, in units of the reward.
        prior_var: prior variance of each weight, in [1e-9, 1e9], and at most 1e12 noise_var.
        noise_var: noise variance of the reward, in [1e-9, 1e9].
        floor: probability of each step in [0, 1) that is spread evenly over its eligible actions.
        forget: decay factor in (0, 1] of older updates, per time bucket.

    Raises:
        InputError: argument out of range.

    >>> import numpy as np
    >>> policy = SequenceLinear(features=["score"], max_steps=1, stop=False, temperature=0.1)
    >>> for _ in range(20):
    ...     policy.learn([1.0, *[0.0] * 4, 0.0, 1.0, 0.0, 0.0, 1.0], "any", 1.0)
    >>> policy.scores(np.array([[1.0] + [0.0] * 8])).round(2)
    array([0.33])

    Source: a linear model of a set's reward with feedback for the whole set: Dani, Hayes & Kakade,
    Stochastic Linear Optimization under Bandit Feedback (2008); Cesa-Bianchi & Lugosi,
    Combinatorial Bandits (2012). Here the set is drawn step by step.
    """

    algorithm = "sequence_linear"
    state_per_action = False

    def __init__(
        self,
        actions: Sequence[str] = (),
        *,
        features: Sequence[str],
        max_steps: int,
        vector: int = 0,
        stop: bool = True,
        leading: int = 8,
        temperature: float = 0.05,
        start: Mapping[str, float] | None = None,
        prior_var: float = 1.0,
        noise_var: float = 0.1,
        floor: float = 0.0,
        forget: float = 1.0,
    ) -> None:
        form = form_of(actions, features, max_steps, vector, stop=stop)
        self.prior_var, self.noise_var = inputs.variances(prior_var, noise_var)
        super().__init__(
            (),
            len(form.columns) + 1,
            prior_precision=1.0 / self.prior_var,
            noise_var=self.noise_var,
            floor=floor,
            forget=forget,
        )
        self._declare(
            form,
            StepRule(leading, inputs.parameter("temperature", temperature, 0.0, 100.0), self.floor),
            {} if start is None else start,
        )

    def scores(self, rows: Floats) -> Floats:
        """Return what each action is worth: wᵀφ.

        Args:
            rows: (k, columns) columns of each action.
        """
        found: Floats = rows @ (self._arms.theta[0][:-1] + self._start)
        return found

    def _beyond(self, x: Any, reward: Any) -> float:
        """Return what a reward has beyond what the start expects: the sums are of that."""
        return inputs.reward(reward) - float(self._vector(x)[:-1] @ self._start)

    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        super()._learn(x, index, self._beyond(x, reward), weight, bucket)

    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        beyond = [self._beyond(x, reward) for x, reward in zip(rows, rewards, strict=True)]
        super()._learn_batch(rows, indexes, beyond, weights, buckets)

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        super()._withdraw(x, index, self._beyond(x, reward), weight, bucket)

    def _config(self) -> dict[str, Any]:
        own = {"prior_var": self.prior_var, "noise_var": self.noise_var, "forget": self.forget}
        return {**self._shape(), **own}

    @classmethod
    def _check_size(cls, config: dict[str, Any], sums: Sums) -> None:
        names = config.get("features")
        size = len(names) + len(STANDING) + 1 if isinstance(names, list) else 0
        super()._check_size({**config, "dim": size}, sums)
