"""Parts of mixed actions and their values."""

from __future__ import annotations

from functools import cached_property
from math import exp, log, prod
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from pydantic import Field

from steersman.spec.base import ONCE, Declared, PartValue, Problem, out_of_order, repeats, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.spec.actions import Mixed
    from steersman.spec.policy import FactoredTSPolicy

_MOST_FEATURES = 512
_MOST_WEIGHTS = 1_024
_MOST_WORK = 250_000_000
_WAVES = 4  # maximum per number with a scale


def too_much(actions: Mixed, policy: FactoredTSPolicy, dim: int) -> Iterator[Problem]:
    """Yield the first exceeded limit of features, weights or multiplications.

    `dim` is the length of the context.
    """
    parts = [actions.parts[name] for name in actions.order]
    columns = [
        min(_WAVES, part.count - 1) if hasattr(part, "scale") else part.count - 1 for part in parts
    ]
    alone = sum(columns)
    pairs = (alone**2 - sum(count**2 for count in columns)) // 2 if policy.pairs else 0
    features = 1 + alone + pairs
    weights = features + (dim * alone if policy.contextual else 0)
    work = _work([part.count for part in parts], columns, pairs=policy.pairs)
    work = (weights**2 + work) * policy.draws
    if features > _MOST_FEATURES:
        yield Problem(
            ("actions", "parts"),
            f"too many features of parts and pairs: {features:,}",
            features,
            f"{_MOST_FEATURES} or fewer with factored_ts",
            "declare fewer categorical values, or pairs: false",
        )
    elif weights > _MOST_WEIGHTS:
        yield Problem(
            ("context", "dim"),
            f"too many weights: {weights:,} ({features} features and {alone} times {dim} context "
            "numbers)",
            dim,
            f"{_MOST_WEIGHTS:,} weights or fewer with factored_ts",
            "lower dim, declare fewer categorical values, or contextual: false",
        )
    elif work > _MOST_WORK:
        yield Problem(
            ("policy", "draws"),
            f"too slow: {policy.draws:,} draws of {weights:,} weights take {work:,} "
            "multiplications after an update",
            policy.draws,
            f"{_MOST_WORK:,} multiplications or fewer",
            "declare fewer draws, fewer values, or pairs: false",
        )


def _work(sizes: Sequence[int], columns: Sequence[int], *, pairs: bool) -> int:
    """Return the multiplications of one draw when configurations are split into halves."""
    cut = min(range(len(sizes)), key=lambda cut: prod(sizes[:cut]) + prod(sizes[cut:]))
    left, right = prod(sizes[:cut]), prod(sizes[cut:])
    own, across = (sum(columns[:cut]), sum(columns[cut:])) if pairs else (0, 0)
    return left * across * (own + right) + left * right


Value: TypeAlias = str | bool | int | float
Scale = Literal["linear", "log"]
_DIGITS = 12
_ON_GRID = 1e-9


class CategoricalPart(Declared):
    """One of several named values."""

    type: Literal["categorical"]
    """Type of the part."""
    values: Annotated[
        tuple[PartValue, ...],
        Field(strict=False, min_length=2, json_schema_extra=ONCE),
    ]
    """Values, at least two."""

    @property
    def count(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def grid(self) -> tuple[Value, ...]:
        """Values in declared order."""
        return self.values

    @property
    def allowed(self) -> str:
        """Allowed values, as text for messages."""
        return some_of(self.values)

    def holds(self, value: object) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, str) and value in self.values

    def exact(self, value: object) -> Value:
        """Return the grid value of an allowed value."""
        return cast("str", value)

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("values", self.values)


