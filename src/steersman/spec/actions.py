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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STANDING = (
    *("hop", "linked", "linked_last", "novelty", "picked", "is_pick", "is_stop", "stop_after"),
)
"""Columns that describe the state of the selection, in order.

hop: number of links followed to the candidate; 0 for an initial candidate. linked: number of picked
candidates that link to it. linked_last: whether the last pick links to it. novelty: 1 minus the
largest cosine similarity of its vector to a picked vector; 1 without vectors. picked: number of
picks so far. is_pick, is_stop: type of the action. stop_after: number of picks so far, for stop
only. All other columns are 0 for stop.
"""


MOST_CONFIGURATIONS = 10_000
"""Largest number of combinations of parts in a mixed decision point. Each is one action."""
MOST_CHARACTERS = 1_000
"""Largest length of a configuration's name, in characters."""
MOST_SEEN = 20_000
"""Largest number of candidates that one selection scores, summed over its steps."""
FIRST_ELIGIBLE = "first"
"""Fallback action for open candidates: the first eligible one, in the order of the request.
For a sequence: the first `max_steps` candidates."""


class Choice(Declared):
    """Named actions. Each request can limit which of them are eligible."""

    kind: Literal["choice"]
    """Kind of the actions."""
    names: ActionNames = ()
    """Names of the actions. May be empty if every request sends its own candidates."""
    open: bool = False
    """Whether a request may send candidates that are not in `names`. Joint policies only."""
    features: Identifiers = ()
    """Names of the features that every candidate has, in order. Joint policies only."""

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("names", self.names)
        yield from repeats("features", self.features)
        if not self.names and not self.open:
            yield Problem(
                ("names",),
                "no actions",
                [],
                "at least one name",
                "name the actions, or set open: true if every request sends its candidates",
            )
        if self.open and FIRST_ELIGIBLE in self.names:
            yield Problem(
                ("names", self.names.index(FIRST_ELIGIBLE)),
                f"{FIRST_ELIGIBLE!r} means the first eligible candidate when actions are open",
                FIRST_ELIGIBLE,
                "any other name",
                "rename this action",
            )


class Mixed(Declared):
    """A configuration of several parts, drawn together.

    Every combination of values is one action, except the barred combinations. The name of an
    action is its JSON with sorted part names, as `configuration_name` writes it.
    """

    kind: Literal["mixed"]
    """Kind of the actions."""
    parts: Annotated[dict[Identifier, Part], Field(min_length=1, max_length=32)]
    """Parts by name. The order has no meaning."""
    barred: Annotated[
        tuple[Annotated[dict[Identifier, Value], Field(min_length=1)], ...],
        Field(strict=False, max_length=1000),
    ] = ()
    """Configurations that must not be chosen, for example after a failed hard gate. Values for some
    of the parts bar every configuration that has these values."""

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names of the parts, sorted."""
        return tuple(sorted(self.parts))

    @cached_property
    def configurations(self) -> tuple[tuple[Value, ...], ...]:
        """Values of every combination that is not barred, in `order`."""
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
        """Barred values, rounded to the grids of their parts."""
        return tuple(self._exact(one) for one in self.barred)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of `configurations`."""
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
        """Return the action name of a configuration."""
        return configuration_name(self._exact(values))

    def wrong_values(self, values: Mapping[str, object]) -> Iterator[Problem]:
        """Yield a problem for every unknown part and every value that its part does not allow."""
        known = list(self.parts)
        for name in sorted(values):
            got = values[name]
            if name not in self.parts:
                advice = Meant(name, known)
                yield Problem((name,), "unknown part", got, ", ".join(known), advice)
            elif not self.parts[name].holds(got):
                allowed = self.parts[name].allowed
                yield Problem((name,), "value not allowed for this part", got, allowed, "change it")

    def _exact(self, values: Mapping[str, object]) -> dict[str, Value]:
        return {name: self.parts[name].exact(value) for name, value in values.items()}

    def _problems(self) -> Iterator[Problem]:
        count = prod(part.count for part in self.parts.values())
        if count > MOST_CONFIGURATIONS:
            yield Problem(
                ("parts",),
                f"too many actions: {count:,} combinations of parts",
                ", ".join(f"{name}: {part.count:,}" for name, part in self.parts.items()),
                f"{MOST_CONFIGURATIONS:,} or fewer",
                "reduce the values or grid points of some parts",
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
            allowed, advice = "at least one configuration", "bar fewer configurations"
            yield Problem(("barred",), "all configurations are barred", "all", allowed, advice)
        longest = max(map(len, self.names), default=0)
        if longest > MOST_CHARACTERS:
            allowed = f"{MOST_CHARACTERS:,} characters or fewer"
            what = f"a configuration name is too long: {longest:,} characters"
            yield Problem(("parts",), what, longest, allowed, "shorten part names or values")


def configuration_name(values: Mapping[str, Any]) -> str:
    """Return the action name of a configuration: JSON with sorted part names.

    >>> configuration_name({"k": 8, "expand": False})
    '{"expand":false,"k":8}'
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class Sequence(Declared):
    """A list of picks from a growing set of candidates, step by step until stop."""

    kind: Literal["sequence"]
    """Kind of the actions."""
    max_steps: Annotated[int, Field(ge=1, le=100)]
    """Largest number of picks in one decision."""
    candidates: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Largest number of candidates of one request, including linked candidates. The product with
    `max_steps` is at most 20,000."""
    stop: bool = True
    """Whether the policy may stop before `max_steps`."""
    features: Identifiers = ()
    """Names of the features that every candidate has, in order."""
    vector: Annotated[int, Field(ge=0, le=1024)] = 0
    """Length of the candidate's vector, sent after its features. The policy uses it to compute how
    novel the candidate is compared with the picks. 0: no vector."""

    def _problems(self) -> Iterator[Problem]:
        yield from repeats("features", self.features)
        for place, name in enumerate(self.features):
            if name in STANDING:
                allowed = f"none of {', '.join(STANDING)}"
                what = "this name is reserved: every sequence has this column"
                yield Problem(("features", place), what, name, allowed, "rename this feature")
        seen = self.max_steps * self.candidates
        if seen > MOST_SEEN:
            allowed = f"max_steps times candidates of {MOST_SEEN:,} or fewer"
            what = f"a selection would score {seen:,} candidates over all steps"
            advice = "lower max_steps or candidates"
            yield Problem(("candidates",), what, self.candidates, allowed, advice)


Actions = Annotated[Choice | Mixed | Sequence, Field(discriminator="kind")]
