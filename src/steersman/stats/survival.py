"""Survival analysis of censored durations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import numbers, open_unit, positive, sample
from steersman.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_ROUNDING = 1e-9
"""A product of shares that is a half may come out a little above."""


@dataclass(frozen=True)
class Estimate:
    """Number with its interval.

    Args:
        value: The number; infinite where more than half never ended.
        interval: Around it; its upper end may be infinite.
    """

    value: float
    interval: Interval


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """Kaplan-Meier survival curve.

    Args:
        times: (m,) distinct times of ends, increasing.
        survival: (m,) share that lasts longer than each.
        low: (m,) lower end of the pointwise interval of each.
        high: (m,) upper end.
        at_risk: (m,) cases still watched just before each.
        ended: (m,) cases that ended at each.
        level: Confidence level of the intervals.
        last: Longest time for which a case was watched: beyond it nothing is known, unless all
            have ended.
    """

    times: Floats
    survival: Floats
    low: Floats
    high: Floats
    at_risk: NDArray[np.int64]
    ended: NDArray[np.int64]
    level: float
    last: float

    @property
    def median(self) -> Estimate:
        """Median time with its interval.

        The first time at which at most half last longer; infinite where censoring hides it. The
        ends are the same time on the interval's two curves. Where the lower one stays above a half,
        the lower end is the last time at which a case ended, 0 without any: of what comes later the
        curve knows nothing.

        Source: Brookmeyer & Crowley (1982), A confidence interval for the median survival time,
        with the interval transformed as in `kaplan_meier`.
        """
        known = float(self.times[-1]) if self.times.size else 0.0
        low = min(self._first_half(self.low), known)
        ends = Interval(low, self._first_half(self.high))
        return Estimate(self._first_half(self.survival), ends)

    def restricted_mean(self, until: float) -> Estimate:
        """Return the restricted mean, the mean of min(time, ``until``), with its interval.

        Unlike the median it exists whatever the censoring, up to the longest time for which a case
        was watched: later times are unknown. It has no width where nothing ended before
        the horizon, or all at once; that makes it no surer.

        Args:
            until: The horizon, above 0, in the unit of the times; at most ``last``, unless all have
                ended.

        Returns:
            The area under the curve up to the horizon, and a Wald interval.

        Raises:
            InputError: The horizon is not a finite number above 0, or lies beyond what was watched
                while some last longer.

        Source: Klein & Moeschberger, Survival Analysis (2003), section 4.5, eq. 4.5.1 and 4.5.2,
        without the factor m/(m - 1).
        """
        horizon = positive(until, "until")
        left = float(self.survival[-1]) if self.survival.size else 1.0
        if left > 0.0 and horizon > self.last * (1.0 + _ROUNDING):
            message = (
                f"until is {brief(until)}, but a share of {left:.3g} lasts longer than the "
                "observed times"
            )
            message = f"{message}; allowed: above 0 to {self.last:g}"
            raise InputError(f"{message}; use a nearer horizon or observe longer")
        inside = self.times <= horizon
        times = np.append(self.times[inside], horizon)
        levels = np.concatenate([[1.0], self.survival[inside]])
        areas = levels * np.diff(times, prepend=0.0)
        area = float(areas.sum())
        # What lies under the curve to the right of each time.
        beyond = areas.sum() - np.cumsum(areas)[:-1]
        weights = _greenwood_terms(self.at_risk[inside], self.ended[inside])
        # Where all at risk ended the term is infinite and the area beyond it zero.
        usable = np.isfinite(weights)
        variance = float(np.sum(beyond[usable] ** 2 * weights[usable]))
        half = float(ndtri(0.5 + self.level / 2)) * math.sqrt(variance)
        return Estimate(area, Interval(area - half, area + half))

    def _first_half(self, curve: Floats) -> float:
        reached = np.flatnonzero(curve <= 0.5 + _ROUNDING)
        return float(self.times[reached[0]]) if reached.size else math.inf


def kaplan_meier(times: ArrayLike, ended: ArrayLike, *, level: float = 0.95) -> SurvivalCurve:
    """Return the Kaplan-Meier survival curve of censored durations.

    A session that was cut off unsolved after ten steps says that it takes more than ten, not that
    it takes ten. Dropping such cases, or counting them as ten, makes everything look quicker.

    Assumes independent cases, and that a case's being cut off says nothing about when it would have
    ended (a limit that is the same for all does not). A case cut off at the time at which another
    ends counts as still watched there.

    Args:
        times: (n,) how long each case was watched, at least 0, n >= 2.
        ended: (n,) whether it ended then; otherwise it was cut off.
        level: Confidence level of the pointwise intervals, in (0, 1).

    Returns:
        The curve; it has no times where nothing ended.

    Raises:
        InputError: Negative or unusable times, or shapes that disagree.

    Example:
        >>> curve = kaplan_meier([1, 2, 2, 3, 5, 5], [True, True, False, True, False, True])
        >>> curve.survival.round(3).tolist()
        [0.833, 0.667, 0.444, 0.222]
        >>> curve.median.value, curve.median.interval.low, round(curve.restricted_mean(5).value, 2)
        (3.0, 1.0, 3.39)

    Source:
        Kaplan & Meier (1958), Nonparametric estimation from incomplete observations; variance by
        Greenwood; intervals on the scale log(-log S), Kalbfleisch & Prentice (2002), eq. 1.11.
        Known answers of lifelines 0.30 and coverage: ``tests/stats/test_survival.py``.
    """
    watched, trust = sample(times, "times"), open_unit(level, "level")
    happened = _flags(ended, watched.size)
    if watched.min() < 0:
        message = f"times holds {watched.min()}; allowed: at least 0; check its unit and sign"
        raise InputError(message)
    points, deaths = np.unique(watched[happened], return_counts=True)
    at_risk = watched.size - np.searchsorted(np.sort(watched), points, side="left")
    survival = np.cumprod(1.0 - deaths / at_risk, dtype=np.float64)
    low, high = _log_log(survival, np.cumsum(_greenwood_terms(at_risk, deaths)), trust)
    last = float(watched.max())
    return SurvivalCurve(points, survival, low, high, at_risk, deaths, trust, last)


def _flags(ended: ArrayLike, size: int) -> NDArray[np.bool_]:
    flags = numbers(ended, "ended")
    if flags.shape != (size,) or not np.isin(flags, (0, 1)).all():
        message = f"ended has shape {flags.shape}; allowed: True or False for each of {size} times"
        raise InputError(message)
    return flags.astype(bool)


def _greenwood_terms(at_risk: NDArray[np.int64], ended: NDArray[np.int64]) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(ended / (at_risk * (at_risk - ended)), np.float64)


def _log_log(survival: Floats, summed: Floats, level: float) -> tuple[Floats, Floats]:
    """Return both ends; at S = 0 the transformation has none.

    The lower one is 0 then, and the upper one that of the time before: that all who were watched
    have ended says only that few last longer, not how many.
    """
    z = float(ndtri(0.5 + level / 2))
    low, inner = np.zeros_like(survival), survival > 0.0
    before = np.concatenate([[1.0], np.zeros_like(survival)])
    logs = np.log(survival[inner])
    spread = z * np.sqrt(summed[inner]) / np.abs(logs)
    low[inner] = np.exp(logs * np.exp(spread))
    before[1:][inner] = np.exp(logs * np.exp(-spread))
    high = before[1:]
    high[~inner] = before[:-1][~inner]  # S = 0 at the last time alone
    return low, high
