"""Confidence interval of a mean when all observed values are equal."""

from __future__ import annotations

from steersman.errors import InputError
from steersman.stats.arguments import count, finite, open_unit
from steersman.stats.interval import Interval


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
