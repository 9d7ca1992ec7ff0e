"""Mean of a crossed table of runs by cases."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import LARGEST, finite, numbers, open_unit
from steersman.stats.interval import Interval, all_alike_interval
from steersman.stats.survival import Estimate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_ALIKE = 1e-12
"""Numbers that differ by less, as a share of their range, differ by rounding alone."""


def crossed_mean(
    values: ArrayLike, *, level: float = 0.95, within: tuple[float, float] | None = None
) -> Estimate:
    """Return the mean over runs and cases, with an interval for new runs and new cases.

    All cases of one run share what that run learned, and all runs share the cases. An interval over
    the cases alone is too narrow as soon as runs differ: at three runs whose own variance weighs as
    much as that of the cases it covers 84 % instead of 95 %.

    The variance of the mean is that between columns, at least what the residual explains, and,
    beyond that, the one between rows. Each gets the t quantile of its own degrees of freedom, and
    the squares of both half widths are added (Howe). The interval is never narrower than that of t
    over the rows alone, whose mean squares hold the residual as well: where cases differ little
    beside the residual, the variance of a few rows is estimated too badly to be added alone.
    Resampling both (Owen's pigeonhole bootstrap) does not help at three runs: it sees (r - 1)/r of
    their variance, in ten distinct means. Assumes that row, column and residual effects are
    independent of each other and near normal, or many. Coverage with 2 to 10 runs of 20 to 300
    cases is at least 94 % at any proportion of the variances (``tests/stats/test_crossed.py``).
    What runs have in common, such as what was learned before them, is held fixed.

    A table in which all is alike shows no spread, which makes nothing certain: a run that is not
    among three may make of every case what none of them did. Tell the range of the numbers, and the
    interval is that of `all_alike_interval` then, over as many cells as share neither run nor case:
    the fewer of both. Without a range its width is 0 there, which does not mean certainty.

    Args:
        values: (r, c) one number for each run and case, r >= 1, c >= 2. With one run nothing is
            known of runs, and the interval is the t interval over cases.
        level: Confidence level, in (0, 1).
        within: The least and the most that a number can be, known beforehand; None: not known.

    Returns:
        The mean with its interval.

    Raises:
        InputError: Another shape, no numbers, some that are not finite, above 1e100 in absolute
            value or not within the range, or a range whose ends are not in order.

    Example:
        >>> estimate = crossed_mean([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])
        >>> estimate.value, round(estimate.interval.low, 2), round(estimate.interval.high, 2)
        (2.5, -4.32, 9.32)
        >>> estimate = crossed_mean(np.ones((3, 60)), within=(0.0, 1.0))
        >>> round(estimate.interval.low, 2), estimate.interval.high
        (0.29, 1.0)

    Source:
        Searle, Casella & McCulloch, Variance Components (1992), section 4.4; Howe (1974),
        Approximate confidence limits on the mean of X + Y; Owen (2007), The pigeonhole bootstrap.
    """
    table, trust = numbers(values, "values"), open_unit(level, "level")
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        message = f"values has shape {table.shape}; allowed: 1 or more runs by 2 or more cases"
        raise InputError(f"{message}; name more cases")
    if not np.all(np.abs(table) <= LARGEST):
        message = f"values holds NaN or more than {LARGEST:g}; allowed: finite numbers up to that"
        raise InputError(f"{message} in absolute value; check their source")
    mean = float(table.mean())
    if within is not None:
        low, high = _ends(table, within)
        if np.ptp(table) <= _ALIKE * (high - low):
            seen, units = min(max(mean, low), high), _apart(table)
            alike = all_alike_interval(seen, units, low=low, high=high, level=trust)
            return Estimate(mean, alike)
    half = _half(table - mean, 0.5 + trust / 2)
    return Estimate(mean, Interval(mean - half, mean + half))


def _ends(table: Floats, within: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the range, which holds all numbers up to rounding."""
    try:
        least, most = within
    except (TypeError, ValueError) as error:
        message = f"within is {brief(within)}; allowed: two numbers, the least and the most"
        raise InputError(message) from error
    low, high = finite(least, "within"), finite(most, "within")
    slack = _ALIKE * (high - low)
    if not low < high or table.min() < low - slack or table.max() > high + slack:
        message = f"values are {table.min():g} to {table.max():g} within {brief(within)}"
        raise InputError(f"{message}; allowed: a range with low < high that holds them all")
    return low, high


def _apart(table: Floats) -> int:
    """Return how many cells share neither run nor case; of one run, the cases."""
    runs, cases = table.shape
    return int(cases if runs == 1 else min(runs, cases))


def _half(centred: Floats, place: float) -> float:
    """Return half the width, in a unit in which squares do not leave float64."""
    unit = float(np.abs(centred).max())
    return unit * sqrt(_squared_half(centred / unit, place)) if unit > 0.0 else 0.0


def _squared_half(table: Floats, place: float) -> float:
    runs, cases = len(table), int(table.shape[1])
    by_case = table.mean(axis=0)
    between, of_cases = float(by_case.var(ddof=1)) / cases, _squared_quantile(cases - 1, place)
    if runs == 1:
        return of_cases * between
    by_run, of_runs = table.mean(axis=1, keepdims=True), _squared_quantile(runs - 1, place)
    rest = table - by_run - by_case + table.mean()
    noise = float((rest**2).sum()) / ((runs - 1) * (cases - 1)) / table.size
    among = float(by_run.var(ddof=1)) / runs
    # Columns hold the residual's part too, and may agree by chance, where few even wholly.
    both = of_cases * max(between, noise) + of_runs * max(0.0, among - noise)
    return max(both, of_runs * among)


def _squared_quantile(freedom: int, place: float) -> float:
    quantile = float(stdtrit(freedom, place))
    return quantile * quantile
