"""The actions of a decision point: named arms, mixed parts, or a sequence of picks."""

from __future__ import annotations

import json
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from steersman.spec.base import (
    ActionNames,
    Declared,
    Identifier,
    Identifiers,
    Meant,
    Problem,
    repeats,
)
from steersman.spec.parts import Part, Value  # noqa: TC001 (pydantic reads them)
from steersman.spec.standing import STANDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_CONFIGURATIONS = 10_000
"""The most combinations of a mixed point's parts: each is an action with a probability."""
MOST_CHARACTERS = 1_000
"""Of the name of a combination."""
MOST_SEEN = 20_000
"""The most candidates that one selection looks at, counted anew at each of its steps."""
FIRST_ELIGIBLE = "first"
"""In the fallback over open candidates: the first eligible one, in the order the request gave them;
of a sequence: the first `max_steps` of them."""


class Choice(Declared):
    """Named arms, of which those that are eligible may differ per request."""

    kind: Literal["choice"]
    """What kind of actions these are."""
    names: ActionNames = ()
    """The arms; may be empty when candidates come with each request."""
    open: bool = False
    """Whether requests may bring candidates that are not among `names`; for joint policies."""
    features: Identifiers = ()
    """Names of the features every candidate carries, in order; for joint policies alone."""

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("names", self.names)
        yield from repeats("features", self.features)
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


class Mixed(Declared):
    """A configuration of several parts, all drawn together.

    Every combination of values is an action, but for those that are barred. Its name is its JSON
    with the parts in the order of the alphabet, as `configuration_name` writes it.
    """

    kind: Literal["mixed"]
    """What kind of actions these are."""
    parts: Annotated[dict[Identifier, Part], Field(min_length=1, max_length=32)]
    """Parts by name; their order has no meaning."""
    barred: Annotated[
        tuple[Annotated[dict[Identifier, Value], Field(min_length=1)], ...],
        Field(strict=False, max_length=1000),
    ] = ()
    """Configurations that may not be chosen, such as those that broke a hard gate; values for some
    of the parts bar all that have them."""

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The parts' names in the order of the alphabet."""
        return tuple(sorted(self.parts))

    @cached_property
    def configurations(self) -> tuple[tuple[Value, ...], ...]:
        """The values of every combination that may be chosen, in `order`."""
        grids = [self.parts[name].grid for name in self.order]
        # By the parts they name: a look-up for each choice of parts, however many are barred.
        barred: dict[tuple[int, ...], set[tuple[Value, ...]]] = {}
        for one in self.exactly_barred:
            places = tuple(place for place, name in enumerate(self.order) if name in one)
            found = barred.setdefault(places, set())
            found.add(tuple(one[self.order[place]] for place in places))
        return tuple(
            values
            for values in product(*grids)
            if not any(
                tuple(values[place] for place in places) in found
                for places, found in barred.items()
            )
        )

    @cached_property
    def exactly_barred(self) -> tuple[dict[str, Value], ...]:
        """What is barred, with values as they are in the grids."""
        return tuple(self._exact(one) for one in self.barred)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of `configurations`."""
        return tuple(
            configuration_name(dict(zip(self.order, values, strict=True)))
            for values in self.configurations
        )

    @cached_property
    def marginals(self) -> tuple[str, ...]:
        """Every value of every part, as ``part=value`` in `order`."""
        return tuple(
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name in self.order
            for value in self.parts[name].grid
        )

    def name_of(self, values: Mapping[str, object]) -> str:
        """Return the name of the configuration with these values.

        Args:
            values: one that each part holds, for every part.
        """
        return configuration_name(self._exact(values))

    def wrong_values(self, values: Mapping[str, object]) -> Iterator[Problem]:
        """Yield what is wrong with values by part, of which some may be left out.

        Args:
            values: by name of the part.
        """
        known = list(self.parts)
        for name in sorted(values):
            got = values[name]
            if name not in self.parts:
                advice = Meant(name, known)
                yield Problem((name,), "unknown part", got, ", ".join(known), advice)
            elif not self.parts[name].holds(got):
                allowed = self.parts[name].allowed
                yield Problem((name,), "not a value of this part", got, allowed, "change it")

    def _exact(self, values: Mapping[str, object]) -> dict[str, Value]:
        return {name: self.parts[name].exact(value) for name, value in values.items()}

    def _problems(self) -> Iterator[Problem]:
        count = prod(part.count for part in self.parts.values())
        if count > MOST_CONFIGURATIONS:
            yield Problem(
                ("parts",),
                f"{count:,} combinations, each of which is an action",
                ", ".join(f"{name}: {part.count:,}" for name, part in self.parts.items()),
                f"{MOST_CONFIGURATIONS:,} or fewer",
                "give fewer values, or points of a grid, to some part",
            )
            return
        wrong = False
        for place, one in enumerate(self.barred):
            for problem in self.wrong_values(one):
                wrong = True
                yield problem._replace(path=("barred", place, *problem.path))
        if not wrong:
            yield from self._problems_of_names()

    def _problems_of_names(self) -> Iterator[Problem]:
        if not self.configurations:
            allowed, advice = "one configuration or more that is not barred", "bar fewer"
            yield Problem(("barred",), "nothing is left to choose", "all", allowed, advice)
        longest = max(map(len, self.names), default=0)
        if longest > MOST_CHARACTERS:
            allowed = f"{MOST_CHARACTERS:,} characters or fewer"
            what = f"the name of a configuration has {longest:,} characters"
            yield Problem(("parts",), what, longest, allowed, "shorten names of parts and values")


def configuration_name(values: Mapping[str, Any]) -> str:
    """Return the name of a configuration as an action: JSON, parts in the order of the alphabet.

    Args:
        values: by part; some of them name all configurations that have them.

    Returns:
        Without spaces; numbers as Python writes them.

    >>> configuration_name({"k": 8, "expand": False})
    '{"expand":false,"k":8}'
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Sequence(Declared):
    """Picks from a growing set of candidates, one step after the other, until stop."""

    kind: Literal["sequence"]
    """What kind of actions these are."""
    max_steps: Annotated[int, Field(ge=1, le=100)]
    """The most picks in one decision."""
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The most candidates of one request, those that others lead to included; times `max_steps`
    20,000 or fewer."""
    stop: bool = True
    """Whether the policy may stop before `max_steps`."""
    features: Identifiers = ()
    """Names of the features every candidate carries, in order."""
    vector: Annotated[int, Field(ge=0, le=1024)] = 0
    """How many numbers follow the features: a vector of the candidate, from which its novelty
    beside what is picked is known; 0 for none."""

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("features", self.features)
        for place, name in enumerate(self.features):
            if name in STANDING:
                allowed = f"none of {', '.join(STANDING)}"
                what = "a column of this name is there for every sequence"
                yield Problem(("features", place), what, name, allowed, "name it otherwise")
        seen = self.max_steps * self.candidates
        if seen > MOST_SEEN:
            allowed = f"max_steps times candidates of {MOST_SEEN:,} or fewer"
            what = f"a selection would look at {seen:,} candidates, each step counted"
            advice = "declare fewer steps, or fewer candidates and offer the leading ones"
            yield Problem(("candidates",), what, self.candidates, allowed, advice)


Actions = Annotated[Choice | Mixed | Sequence, Field(discriminator="kind")]
