"""Parts of a mixed action and their values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from collections.abc import Callable, Sequence


class ActionResult(Protocol):
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

    def step(self, values: Sequence[int]) -> ActionResult:
        """Take an action."""


class Stage(NamedTuple):
    """Environment of a runner, with its scaling and action parts.

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


_MAX_VALUES = 1_001


@dataclass(frozen=True)
class Part:
    """One part of a mixed action.

    Args:
        name: part name.
        size: number of values, 2 to 1,001, numbered from 0.
        ordered: whether neighbouring values are similar, as for counts and weights. An ordered part
            uses a discretised normal distribution with a mean and width that depend on the state;
            otherwise each value has its own logit.

    Raises:
        InputError: the name is empty or the size is out of range.

    >>> Part("k", 30, ordered=True).outputs, Part("variant", 3).outputs
    (2, 3)
    """

    name: str
    size: int
    ordered: bool = False

    def __post_init__(self) -> None:
        if not self.name or not 2 <= self.size <= _MAX_VALUES:
            raise InputError(
                f"part {self.name!r} has {self.size!r} values; a part needs a name and 2 to "
                f"{_MAX_VALUES:,} values; leave out a part with one value"
            )

    @property
    def outputs(self) -> int:
        """Number of network outputs for the distribution."""
        return 2 if self.ordered else self.size

    @cached_property
    def grid(self) -> Floats:
        """(size,) values scaled to -1 to 1."""
        return np.linspace(-1.0, 1.0, self.size)


@dataclass(frozen=True)
class DrawnAction:
    """Drawn mixed action.

    Args:
        values: (parts,) value index of each part.
        propensity: product of the part probabilities; parts are independent given the state.
        parts: (parts,) probability of each part's value.
    """

    values: tuple[int, ...]
    propensity: float
    parts: tuple[float, ...]


def draw(distributions: list[Floats], rng: np.random.Generator) -> DrawnAction:
    """Return an action drawn part by part, with its exact probability.

    Args:
        distributions: (size,) float64 for each part, summing to 1.

    >>> drawn = draw([np.array([0.25, 0.75])], np.random.default_rng(0))
    >>> drawn.values, drawn.propensity
    ((1,), 0.75)
    """
    return draw_each([of[None] for of in distributions], rng)[0]


def draw_each(distributions: list[Floats], rng: np.random.Generator) -> list[DrawnAction]:
    """Return one action per state, with the same results as `draw` called for each.

    `distributions`: (n, size) float64 for each part, rows summing to 1.
    """
    count = len(distributions[0])
    uniforms = rng.random((count, len(distributions)))
    values = np.empty((count, len(distributions)), np.intp)
    masses = np.empty((count, len(distributions)))
    for place, of in enumerate(distributions):
        # Values with probability 0 are never drawn, even if the sum is slightly below 1.
        last = of.shape[1] - 1 - (of[:, ::-1] > 0).argmax(axis=1)
        found = (of.cumsum(axis=1) <= uniforms[:, [place]]).sum(axis=1)
        values[:, place] = np.minimum(found, last)
        masses[:, place] = of[np.arange(count), values[:, place]]
    products = masses.prod(axis=1)
    return [
        DrawnAction(tuple(chosen), product, tuple(parts))
        for chosen, product, parts in zip(
            values.tolist(), products.tolist(), masses.tolist(), strict=True
        )
    ]
