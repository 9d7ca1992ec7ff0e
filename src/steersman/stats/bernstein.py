"""Empirical-Bernstein interval of bounded numbers, valid at every sample size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import as_number, count, finite, open_unit, sample
from steersman.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def bernstein_half_width(variance: float, n: int, *, level: float, span: float) -> float:
    """Return the two-sided empirical-Bernstein half-width of a mean.

    Args:
        variance: Sample variance with n - 1 in the denominator, at least 0.
        n: Size of the sample, at least 2.
        level: Confidence level, in (0, 1).
        span: Width of the range that every number must lie in, at least 0.

    Returns:
        Half-width in the numbers' unit.

    Raises:
        InputError: Argument out of range, or no number.

    Example:
        >>> round(bernstein_half_width(0.25, 1000, level=0.95, span=1.0), 4)
        0.057

    Source:
        Maurer and Pontil (2009), Empirical Bernstein bounds and sample variance penalization,
        Theorem 4, at delta = (1 - level) / 2 for each side.
    """
    log_term = math.log(4.0 / (1.0 - open_unit(level, "level")))
    size = count(n, "n", at_least=2)
    spread, reach = finite(variance, "variance"), finite(span, "span")
    if spread < 0.0 or reach < 0.0:
        message = (
            f"variance is {brief(variance)}, span {brief(span)}; allowed: numbers of at least 0"
        )
        raise InputError(message)
    return math.sqrt(2.0 * spread * log_term / size) + 7.0 * reach * log_term / (3.0 * (size - 1))


def empirical_bernstein(x: ArrayLike, *, level: float = 0.95, low: float, high: float) -> Interval:
    """Return an interval for the mean of bounded numbers, valid at every sample size.

    No normal approximation: coverage is at least ``level`` for any law on [low, high]. The price is
    width: about 1.5 times the Wald interval's for large n, far more for small n.

    Assumes independent numbers that can never leave [low, high], known beforehand; a range read
    off the sample, dependence, or looking repeatedly breaks the guarantee.

    Args:
        x: Independent numbers in [low, high], shape (n,), n >= 2.
        level: Confidence level, in (0, 1).
        low: Smallest value that a number can take.
        high: Largest value, above ``low``.

    Returns:
        The interval, cut to [low, high].

    Raises:
        InputError: Numbers outside the range, or an empty range.

    Example:
        >>> low, high = empirical_bernstein([0, 1] * 500, low=0, high=1)
        >>> round(low, 3), round(high, 3)
        (0.443, 0.557)

    Source:
        Maurer and Pontil (2009), Theorem 4. Coverage and width: ``tests/stats/test_bernstein.py``.
    """
    numbers, trust = sample(x, "x"), open_unit(level, "level")
    least, most = as_number(low), as_number(high)
    if not -math.inf < least < most < math.inf:
        message = f"the range is [{brief(low)}, {brief(high)}]; allowed: finite with low < high"
        raise InputError(message)
    if numbers.min() < least or numbers.max() > most:
        message = (
            f"x spans [{numbers.min()}, {numbers.max()}]; allowed: [{low}, {high}]; widen the "
            "declared range: the bound needs the full possible range"
        )
        raise InputError(message)
    half = bernstein_half_width(
        float(np.var(numbers, ddof=1)), numbers.size, level=trust, span=most - least
    )
    mean = float(numbers.mean())
    return Interval(max(least, mean - half), min(most, mean + half))
