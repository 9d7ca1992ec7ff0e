"""Epsilon-greedy, plain and contextual, with a decaying epsilon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.policies import inputs
from steersman.policies.choice import mix_floor, share_ties
from steersman.policies.linear import LinearPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_ONE: Floats = np.ones(1)


class EpsilonGreedy(LinearPolicy):
    """Epsilon-greedy: the best estimate, and with probability epsilon any eligible action.

    With ``dim``, the estimate is a ridge regression per action. Without it, the estimate is the
    mean reward, shrunk by one observation of zero. Epsilon decays with every learned reward, not
    with decisions: epsilon * decay**updates, at least min_epsilon, but never above its initial
    value.

    Args:
        actions: K different names.
        dim: number of features. ``None``: no context (``x`` is ignored).
        epsilon: total probability in [0, 1] that is spread evenly over the eligible actions.
        decay: in (0, 1], per update. Trap: .99 leaves 1 % of epsilon after 459 updates.
        min_epsilon: lower limit of epsilon under ``decay``, in [0, 1]. A smaller epsilon stays.
        floor: additional total probability in [0, 1) for off-policy evaluation; it never decays.

    Raises:
        InputError: argument out of range.

    >>> policy = EpsilonGreedy(["hit", "miss"], epsilon=0.2)
    >>> policy.learn(None, "hit", 1.0)
    >>> policy.distribution(None)
    array([0.9, 0.1])

    Source:
        Sutton, Barto (2018), "Reinforcement Learning", section 2.2; contextual as in Bietti,
        Agarwal, Langford (2021), "A contextual bandit bake-off", section 3.
    """

    algorithm = "epsilon_greedy"
    continuous = False

    def __init__(
        self,
        actions: Sequence[str],
        dim: int | None = None,
        *,
        epsilon: float = 0.1,
        decay: float = 1.0,
        min_epsilon: float = 0.01,
        floor: float = 0.0,
    ) -> None:
        self.contextual = dim is not None
        self.reads = "vector" if self.contextual else "nothing"
        self.epsilon = inputs.parameter("epsilon", epsilon, 0.0, 1.0)
        self.decay = inputs.parameter("decay", decay, 0.0, 1.0, open_low=True)
        self.min_epsilon = inputs.parameter("min_epsilon", min_epsilon, 0.0, 1.0)
        super().__init__(
            actions,
            1 if dim is None else dim,
            prior_precision=1.0,
            noise_var=1.0,
            floor=floor,
            forget=1.0,
        )

    @property
    def current_epsilon(self) -> float:
        """Epsilon after the updates learned so far."""
        if self.decay == 1.0:
            return self.epsilon
        return max(min(self.min_epsilon, self.epsilon), self.epsilon * self.decay**self.updates)

    def _vector(self, x: Any) -> Floats:
        return super()._vector(x) if self.contextual else _ONE

    def _matrix(self, rows: Any) -> Floats:
        return super()._matrix(rows) if self.contextual else np.ones((len(rows), 1))

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        if features is not None:
            raise InputError("EpsilonGreedy does not use features of actions; omit features")
        scores = self._arms.means(self._vector(x))
        return scores, mix_floor(share_ties(scores, mask), mask, self.current_epsilon)

    def _config(self) -> dict[str, Any]:
        return {
            "dim": self.dim if self.contextual else None,
            "epsilon": self.epsilon,
            "decay": self.decay,
            "min_epsilon": self.min_epsilon,
        }
