"""Interval type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import as_number, count, finite, open_unit, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike


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


def all_alike_interval(
    value: float, n: int, *, low: float, high: float, level: float = 0.95
) -> Interval:
    """Return a confidence interval for the mean of bounded numbers that are all equal.

    Normal, t and bootstrap intervals have no width then, and say of three right answers that all
    are right. What n independent units have not shown may still be the share 1 - (alpha / 2)^(1/n)
    of all, and moves the mean to either end of the range at the most.

    Assumes independent units (count clusters, not their members), numbers that can never leave
    [low, high], known beforehand, and that everything else is one other value. Of laws with many
    values it covers a little less with fewer than about ten units.

    Args:
        value: What all units showed, in [low, high].
        n: How many units there are, at least 1.
        low: Least value possible.
        high: Greatest value possible, above ``low``.
        level: Confidence level, in (0, 1).

    Returns:
        Interval of the mean within [low, high].

    Raises:
        InputError: Argument out of range.

    Example:
        >>> low, high = all_alike_interval(1.0, 10, low=0.0, high=1.0)
        >>> round(low, 3), high
        (0.692, 1.0)

    Source:
        Clopper and Pearson (1934), The use of confidence or fiducial limits, at no failure; the
        rule of three is its limit. Coverage: ``tests/stats/test_all_alike.py``.
    """
    least, most, seen = finite(low, "low"), finite(high, "high"), finite(value, "value")
    if not least <= seen <= most or least == most:
        message = f"value is {value!r} in [{low!r}, {high!r}]; allowed: low <= value <= high "
        raise InputError(message + "with low < high")
    unseen = 1.0 - (0.5 * (1.0 - open_unit(level, "level"))) ** (1.0 / count(n, "n"))
    return Interval(seen - unseen * (seen - least), seen + unseen * (most - seen))
