"""Means over questions with intervals; conversations are units."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import stdtrit

from steersman.stats import all_alike_interval
from steersman_systems.rag_tuner.slices import spread_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.95
_ALIKE = 1e-9
"""Relative rounding error of a spread of zero."""


class Mean(NamedTuple):
    """A mean over questions.

    Args:
        value: The mean.
        low: Lower end of its interval; NaN with one unit.
        high: Upper end of its interval.
        error: Standard error.
        units: Number of conversations and single questions.
    """

    value: float
    low: float
    high: float
    error: float
    units: int


def mean_over(
    values: Floats,
    *,
    within: tuple[float, float],
    level: float = LEVEL,
    groups: Sequence[str] = (),
) -> Mean:
    """Return the mean over questions with its t interval.

    Assumption: units are independent draws from future units. Turns of one conversation are
    dependent, so conversations are the units. If all values are equal, the t interval has no
    width; then the interval covers unseen values. Intervals are clipped to the range of the mean.

    Args:
        values: (n,) defined, n ≥ 1.
        level: Confidence level, in (0, 1).
        groups: (n,) conversation of each question; "" for none, () without conversations.

    >>> found = mean_over(np.array([0.0, 1.0, 1.0, 0.0] * 5), within=(0.0, 1.0))
    >>> round(found.low, 3), round(found.high, 3)
    (0.26, 0.74)
    >>> found = mean_over(np.ones(20), within=(0.0, 1.0))
    >>> round(found.low, 3), found.high
    (0.832, 1.0)

    Coverage: ``tests/systems/rag_tuner/test_over_questions.py``.
    """
    mean = float(values.mean())
    spread, units = spread_of(values, groups)
    if units < 2:
        return Mean(mean, nan, nan, nan, units)
    error = spread / float(np.sqrt(len(values)))
    low, high = within
    if high <= low:  # all values are zero
        return Mean(mean, mean, mean, 0.0, units)
    # Turns may differ while the means of conversations are equal.
    if error <= _ALIKE * (high - low):
        seen = min(max(mean, low), high)
        alike = all_alike_interval(seen, units, low=low, high=high, level=level)
        return Mean(mean, alike.low, alike.high, 0.0, units)
    half = float(stdtrit(units - 1, 0.5 + level / 2)) * error
    return Mean(mean, max(low, mean - half), min(high, mean + half), error, units)
