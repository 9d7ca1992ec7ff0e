"""Tests of two arms at one planned look, and the check of the split between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc, stdtr, stdtrit

from steersman.errors import InputError
from steersman.stats.arguments import as_number, open_unit, sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Comparison:
    """A difference of two means, its interval and its test.

    Args:
        difference: Mean of the candidate minus mean of the control, in the reward's unit.
        low: Lower end of the interval of the difference.
        high: Upper end; infinite for a one-sided test.
        statistic: The t statistic.
        degrees: Degrees of freedom.
        p_value: Probability, under the null, of a statistic at least as extreme.
        rejected: Whether the null was rejected at the level asked for.
    """

    difference: float
    low: float
    high: float
    statistic: float
    degrees: float
    p_value: float
    rejected: bool


@dataclass(frozen=True)
class SampleRatio:
    """Whether units were split as planned.

    Args:
        observed: Units per arm.
        expected: Units per arm that the planned shares give.
        statistic: Pearson's chi-square.
        p_value: Probability of a split at least this far off when the plan was kept.
        mismatch: Whether the split is off at the level asked for: then analyse nothing.
    """

    observed: NDArray[np.float64]
    expected: NDArray[np.float64]
    statistic: float
    p_value: float
    mismatch: bool


def welch_test(candidate: ArrayLike, control: ArrayLike, *, level: float = 0.95) -> Comparison:
    """Return the two-sided test that both arms have the same mean, without equal variances.

    Assumes one number per unit, independent units, and one look. Analysing the decisions of sticky
    users as units gave 10 to 72 % false alarms, looking 40 times 31 %. Heavy tails need
    hundreds of units per arm before the t law fits.

    Args:
        candidate: One number per unit, shape (n,), n >= 2.
        control: One number per unit, shape (m,), m >= 2.
        level: Confidence level of interval and test, in (0, 1).

    Returns:
        Difference candidate minus control with its interval and test.

    Raises:
        InputError: Too few, misshapen or non-finite numbers, or above 1e100 in absolute value.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> result = welch_test(rng.normal(0.3, 1, 400), rng.normal(0, 2, 300))
        >>> round(result.difference, 3), round(result.p_value, 4), result.rejected
        (0.253, 0.0452, True)

    Source:
        Welch (1947), The generalization of Student's problem, with Satterthwaite's degrees of
        freedom. False-alarm rate: ``tests/stats/test_comparisons.py``.
    """
    difference, error, degrees = _welch(candidate, control)
    alpha = 1.0 - open_unit(level, "level")
    statistic = _ratio(difference, error)
    p_value = 2.0 * float(stdtr(degrees, -abs(statistic)))
    half = float(-stdtrit(degrees, alpha / 2.0)) * error
    low, high = difference - half, difference + half
    return Comparison(difference, low, high, statistic, degrees, p_value, p_value <= alpha)


def non_inferiority_test(
    candidate: ArrayLike, control: ArrayLike, *, margin: float, level: float = 0.95
) -> Comparison:
    """Return the one-sided test that the candidate is not worse than control by ``margin``.

    The null is "worse by the margin or more"; rejecting it is the good news. For outcomes where
    smaller is better, pass the negated numbers. Assumptions and what breaks them are those of
    :func:`welch_test`; a margin chosen after seeing the data breaks it too.

    Args:
        candidate: One number per unit, larger is better, shape (n,), n >= 2.
        control: One number per unit, shape (m,), m >= 2.
        margin: Loss that would be accepted, in the numbers' unit, at least 0.
        level: One-sided confidence level, in (0, 1).

    Returns:
        The difference, its one-sided lower bound (``high`` is infinite) and the test; ``rejected``
        exactly when ``low`` is above -``margin``.

    Raises:
        InputError: Too few, misshapen or non-finite numbers, or above 1e100 in absolute value; a
            negative margin.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a, b = rng.normal(0, 1, 500), rng.normal(0, 1, 500)
        >>> non_inferiority_test(a, b, margin=0.2).rejected
        True

    Source:
        Wellek (2010), Testing statistical hypotheses of equivalence and noninferiority, chapter 1,
        with Welch's standard error. Error at the margin: ``tests/stats/test_comparisons.py``.
    """
    if not 0.0 <= as_number(margin) < math.inf:
        message = f"margin is {margin!r}; allowed is a finite number >= 0, in the rewards' unit"
        raise InputError(message)
    difference, error, degrees = _welch(candidate, control)
    alpha = 1.0 - open_unit(level, "level")
    statistic = _ratio(difference + margin, error)
    low = difference - float(-stdtrit(degrees, alpha)) * error
    p_value = float(stdtr(degrees, -statistic))
    return Comparison(difference, low, math.inf, statistic, degrees, p_value, low > -margin)


def sample_ratio_test(
    observed: ArrayLike, shares: ArrayLike | None = None, *, level: float = 0.999
) -> SampleRatio:
    """Return whether units were split over the arms as planned.

    A mismatch means that units were lost or assigned wrongly in one arm, so that no result of the
    test can be trusted. Count units, never decisions: decisions of one user are not independent.

    Args:
        observed: Units per arm, shape (arms,), at least two arms.
        shares: Planned shares, positive, in any common scale, shape (arms,); equal by default.
        level: A mismatch is called below p = 1 - ``level``; strict, as it is looked at often.

    Returns:
        Counts, expected counts, chi-square, p-value and the call.

    Raises:
        InputError: Negative counts, none at all, shares not positive, shapes that differ.

    Example:
        >>> sample_ratio_test([10_000, 10_400]).p_value.__round__(4)
        0.0051

    Source:
        Pearson (1900); Fabijan et al. (2019), Diagnosing sample ratio mismatch in online
        controlled experiments. False-alarm rate: ``tests/stats/test_comparisons.py``.
    """
    counts, plan = split(observed, shares)
    if counts.sum() == 0.0:
        message = "observed is 0 in every arm; allowed are counts with a sum above 0; wait"
        raise InputError(message)
    expected = counts.sum() * plan
    statistic = float(((counts - expected) ** 2 / expected).sum())
    p_value = float(chdtrc(counts.size - 1, statistic))
    return SampleRatio(
        counts, expected, statistic, p_value, p_value < 1.0 - open_unit(level, "level")
    )


def split(
    observed: ArrayLike, shares: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return counts per arm, and the planned shares with a sum of 1.

    Args:
        observed: Units per arm, shape (arms,), at least two arms.
        shares: Planned shares, positive, in any common scale; equal if None.

    Raises:
        InputError: Negative counts, shares not positive, shapes that differ.

    Example:
        >>> split([3, 1], None)
        (array([3., 1.]), array([0.5, 0.5]))
    """
    counts = sample(observed, "observed")
    plan = np.ones_like(counts) if shares is None else sample(shares, "shares")
    if plan.shape != counts.shape or np.any(plan <= 0.0):
        message = f"shares are {plan.tolist()}; allowed are {counts.size} positive numbers"
        raise InputError(message)
    if np.any(counts < 0.0):
        message = f"observed is {counts.tolist()}; allowed are counts of units >= 0"
        raise InputError(message)
    return counts, plan / plan.sum()


def _welch(candidate: ArrayLike, control: ArrayLike) -> tuple[float, float, float]:
    """Return the difference, its standard error and Satterthwaite's degrees of freedom."""
    arms = sample(candidate, "candidate"), sample(control, "control")
    parts = [float(arm.var(ddof=1)) / arm.size for arm in arms]
    total = sum(parts)
    difference = float(arms[0].mean() - arms[1].mean())
    if total == 0.0:
        return difference, 0.0, float(arms[0].size + arms[1].size - 2)
    # Shares of the variance, since the square of a large variance leaves float64.
    spread = sum(
        (part / total) ** 2 / (arm.size - 1) for part, arm in zip(parts, arms, strict=True)
    )
    return difference, math.sqrt(total), 1.0 / spread


def _ratio(difference: float, error: float) -> float:
    # Arms without any variance: equal means are no evidence at all, different ones are certain.
    if error == 0.0:
        return 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
    return difference / error
