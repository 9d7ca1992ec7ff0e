"""Bias-corrected and accelerated bootstrap intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from steersman.errors import InputError
from steersman.stats.arguments import LARGEST, open_unit
from steersman.stats.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

# The acceleration is a skewness; a thousand deleted groups estimate it as well as n deleted rows.
_JACKKNIFE_GROUPS = 1000


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
        resamples: Bootstrap samples, at least 100.
        seed: Seed of the generator that draws them.

    Returns:
        The interval; a single point when the statistic never varies.

    Raises:
        InputError: Misshapen rows, numbers that are not finite or above 1e100 in absolute value,
            too few resamples, a statistic that is NaN or infinite on any of them.

    Example:
        >>> costs = np.random.default_rng(0).exponential(size=80)
        >>> low, high = bca_interval(costs, np.mean, resamples=2000)
        >>> bool(low < costs.mean() < high)
        True

    Source:
        Efron (1987), Better bootstrap confidence intervals, equations 2.3 and 6.6; with more than
        1,000 rows the jackknife deletes groups instead of rows. Second implementation and coverage:
        ``tests/stats/test_bca.py``.
    """
    rows = _rows(x)
    alpha = 1.0 - open_unit(level, "level")
    if resamples < 100:
        message = f"resamples is {resamples}; allowed is at least 100, better 10,000"
        raise InputError(message)
    rng = np.random.default_rng(seed)
    size = rows.shape[0]
    draws = np.array(
        [statistic(rows[rng.integers(0, size, size)]) for _ in range(resamples)], dtype=np.float64
    )
    value = float(statistic(rows))
    _finite(np.append(draws, value))
    if np.ptp(draws) == 0.0:
        return Interval(value, value)
    # Ties count half, so that discrete statistics get no spurious bias.
    below = (np.sum(draws < value) + 0.5 * np.sum(draws == value)) / resamples
    bias = ndtri(np.clip(below, 0.5 / resamples, 1.0 - 0.5 / resamples))
    normal = bias + ndtri([alpha / 2.0, 1.0 - alpha / 2.0])
    shares = ndtr(bias + normal / (1.0 - _acceleration(rows, statistic) * normal))
    low, high = np.quantile(draws, shares)
    return Interval(float(low), float(high))


def _acceleration(
    rows: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], float]
) -> float:
    groups = min(rows.shape[0], _JACKKNIFE_GROUPS)
    member = np.arange(rows.shape[0]) * groups // rows.shape[0]
    left_out = np.array([statistic(rows[member != group]) for group in range(groups)])
    _finite(left_out)
    deviations = left_out / max(float(np.abs(left_out).max()), 1e-300)
    deviations = deviations.mean() - deviations
    spread = float((deviations**2).sum())
    return float((deviations**3).sum()) / (6.0 * spread**1.5) if spread > 0.0 else 0.0


def _finite(values: NDArray[np.float64]) -> None:
    if not np.isfinite(values).all():
        message = (
            f"statistic gave {values[~np.isfinite(values)][0]} on a resample; allowed are finite "
            "numbers; pass one that is defined for every resample of x"
        )
        raise InputError(message)


def _rows(x: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim not in {1, 2} or rows.shape[0] < 2 or not (np.abs(rows) <= LARGEST).all():
        message = (
            f"x has shape {rows.shape}; allowed are finite numbers up to {LARGEST:g} in absolute "
            "value, in one or two dimensions with at least 2 rows; drop or mend NaN"
        )
        raise InputError(message)
    return rows
