"""Numbers: centre and spread, declared or fitted once, and the slots they fill."""

from __future__ import annotations

from math import fsum, isfinite, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError
from steersman.features.values import as_number, refuse_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.spec import NumberField

    Floats = NDArray[np.float64]

# The quartiles of a normal distribution lie 1.349 standard deviations apart.
IQR_PER_SD = 1.349

_ROUNDING = 1e-15

BLOCK_NORM_SQUARED = 2.0
"""Bound of the squared norm of all number slots together."""


class Statistics(NamedTuple):
    """What a number is centred at and divided by.

    Attributes:
        centre: mean or median, in the unit of the field.
        spread: sd or iqr / 1.349, in the same unit, above 0; see `fitted`.
    """

    centre: float
    spread: float


def declared(field: NumberField) -> Statistics | None:
    """Return the statistics a field declares, or None when they are to be fitted."""
    if field.scale == "none":
        return Statistics(0.0, 1.0)
    if field.scale == "zscore":
        known, spread = field.mean, field.sd
    else:
        known, spread = field.median, None if field.iqr is None else field.iqr / IQR_PER_SD
    return None if known is None or spread is None else Statistics(known, spread)


def fitted(name: str, field: NumberField, values: Sequence[float]) -> Statistics:
    """Return the statistics of ``values``: mean and population sd, or median and iqr / 1.349.

    Where half of them and more are the same, the quartiles may be too, though others differ: then
    the spread beside the median is the sd, so that the field says what it can.

    A constant field has spread 1: it then says nothing until it changes. Constant is what differs
    by no more than a rounding of its centre.

    Raises:
        InputError: no values, or values so large that their spread is not finite.
    """
    if not values:
        message = (
            f"context field {name!r} has no values to fit its statistics; send rows with "
            "values, or declare the statistics"
        )
        raise InputError(message)
    try:
        centre, spread = _moments(values) if field.scale == "zscore" else _quartiles(values)
    except OverflowError:
        spread = float("inf")
    if not isfinite(spread) or not isfinite(centre):
        message = (
            f"context field {name!r} has values from {min(values)!r} to {max(values)!r}, more "
            "than float64 can represent; declare its statistics"
        )
        raise InputError(message)
    if spread <= _ROUNDING * abs(centre):
        return Statistics(centre if min(values) < max(values) else values[0], 1.0)
    return Statistics(centre, spread)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = fsum(values) / len(values)
    return mean, sqrt(fsum((value - mean) * (value - mean) for value in values) / len(values))


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    # What overflows here is refused by the caller, who can name the field.
    with np.errstate(over="ignore", invalid="ignore"):
        low, median, high = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    spread = (high - low) / IQR_PER_SD
    return median, spread if spread > _ROUNDING * abs(median) else _moments(values)[1]


def scaled_together(
    values: Floats, centres: Floats, spreads: Floats, clips: Floats, shares: Floats
) -> Floats:
    """Return what `NumberSlot.scaled` returns for each of many numbers, to the bit.

    Args:
        values: shape (n, numbers), finite.
        centres: shape (numbers,), like all that follow.
        spreads: above 0.
        clips: largest distance from the centre, in spreads.
        shares: the largest absolute value of each slot.
    """
    with np.errstate(over="ignore"):  # what lies that far out is clipped
        away = (values - centres) / spreads
    scaled: Floats = np.maximum(np.minimum(away, clips), -clips) / clips * shares
    return scaled


class NumberSlot:
    """One number's slot, and the next one when a missing value is flagged.

    Args:
        name: the field.
        field: its declaration.
        slot: where it goes.
        share: the largest absolute value its slots may have.
    """

    def __init__(self, name: str, field: NumberField, slot: int, share: float) -> None:
        self.name, self.field, self.slot = name, field, slot
        self.share = share
        self.clip = field.clip

    @property
    def slots(self) -> tuple[str, ...]:
        """What each of its slots holds."""
        flagged = self.field.missing == "flag"
        return (self.name, f"{self.name} is missing") if flagged else (self.name,)

    def scaled(self, value: float, statistics: Statistics) -> float:
        """Return what a finite number puts into its slot.

        Args:
            value: finite.
            statistics: declared or fitted.
        """
        from_centre = (value - statistics.centre) / statistics.spread
        clip = self.clip
        return max(-clip, min(clip, from_centre)) / clip * self.share

    def fill(self, vector: np.ndarray, value: object, statistics: Statistics) -> None:
        """Write a value into the slots of ``vector``, which are zero.

        Args:
            vector: shape (dim,), float64; changed in place.
            value: what the caller sent, or None when it is missing.
            statistics: declared or fitted.
        """
        if value is not None:
            vector[self.slot] = self.scaled(as_number(self.name, value), statistics)
        elif self.field.missing == "refuse":
            raise refuse_missing(self.name)
        elif self.field.missing == "flag":
            vector[self.slot + 1] = self.share
