"""Declaration of the reward: outcomes, their weights, and the time window."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

from steersman.spec.base import Declared, Fraction, Identifier, Problem, out_of_order

if TYPE_CHECKING:
    from collections.abc import Iterator


_LEAST_WEIGHT = 1e-6  # a smaller weight is lost in rounding


class Term(Declared):
    """One outcome in the reward: weight times z = clip((v - low) / (high - low), 0, 1)."""

    weight: Annotated[float, Field(ge=-1e6, le=1e6)]
    """Weight of the outcome, 1e-6 to 1e6 in absolute value. Negative for outcomes to minimise."""
    low: float = 0.0
    """Raw value that is scaled to 0."""
    high: float = 1.0
    """Raw value that is scaled to 1, above `low`."""
    missing: float | None = None
    """Raw value to use when only this outcome is missing. null: the outcome is required."""

    def _problems(self) -> Iterator[Problem]:
        if abs(self.weight) < _LEAST_WEIGHT:
            yield Problem(
                ("weight",),
                f"a term of weight {self.weight:g} has no effect",
                self.weight,
                f"-1e6 to -{_LEAST_WEIGHT:g}, or {_LEAST_WEIGHT:g} to 1e6",
                "remove the term or raise its weight",
            )
        yield from out_of_order(self.low, self.high)
        if not isfinite(self.high - self.low):
            yield Problem(
                ("high",),
                "high - low is not a finite number",
                self.high,
                "a range below 1.7e308",
                "narrow the range",
            )


class MissingValue(Declared):
    """Reward to use when required outcomes are missing."""

    value: Fraction
    """Reward value, 0 to 1."""


def _missing_tag(value: object) -> str:
    return "#drop" if isinstance(value, str) else "#value"


Missing = Annotated[
    Annotated[Literal["drop"], Tag("#drop")] | Annotated[MissingValue, Tag("#value")],
    Discriminator(_missing_tag),
]


class Reward(Declared):
    """Weighted outcomes, scaled to [0, 1]: (Σ w z - Σ negative w) / Σ |w|."""

    terms: Annotated[dict[Identifier, Term], Field(min_length=1, max_length=64)]
    """Terms by outcome name. The order has no meaning."""
    window_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 600.0
    """Time window after the decision in which outcomes count, in seconds, at most 366 days."""
    trigger: Literal["first", "window"] = "first"
    """Time of the first update. `first`: when all required outcomes have arrived. `window`: when
    the window closes."""
    scope: Literal["decision", "episode"] = "decision"
    """Credit for an outcome. `decision`: its decision only. `episode`: every decision of the
    episode."""
    missing: Missing = "drop"
    """Handling of required outcomes that are missing when the window closes. `drop`: no reward.
    `{value: ...}`: this reward."""
