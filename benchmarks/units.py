"""Interval of a mean over clustered rows, such as turns of conversations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def half_width(values: Floats, unit: NDArray[np.intp] | None = None) -> float:
    """Return half the width of a mean's 95 % interval; units are independent, their rows are not.

    Args:
        values: (n,) value of each row.
        unit: (n,) number of the unit of each row; None: independent rows.

    Returns:
            Half the width by Student's t over the units' sums of deviations; NaN for fewer than
            two units.

    >>> four = np.array([1.0, 2.0, 3.0, 4.0])
    >>> round(half_width(four), 3), round(half_width(four, np.array([0, 0, 1, 1])), 3)
    (2.054, 12.706)

    Source: Cochran, Sampling Techniques (1977), section 9.7, clusters of unequal sizes.
    """
    off = values - values.mean()
    sums = off if unit is None else np.bincount(np.unique(unit, return_inverse=True)[1], off)
    count = len(sums)
    if count < 2:
        return math.nan
    error = math.sqrt(count / (count - 1) * float(sums @ sums)) / len(values)
    return float(stdtrit(count - 1, 0.975)) * error
