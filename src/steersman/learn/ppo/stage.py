"""What a policy is trained in elsewhere: episodes, and how they are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from steersman.learn.ppo.parts import Part

    Floats = NDArray[np.float64]


class Played(Protocol):
    """What came of an action."""

    @property
    def state(self) -> Floats:
        """(features,) seen now."""

    @property
    def reward(self) -> float:
        """Of the action."""

    @property
    def last(self) -> bool:
        """Whether nothing more is played; what would come is still worth something."""


class Episodes(Protocol):
    """Something to be trained in."""

    def reset(self, rng: np.random.Generator) -> Floats:
        """Begin an episode, and return (features,) what is seen.

        Args:
            rng: Draws all of it.
        """

    def step(self, values: Sequence[int]) -> Played:
        """Act.

        Args:
            values: (parts,) the number of each part's value.
        """


class Stage(NamedTuple):
    """All that a runner needs to play.

    Args:
        episodes: What is played.
        scale: From what is seen to what the network is given, finite.
        parts: Of an action.
        features: Of a state.
    """

    episodes: Episodes
    scale: Callable[[Floats], Floats]
    parts: tuple[Part, ...]
    features: int
