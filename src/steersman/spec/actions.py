"""The actions of a decision point: named arms, mixed parts, or a sequence of picks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from steersman.spec.base import (
    ActionName,
    ActionNames,
    Declared,
    Identifier,
    Identifiers,
    Problem,
    repeated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_ELIGIBLE = "first"
"""In rules over open candidates: the first eligible one, in the order the request gave them."""


class Choice(Declared):
    """Named arms, of which those that are eligible may differ per request."""

    kind: Literal["choice"]
    """What kind of actions these are."""
    names: ActionNames = ()
    """The arms; may be empty when candidates come with each request."""
    open: bool = False
    """Whether requests may bring candidates that are not among `names`."""
    features: Identifiers = ()
    """Names of the features every candidate carries, in order; for joint policies."""

    def _problems(self) -> Iterator[Problem]:
        yield from _repeats("names", self.names)
        yield from _repeats("features", self.features)
        if not self.names and not self.open:
            yield Problem(
                ("names",),
                "no actions",
                [],
                "at least one name",
                "name the actions, or set open: true if candidates come with each request",
            )
        if self.open and FIRST_ELIGIBLE in self.names:
            yield Problem(
                ("names", self.names.index(FIRST_ELIGIBLE)),
                f"{FIRST_ELIGIBLE!r} means the first eligible candidate where actions are open",
                FIRST_ELIGIBLE,
                "any other name",
                "rename this action",
            )


class CategoricalPart(Declared):
    """One of several named values."""

    type: Literal["categorical"]
    """What kind of part this is."""
    values: Annotated[tuple[ActionName, ...], Field(strict=False, min_length=2)]
    """The values, at least two."""

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        return ", ".join(self.values)

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        return value in self.values

    def _problems(self) -> Iterator[Problem]:
        yield from _repeats("values", self.values)


class IntegerPart(Declared):
    """A whole number between two bounds, both possible."""

    type: Literal["integer"]
    """What kind of part this is."""
    low: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Least value."""
    high: Annotated[int, Field(ge=-(10**9), le=10**9)]
    """Greatest value, above `low`."""

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

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)


class BooleanPart(Declared):
    """True or false."""

    type: Literal["boolean"]
    """What kind of part this is."""

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

    @property
    def allowed(self) -> str:
        """The values this part can take, for people."""
        return f"{self.low!r} to {self.high!r}"

    def holds(self, value: object) -> bool:
        """Return whether this part can take ``value``.

        Args:
            value: anything.
        """
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= cast("float", value) <= self.high

    def _problems(self) -> Iterator[Problem]:
        yield from out_of_order(self.low, self.high)


Part = Annotated[
    CategoricalPart | IntegerPart | BooleanPart | RealPart, Field(discriminator="type")
]


class Mixed(Declared):
    """A configuration of several parts, all drawn together."""

    kind: Literal["mixed"]
    """What kind of actions these are."""
    parts: Annotated[dict[Identifier, Part], Field(min_length=1, max_length=32)]
    """Parts by name; their order has no meaning."""


class Sequence(Declared):
    """Picks from a growing set of candidates, one step after the other, until stop."""

    kind: Literal["sequence"]
    """What kind of actions these are."""
    max_steps: Annotated[int, Field(ge=1, le=100)]
    """The most picks in one decision."""
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most candidates that are looked at in one step."""
    stop: bool = True
    """Whether the policy may stop before `max_steps`."""
    features: Identifiers = ()
    """Names of the features every candidate carries, in order."""

    def _problems(self) -> Iterator[Problem]:
        yield from _repeats("features", self.features)


Actions = Annotated[Choice | Mixed | Sequence, Field(discriminator="kind")]


def out_of_order(low: float, high: float) -> Iterator[Problem]:
    """Yield the problem of bounds that leave nothing between them."""
    if low >= high:
        yield Problem(
            ("low",),
            f"low is not below high ({high!r})",
            low,
            f"below {high!r}",
            "lower low or raise high",
        )


def _repeats(field: str, names: tuple[str, ...]) -> Iterator[Problem]:
    for place, name in repeated(names):
        yield Problem((field, place), "named twice", name, "each name once", "remove or rename it")
