"""The parts of a mixed action, each with the values that it can take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_MAX_VALUES = 1_001


@dataclass(frozen=True)
class Part:
    """One part of an action.

    Args:
        name: Of the part.
        size: How many values it can take, 2 to 1,001; they are numbered from 0.
        ordered: Whether neighbours are alike, as counts and weights are and names are not. Then the
            policy is a normal distribution cut to the values, with a mean and a width that depend
            on the state; otherwise each value has a logit of its own.

    Raises:
        InputError: No name, or too few or too many values.

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
        """How many numbers of the network describe its distribution."""
        return 2 if self.ordered else self.size

    @cached_property
    def grid(self) -> Floats:
        """(size,) the values between -1 and 1."""
        return np.linspace(-1.0, 1.0, self.size)


@dataclass(frozen=True)
class Drawn:
    """A mixed action.

    Args:
        values: (parts,) the number of each part's value.
        propensity: The product of the parts' probabilities: parts are drawn independently, given
            the state.
        parts: (parts,) the probability of each part's value.
    """

    values: tuple[int, ...]
    propensity: float
    parts: tuple[float, ...]


def draw(distributions: list[Floats], rng: np.random.Generator) -> Drawn:
    """Return an action drawn part by part, with its exact probability.

    Args:
        distributions: Of each part, (size,) float64 summing to 1.
        rng: One uniform a part.

    Returns:
        The values with their probabilities.

    >>> drawn = draw([np.array([0.25, 0.75])], np.random.default_rng(0))
    >>> drawn.values, drawn.propensity
    ((1,), 0.75)
    """
    return draw_each([of[None] for of in distributions], rng)[0]


def draw_each(distributions: list[Floats], rng: np.random.Generator) -> list[Drawn]:
    """Return an action for each of some states, as `draw` would one after the other.

    Args:
        distributions: Of each part, (n, size) float64, rows summing to 1.
        rng: One uniform a part, state after state.
    """
    count = len(distributions[0])
    uniforms = rng.random((count, len(distributions)))
    values = np.empty((count, len(distributions)), np.intp)
    masses = np.empty((count, len(distributions)))
    for place, of in enumerate(distributions):
        # What has no mass is never drawn: sums that end a little below 1 end at the last that has.
        last = of.shape[1] - 1 - (of[:, ::-1] > 0).argmax(axis=1)
        found = (of.cumsum(axis=1) <= uniforms[:, [place]]).sum(axis=1)
        values[:, place] = np.minimum(found, last)
        masses[:, place] = of[np.arange(count), values[:, place]]
    products = masses.prod(axis=1)
    return [
        Drawn(tuple(chosen), product, tuple(parts))
        for chosen, product, parts in zip(
            values.tolist(), products.tolist(), masses.tolist(), strict=True
        )
    ]
