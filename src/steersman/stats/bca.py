"""Bias-corrected and accelerated bootstrap intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import LARGEST, as_number, count, numbers, open_unit
from steersman.stats.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

# The acceleration is a skewness; a thousand deleted groups estimate it as well as n deleted rows.
_JACKKNIFE_GROUPS = 1000

# More would add nothing and take hours.
_MOST_RESAMPLES = 1_000_000


def bca_interval(
    x: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], float],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Return the BCa bootstrap interval of any smooth statistic of independent rows.

    Second-order correct: it corrects the percentile interval for bias and skewness, so it suits
    ratios, medians over many rows, and skewed costs or latencies.

    Assumes independent rows and a statistic that is smooth in the empirical distribution. It fails
    for extremes (the maximum), below about 20 rows, and for dependent rows (pass one per unit).

    Args:
        x: Rows to resample, shape (n,) or (n, columns), finite, n >= 2.
        statistic: Maps an array shaped like ``x`` to one number; pure.
        level: Confidence level, in (0, 1).
        resamples: Bootstrap samples, 100 to 1,000,000, and at least 2 / (1 - level): fewer have no
            draw beyond each end.
        seed: Seed of the generator that draws them, and the groups of the jackknife.

    Returns:
        The interval; a single point when the statistic never varies.

    Raises:
        InputError: Misshapen rows, numbers that are not finite or above 1e100 in absolute value,
            too few resamples, a seed that is none, a statistic that gives no finite number on any
            of them.

    Example:
        >>> costs = np.random.default_rng(0).exponential(size=80)
        >>> low, high = bca_interval(costs, np.mean, resamples=2000)
        >>> bool(low < costs.mean() < high)
        True

    Source:
        Efron (1987), Better bootstrap confidence intervals, equations 2.3 and 6.6; with more than
        1,000 rows the jackknife deletes groups of rows that are drawn, whatever their order. Second
        implementation and coverage: ``tests/stats/test_bca.py``.
    """
    rows = _rows(x)
    alpha = 1.0 - open_unit(level, "level")
    wanted = _enough(resamples, alpha)
    _refuse_others(statistic, seed)
    rng = np.random.default_rng(seed)
    size = rows.shape[0]
    draws = np.array([_value(statistic, rows[rng.integers(0, size, size)]) for _ in range(wanted)])
    value = _value(statistic, rows)
    if np.ptp(draws) == 0.0:
        return Interval(value, value)
    # Ties count half, so that discrete statistics get no spurious bias.
    below = (np.sum(draws < value) + 0.5 * np.sum(draws == value)) / wanted
    bias = ndtri(np.clip(below, 0.5 / wanted, 1.0 - 0.5 / wanted))
    normal = bias + ndtri([alpha / 2.0, 1.0 - alpha / 2.0])
    # Where the correction has no end, all draws lie within it.
    stretch = np.maximum(1.0 - _acceleration(rows, statistic, rng) * normal, 1e-9)
    shares = ndtr(bias + normal / stretch)
    low, high = np.quantile(draws, shares)
    return Interval(float(low), float(high))


def _enough(resamples: int, alpha: float) -> int:
    """Return how many resamples are wanted, which must reach beyond the ends of the interval."""
    wanted = count(resamples, "resamples", at_least=100)
    if wanted > _MOST_RESAMPLES:
        message = f"resamples is {wanted}; allowed: 100 to {_MOST_RESAMPLES:,}; take fewer"
        raise InputError(message)
    needed = math.ceil(2.0 / alpha - 1e-6)
    if wanted < needed:
        message = f"resamples is {wanted} at level {1.0 - alpha:.12g}; allowed: {needed} or more: "
        raise InputError(message + "use a lower level, or more resamples")
    return wanted


def _refuse_others(statistic: object, seed: object) -> None:
    """Refuse a statistic that is not a function, and a seed that is None or not an integer."""
    no_number = isinstance(seed, bool | np.timedelta64)
    whole = isinstance(seed, int | np.integer) and not no_number and seed >= 0
    if not callable(statistic) or not whole:
        message = f"statistic is {brief(statistic)}, seed {brief(seed)}; allowed: a function "
        raise InputError(message + "that maps rows to a number, and a whole number of at least 0")


def _acceleration(
    rows: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], float],
    rng: np.random.Generator,
) -> float:
    size = rows.shape[0]
    groups = min(size, _JACKKNIFE_GROUPS)
    member = np.arange(size) * groups // size
    if groups < size:
        # Neighbours in sorted rows are alike: groups of them are far more skewed than rows.
        member = member[rng.permutation(size)]
    left_out = np.array([_value(statistic, rows[member != group]) for group in range(groups)])
    deviations = left_out / max(float(np.abs(left_out).max()), 1e-300)
    deviations = deviations.mean() - deviations
    spread = float((deviations**2).sum())
    return float((deviations**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0


def _value(statistic: Callable[[NDArray[np.float64]], float], rows: NDArray[np.float64]) -> float:
    given = statistic(rows)
    value = as_number(given)
    if not math.isfinite(value):
        message = (
            f"statistic gave {given!s:.100} on a resample; allowed: one finite number; use a "
            "statistic that is defined for every resample of x"
        )
        raise InputError(message)
    return value


def _rows(x: ArrayLike) -> NDArray[np.float64]:
    rows = numbers(x, "x")
    if rows.ndim not in {1, 2} or rows.shape[0] < 2 or not (np.abs(rows) <= LARGEST).all():
        message = (
            f"x has shape {rows.shape}; allowed: finite numbers up to {LARGEST:g} in absolute "
            "value, in one or two dimensions with at least 2 rows; drop or fix NaN"
        )
        raise InputError(message)
    return rows
