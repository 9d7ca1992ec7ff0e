"""The parts of a mixed action, each with the values that it can take."""

from __future__ import annotations

from functools import cached_property
from math import exp, log
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from pydantic import Field

from steersman.spec.base import ONCE, Declared, PartValue, Problem, out_of_order, repeats, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = str | bool | int | float
Scale = Literal["linear", "log"]
_DIGITS = 12
_ON_GRID = 1e-9


class CategoricalPart(Declared):
    """One of several named values."""

    type: Literal["categorical"]
    """What kind of part this is."""
    values: Annotated[
        tuple[PartValue, ...],
        Field(strict=False, min_length=2, json_schema_extra=ONCE),
    ]
    """The values, at least two."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def grid(self) -> tuple[Value, ...]:
        """The values, in their order."""
        return self.values

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        return some_of(self.values)

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        return isinstance(value, str) and value in self.values

    def exact(self, value: object) -> Value:
        """Return a value that it holds, as it is in the grid.

        Args:
            value: one that it holds.
        """
        return cast("str", value)

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("values", self.values)


class IntegerPart(Declared):
    """A whole number between two bounds, both possible."""

    type: Literal["integer"]
    """What kind of part this is."""
    low: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Least value."""
    high: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Greatest value, above `low`."""
    scale: Scale = "linear"
    """`log` where doubling a value does as much everywhere; then `low` is above 0. Policies learn
    on this scale."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return self.high - self.low + 1

    @property
    def grid(self) -> tuple[Value, ...]:
        """The values, ascending."""
        return tuple(range(self.low, self.high + 1))

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        return f"{self.low!r} to {self.high!r}"

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= cast("int", value) <= self.high

    def exact(self, value: object) -> Value:
        """Return a value that it holds, as it is in the grid.

        Args:
            value: one that it holds.
        """
        return cast("int", value)

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)
        yield from _without_logarithm(self.low, self.scale)


class BooleanPart(Declared):
    """True or false."""

    type: Literal["boolean"]
    """What kind of part this is."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return 2

    @property
    def grid(self) -> tuple[Value, ...]:
        """The values."""
        return (False, True)

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        return "true or false"

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        return isinstance(value, bool)

    def exact(self, value: object) -> Value:
        """Return a value that it holds, as it is in the grid.

        Args:
            value: one that it holds.
        """
        return cast("bool", value)


class RealPart(Declared):
    """A real number, drawn on an even grid so that its propensity is a mass."""

    type: Literal["real"]
    """What kind of part this is."""
    low: Annotated[float, Field(ge=-1e9, le=1e9)]
    """Least value."""
    high: Annotated[float, Field(ge=-1e9, le=1e9)]
    """Greatest value, above `low`."""
    points: Annotated[int, Field(ge=2, le=1001)] = 21
    """Number of grid points, both ends included."""
    scale: Scale = "linear"
    """`log` where doubling a value does as much everywhere; then `low` is above 0. The grid is even
    on this scale, and policies learn on it."""

    @property
    def count(self) -> int:
        """How many values there are."""
        return self.points

    @cached_property
    def grid(self) -> tuple[Value, ...]:
        """The values, ascending, to twelve digits."""
        shares = [place / (self.points - 1) for place in range(self.points)]
        if self.scale == "log":
            inner = [exp((1 - t) * log(self.low) + t * log(self.high)) for t in shares]
        else:
            inner = [(1 - t) * self.low + t * self.high for t in shares]
            nothing = 10.0**-_DIGITS * max(abs(self.low), abs(self.high))  # what is left of a 0
            inner = [0.0 if abs(value) < nothing else value for value in inner]
        rounded = [float(f"{value:.{_DIGITS}g}") for value in inner[1:-1]]
        return (self.low, *rounded, self.high)

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        steps = "" if self.scale == "linear" else " on a logarithmic scale"
        return f"{self.low!r} to {self.high!r} in {self.points - 1} even steps{steps}"

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= cast("float", value) <= self.high:
            return False
        nearest = cast("float", self.exact(value))
        most = nearest if self.scale == "log" else max(abs(self.low), abs(self.high))
        return abs(nearest - cast("float", value)) <= _ON_GRID * most

    def exact(self, value: object) -> Value:
        """Return a value that it holds, as it is in the grid.

        Args:
            value: one that it holds.
        """
        wanted = cast("float", value)
        return min(self.grid, key=lambda one: abs(cast("float", one) - wanted))

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)
        yield from _without_logarithm(self.low, self.scale)
        drawable = self.low < self.high and (self.scale == "linear" or self.low > 0)
        if drawable and len(set(self.grid)) < self.points:
            allowed, advice = "fewer than the numbers between the bounds", "give fewer points"
            what = "points of the grid are the same number"
            yield Problem(("points",), what, self.points, allowed, advice)


Part = Annotated[
    CategoricalPart | IntegerPart | BooleanPart | RealPart, Field(discriminator="type")
]


def _without_logarithm(low: float, scale: Scale) -> Iterator[Problem]:
    if scale == "log" and low <= 0:
        yield Problem(("low",), "has no logarithm", low, "above 0", "raise it, or scale: linear")
