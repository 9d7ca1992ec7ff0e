"""Training environments for remote runners."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from steersman.training.ppo.action_parts import Part

    Floats = NDArray[np.float64]


class Played(Protocol):
    """Result of an action."""

    @property
    def state(self) -> Floats:
        """(features,) next observation."""

    @property
    def reward(self) -> float:
        """Reward of the action."""

    @property
    def last(self) -> bool:
        """Whether the episode is truncated here; later rewards still have value."""


class Episodes(Protocol):
    """Training environment."""

    def reset(self, rng: np.random.Generator) -> Floats:
        """Begin an episode and return its first observation, (features,)."""

    def step(self, values: Sequence[int]) -> Played:
        """Take an action."""


class Stage(NamedTuple):
    """Everything that a runner needs.

    Args:
        episodes: the environment.
        scale: maps an observation to finite network inputs.
        parts: action parts.
        features: number of state features.
    """

    episodes: Episodes
    scale: Callable[[Floats], Floats]
    parts: tuple[Part, ...]
    features: int
