"""Synthetic worlds of estimator checks, with known true values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.ope import LoggedData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class World:
    """World with known mean rewards, a logging policy and a target policy.

    What both policies do depends on which of two kinds a context is; what an action earns does not,
    so that a model that knows no contexts is right too.

    Args:
        means: mean reward of each action, shape (K,).
        noise: rewards are uniform that far around their mean.
        logged: probabilities of the logging policy in the two kinds of contexts, shape (2, K).
        target: likewise of the target policy.
        reward_range: smallest and largest reward, where that is not (0, 1).
    """

    means: Floats
    noise: float
    logged: Floats
    target: Floats
    reward_range: tuple[float, float] | None = None

    @property
    def truth(self) -> float:
        """True value of the target policy."""
        return float((self.target @ self.means).mean())

    def error(self, rows: int) -> float:
        """Return the standard error of the worse of IPS and SNIPS on a log.

        Args:
            rows: how many it has.
        """
        second = self.target**2 / self.logged  # moments of the weights
        noise = self.noise**2 / 3.0
        ips = (second @ (self.means**2 + noise)).mean() - self.truth**2
        snips = (second @ ((self.means - self.truth) ** 2 + noise)).mean()
        return float(np.sqrt(max(ips, snips) / rows))

    def log(self, rng: np.random.Generator, rows: int) -> LoggedData:
        """Return a log, without predictions.

        Args:
            rng: draws contexts, actions and rewards.
            rows: how many to draw.
        """
        kinds = rng.integers(len(self.logged), size=rows)
        logged = self.logged[kinds]
        actions = (rng.random((rows, 1)) > logged.cumsum(axis=1)[:, :-1]).sum(axis=1)
        return LoggedData(
            actions=actions,
            rewards=self.means[actions] + rng.uniform(-self.noise, self.noise, rows),
            propensities=np.take_along_axis(logged, actions[:, None], axis=1)[:, 0],
            target=self.target[kinds],
            reward_range=self.reward_range,
        )

    def predictions(self, rng: np.random.Generator, rows: int) -> Floats:
        """Return predicted rewards that are right but for some noise, shape (rows, K).

        Args:
            rng: draws the noise.
            rows: of the log that they are for.
        """
        noise = 0.05 * rng.normal(size=(rows, len(self.means)))
        return np.asarray(self.means + noise)


MILD = World(
    means=np.array([0.2, 0.5, 0.8]),
    noise=0.2,
    logged=np.array([[0.5, 0.3, 0.2], [0.25, 0.35, 0.4]]),
    target=np.array([[0.2, 0.3, 0.5], [0.3, 0.5, 0.2]]),
)
# Weights of up to 15, rewards below zero, and more actions than anybody would write out.
WILD = World(
    means=np.array([-0.7, 0.3, -0.5, 0.4, 0.6]),
    noise=0.3,
    logged=np.array([[0.4, 0.3, 0.2, 0.06, 0.04], [0.25, 0.3, 0.2, 0.15, 0.1]]),
    target=np.array([[0.1, 0.1, 0.1, 0.1, 0.6], [0.3, 0.1, 0.2, 0.35, 0.05]]),
    reward_range=(-1.0, 1.0),
)