class IntegerPart(Declared):
    """A whole number between two bounds, both included."""

    type: Literal["integer"]
    """Type of the part."""
    low: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Minimum."""
    high: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Maximum, above `low`."""
    scale: Scale = "linear"
    """Scale on which policies learn. `log`: use it if doubling has a similar effect at every value;
    requires `low` above 0."""

    @property
    def count(self) -> int:
        """Number of values."""
        return self.high - self.low + 1

    @property
    def grid(self) -> tuple[Value, ...]:
        """Values, ascending."""
        return tuple(range(self.low, self.high + 1))

    @property
    def allowed(self) -> str:
        """Allowed values, as text for messages."""
        return f"{self.low!r} to {self.high!r}"

    def holds(self, value: object) -> bool:
        """Return whether a value is allowed."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= cast("int", value) <= self.high

    def exact(self, value: object) -> Value:
        """Return the grid value of an allowed value."""
        return cast("int", value)

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)
        yield from _without_logarithm(self.low, self.scale)


class BooleanPart(Declared):
    """True or false."""

    type: Literal["boolean"]
    """Type of the part."""

    @property
    def count(self) -> int:
        """Number of values."""
        return 2

    @property
    def grid(self) -> tuple[Value, ...]:
        """Values."""
        return (False, True)

    @property
    def allowed(self) -> str:
        """Allowed values, as text for messages."""
        return "true or false"

    def holds(self, value: object) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, bool)

    def exact(self, value: object) -> Value:
        """Return the grid value of an allowed value."""
        return cast("bool", value)


class RealPart(Declared):
    """A real number, drawn from an even grid so that its propensity is a probability."""

    type: Literal["real"]
    """Type of the part."""
    low: Annotated[float, Field(ge=-1e9, le=1e9)]
    """Minimum."""
    high: Annotated[float, Field(ge=-1e9, le=1e9)]
    """Maximum, above `low`."""
    points: Annotated[int, Field(ge=2, le=1001)] = 21
    """Number of grid points, including both ends."""
    scale: Scale = "linear"
    """Scale of the even grid, on which policies learn. `log`: use it if doubling has a similar
    effect at every value; requires `low` above 0."""

    @property
    def count(self) -> int:
        """Number of values."""
        return self.points

    @cached_property
    def grid(self) -> tuple[Value, ...]:
        """Values, ascending, rounded to twelve digits."""
        shares = [place / (self.points - 1) for place in range(self.points)]
        if self.scale == "log":
            inner = [exp((1 - t) * log(self.low) + t * log(self.high)) for t in shares]
        else:
            inner = [(1 - t) * self.low + t * self.high for t in shares]
            nothing = 10.0**-_DIGITS * max(
                abs(self.low), abs(self.high)
            )  # rounding error of a zero
            inner = [0.0 if abs(value) < nothing else value for value in inner]
        rounded = [float(f"{value:.{_DIGITS}g}") for value in inner[1:-1]]
        return (self.low, *rounded, self.high)

    @property
    def allowed(self) -> str:
        """Allowed values, as text for messages."""
        steps = "" if self.scale == "linear" else " on a logarithmic scale"
        return f"{self.low!r} to {self.high!r} in {self.points - 1} even steps{steps}"

    def holds(self, value: object) -> bool:
        """Return whether a value is allowed."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= cast("float", value) <= self.high:
            return False
        nearest = cast("float", self.exact(value))
        most = nearest if self.scale == "log" else max(abs(self.low), abs(self.high))
        return abs(nearest - cast("float", value)) <= _ON_GRID * most

    def exact(self, value: object) -> Value:
        """Return the grid value of an allowed value."""
        wanted = cast("float", value)
        return min(self.grid, key=lambda one: abs(cast("float", one) - wanted))

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)
        yield from _without_logarithm(self.low, self.scale)
        drawable = self.low < self.high and (self.scale == "linear" or self.low > 0)
        if drawable and len(set(self.grid)) < self.points:
            allowed, advice = (
                "fewer points than floating-point numbers between the bounds",
                "lower points",
            )
            what = "grid points coincide after rounding"
            yield Problem(("points",), what, self.points, allowed, advice)


Part = Annotated[
    CategoricalPart | IntegerPart | BooleanPart | RealPart, Field(discriminator="type")
]


def _without_logarithm(low: float, scale: Scale) -> Iterator[Problem]:
    if scale == "log" and low <= 0:
        yield Problem(
            ("low",), "scale log needs a positive low", low, "above 0", "raise it, or scale: linear"
        )
