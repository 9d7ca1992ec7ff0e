"""Number fields: centre and spread, declared or fitted, and their slots."""

from __future__ import annotations

from math import fsum, isfinite, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError
from steersman.features.values import as_number, refuse_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.spec.context import NumberField

    Floats = NDArray[np.float64]

# The quartiles of a normal distribution lie 1.349 standard deviations apart.
IQR_PER_SD = 1.349

_ROUNDING = 1e-15

BLOCK_NORM_SQUARED = 2.0
"""Bound of the squared norm of all number slots together."""


class Statistics(NamedTuple):
    """Centre and spread that standardise a number.

    Attributes:
        centre: mean or median, in the unit of the field.
        spread: sd or iqr / 1.349, in the same unit, above 0; see `fitted`.
    """

    centre: float
    spread: float


def declared(field: NumberField) -> Statistics | None:
    """Return the declared statistics of a field, or None if they need a fit."""
    if field.scale == "none":
        return Statistics(0.0, 1.0)
    if field.scale == "zscore":
        known, spread = field.mean, field.sd
    else:
        known, spread = field.median, None if field.iqr is None else field.iqr / IQR_PER_SD
    return None if known is None or spread is None else Statistics(known, spread)


def fitted(name: str, field: NumberField, values: Sequence[float]) -> Statistics:
    """Return the statistics of ``values``: mean and population sd, or median and iqr / 1.349.

    If the quartiles are equal but other values differ, the spread is the sd. A field that is
    constant up to rounding has spread 1.

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
    """Return `NumberSlot.scaled` of many numbers, bit-identical.

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
    """Slot of a number field, and a second slot with `missing: flag`.

    Args:
        name: name of the field.
        field: declaration of the field.
        slot: index of the first slot.
        share: largest absolute value of its slots.
    """

    def __init__(self, name: str, field: NumberField, slot: int, share: float) -> None:
        self.name, self.field, self.slot = name, field, slot
        self.share = share
        self.clip = field.clip

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of its slots."""
        flagged = self.field.missing == "flag"
        return (self.name, f"{self.name} is missing") if flagged else (self.name,)

    def scaled(self, value: float, statistics: Statistics) -> float:
        """Return the slot value of a finite number."""
        from_centre = (value - statistics.centre) / statistics.spread
        clip = self.clip
        return max(-clip, min(clip, from_centre)) / clip * self.share

    def fill(self, vector: np.ndarray, value: object, statistics: Statistics) -> None:
        """Write a value into the zero slots of ``vector`` in place. None: missing."""
        if value is not None:
            vector[self.slot] = self.scaled(as_number(self.name, value), statistics)
        elif self.field.missing == "refuse":
            raise refuse_missing(self.name)
        elif self.field.missing == "flag":
            vector[self.slot + 1] = self.share
