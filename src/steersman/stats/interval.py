"""Interval type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Interval:
    """Interval with two ends in the unit of the estimate; either may be infinite.

    It unpacks as a pair and supports ``in``.

    Args:
        low: Lower end.
        high: Upper end, not below ``low``.

    Example:
        >>> low, high = Interval(0.1, 0.4)
        >>> 0.2 in Interval(low, high), round(Interval(low, high).width, 3)
        (True, 0.3)

    Raises:
        InputError: The lower end is above the upper end, or an end is not a number.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse ends in the wrong order; NaN is allowed for unknown ends."""
        try:
            crossed = bool(self.low > self.high)
        except (TypeError, ValueError):
            message = f"interval is {brief(self.low)} to {brief(self.high)}; allowed: numbers"
            raise InputError(message) from None
        if crossed:
            message = (
                f"interval is {brief(self.low)} to {brief(self.high)}; allowed: low <= high; "
                "swap the ends"
            )
            raise InputError(message)

    @property
    def width(self) -> float:
        """Distance between the ends."""
        return self.high - self.low

    def __iter__(self) -> Iterator[float]:
        yield self.low
        yield self.high

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high
