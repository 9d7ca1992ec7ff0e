"""The reward: which outcomes count, by how much, within which time."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

from steersman.spec.base import Declared, Fraction, Identifier, Problem, out_of_order

if TYPE_CHECKING:
    from collections.abc import Iterator


_LEAST_WEIGHT = 1e-6  # a smaller one is lost in the rounding of its own digits


class Term(Declared):
    """One outcome's share: z = clip((v - low) / (high - low), 0, 1), times the weight."""

    weight: Annotated[float, Field(ge=-1e6, le=1e6)]
    """What a full term is worth, from -1e6 to 1e6 and no nearer to 0 than 1e-6; negative for what
    is to be avoided."""
    low: float = 0.0
    """The raw value that counts as nothing."""
    high: float = 1.0
    """The raw value that counts in full, above `low`."""
    missing: float | None = None
    """The raw value assumed when the others arrived and this one did not; null: it is required."""

    def _problems(self) -> Iterator[Problem]:
        if abs(self.weight) < _LEAST_WEIGHT:
            yield Problem(
                ("weight",),
                f"a term of weight {self.weight:g} changes nothing",
                self.weight,
                f"-1e6 to -{_LEAST_WEIGHT:g}, or {_LEAST_WEIGHT:g} to 1e6",
                "remove the term or give it a weight",
            )
        yield from out_of_order(self.low, self.high)
        if not isfinite(self.high - self.low):
            yield Problem(
                ("high",),
                "high - low is not a finite number",
                self.high,
                "a range below 1.7e308",
                "narrow it",
            )


class MissingValue(Declared):
    """A reward that stands in when no reward can be formed."""

    value: Fraction
    """The reward used instead, 0 to 1."""


def _missing_tag(value: object) -> str:
    return "#drop" if isinstance(value, str) else "#value"


Missing = Annotated[
    Annotated[Literal["drop"], Tag("#drop")] | Annotated[MissingValue, Tag("#value")],
    Discriminator(_missing_tag),
]


class Reward(Declared):
    """Weighted outcomes, brought to 0 to 1: (Σ w z - Σ negative w) / Σ |w|."""

    terms: Annotated[dict[Identifier, Term], Field(min_length=1, max_length=64)]
    """Terms by the name of their outcome; their order has no meaning."""
    window_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 600.0
    """How long after the decision outcomes count, in seconds, up to a year."""
    trigger: Literal["first", "window"] = "first"
    """When the policy first learns: once all required terms are in, or when the window closes."""
    scope: Literal["decision", "episode"] = "decision"
    """Who is credited with an outcome: its decision alone, or every decision of the episode."""
    missing: Missing = "drop"
    """What it means when required terms are still absent as the window closes: no reward, or
    `{value: ...}`."""
