"""Two-arm tests at one planned look, and the sample-ratio test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincc, stdtr, stdtrit

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import LARGEST, as_number, open_unit, sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_ROUNDING_CUPED = 1e-14  # of the largest covariate: numbers that differ by less may be one


def cuped_adjust(y: ArrayLike, covariate: ArrayLike) -> NDArray[np.float64]:
    """Return the numbers minus the part that a pre-test covariate explains, with the same mean.

    Adjust both arms in one call, then compare the adjusted arms: the variance falls by the squared
    correlation and the difference stays unbiased.

    Assumes that the covariate was measured before the test began. One that the treatment can move
    (anything measured during the test) takes away part of the effect. Adjusting each arm apart adds
    the difference of the arms' covariate means back in.

    Args:
        y: One number per unit, both arms together, shape (n,), n >= 2.
        covariate: The same quantity before the test, one per unit, shape (n,).

    Returns:
        Adjusted numbers, float64 (n,); equal to ``y`` when the covariate is constant up to
        rounding.

    Raises:
        InputError: Non-finite numbers, any above 1e100 in absolute value, or shapes that differ.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> before = rng.normal(size=1000)
        >>> after = before + rng.normal(size=1000)
        >>> adjusted = cuped_adjust(after, before)
        >>> round(float(adjusted.var() / after.var()), 2)
        0.49

    Source:
        Deng, Xu, Kohavi and Walker (2013), Improving the sensitivity of online controlled
        experiments by utilizing pre-experiment data, equations 4 and 5. Unbiasedness and gain:
        ``tests/stats/test_cuped.py``.
    """
    numbers, known = sample(y, "y"), sample(covariate, "covariate")
    if numbers.shape != known.shape:
        message = f"covariate has shape {known.shape}; allowed: y's shape {numbers.shape}"
        raise InputError(message)
    if np.ptp(known) <= _ROUNDING_CUPED * np.abs(known).max():
        return numbers.copy()
    centred = known - known.mean()
    centred /= np.abs(centred).max()  # squares of small ones leave float64
    centred -= centred.mean()  # what rounding left of it would move the mean of the numbers
    spread = float(centred @ centred)
    return np.asarray(numbers - float(centred @ (numbers - numbers.mean())) / spread * centred)


_ROUNDING = 1e-14
"""Numbers that differ by less, as a share of the largest, differ by rounding alone."""
_LEAST = float(np.finfo(np.float64).tiny)
"""Numbers below it hold fewer digits the smaller they are."""
_LARGEST_TOTAL = 2.0**53
"""Above it, float64 cannot hold every whole number."""


@dataclass(frozen=True)
class Comparison:
    """Difference of two means with its interval and test.

    Args:
        difference: Mean of the candidate minus mean of the control, in the reward's unit.
        low: Lower end of the interval of the difference; minus infinity where an arm's numbers are
            all alike.
        high: Upper end; infinite for a one-sided test, and where an arm's numbers are all alike.
        statistic: The t statistic; 0 where an arm's numbers are all alike.
        degrees: Degrees of freedom; 0 where an arm's numbers are all alike.
        p_value: Probability, under the null, of a statistic at least as extreme; 1 where an arm's
            numbers are all alike.
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
    """Result of a sample-ratio test.

    Args:
        observed: Units per arm.
        expected: Units per arm that the planned shares give.
        statistic: How far it is off: Pearson's chi-square, or what the test says instead.
        p_value: Probability of a split at least this far off when the plan was kept, or above it.
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

    Where the numbers of an arm are all alike, they say nothing of their spread: one that never
    failed in ten units may fail once in twenty. Nothing is rejected then, whatever the other arm
    shows. Bound such an arm by itself (`all_alike_interval`), or compare shares by an exact test.
    Outcomes that are rare but there bring false alarms as well, once the arms differ in size: .10
    in place of .05 at 5 expected among 100 units against 500 among 10,000, .07 at 10.

    Args:
        candidate: One number per unit, shape (n,), n >= 2.
        control: One number per unit, shape (m,), m >= 2.
        level: Confidence level of interval and test, in (0, 1).

    Returns:
        Difference candidate minus control with its interval and test. Where an arm's numbers are
        all alike: an interval without ends, p = 1, not rejected.

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
    if math.isinf(error):
        return _untold(difference)
    statistic = difference / error
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

    So do rare outcomes. An arm without any failure shows nothing here: no failure in a hundred is
    what a candidate that fails once in a hundred shows one time in three, and it is never called
    non-inferior for that (`all_alike_interval` says what it may hide). With fewer than about ten
    failures an arm a candidate worse by exactly the margin passes too often: in place of .05 up to
    .08 with arms of one size, .12 where control has ten times the units.

    Args:
        candidate: One number per unit, larger is better, shape (n,), n >= 2.
        control: One number per unit, shape (m,), m >= 2.
        margin: Loss that would be accepted, in the numbers' unit, at least 0.
        level: One-sided confidence level, in (0, 1).

    Returns:
        The difference, its one-sided lower bound (``high`` is infinite) and the test; ``rejected``
        exactly when ``low`` is above -``margin``. Where an arm's numbers are all alike: no bound,
        p = 1, not rejected.

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
    loss = as_number(margin)
    if not 0.0 <= loss < math.inf:
        message = f"margin is {brief(margin)}; allowed: a finite number >= 0, in the rewards' unit"
        raise InputError(message)
    difference, error, degrees = _welch(candidate, control)
    alpha = 1.0 - open_unit(level, "level")
    if math.isinf(error):
        return _untold(difference)
    statistic = (difference + loss) / error
    low = difference - float(-stdtrit(degrees, alpha)) * error
    p_value = float(stdtr(degrees, -statistic))
    return Comparison(difference, low, math.inf, statistic, degrees, p_value, low > -loss)


def sample_ratio_test(
    observed: ArrayLike, shares: ArrayLike | None = None, *, level: float = 0.999
) -> SampleRatio:
    """Return whether units were split over the arms as planned.

    A mismatch means that units were lost or assigned wrongly in one arm, so that no result of the
    test can be trusted. Count units, never decisions: decisions of one user are not independent.

    Each arm's count is binomial when the plan is kept, so its p-value is exact: twice the smaller
    tail. With more than two arms the smallest of them counts, times the arms (Bonferroni). Hence
    the chance of a false call is at most 1 - ``level`` at any count, at one look; Pearson's
    chi-square made .017 of .001 with 20 units and a share of .01. For many looks:
    `sequential_sample_ratio_test`.

    Args:
        observed: Units per arm, whole numbers, shape (arms,), at least two arms.
        shares: Planned shares, positive, in any common scale, shape (arms,); equal by default.
        level: A mismatch is called below p = 1 - ``level``; strict, as it is looked at often.

    Returns:
        Counts, expected counts, Pearson's chi-square (which the p-value is not of), p-value and
        the call.

    Raises:
        InputError: Negative counts or fractions, none at all, shares not positive, shapes that
            differ.

    Example:
        >>> sample_ratio_test([10_000, 10_400]).p_value.__round__(4)
        0.0052

    Source:
        Clopper and Pearson (1934), The use of confidence or fiducial limits, for the two tails;
        Fabijan et al. (2019), Diagnosing sample ratio mismatch in online controlled experiments.
        False-alarm rates, added up: ``tests/stats/test_comparisons.py``.
    """
    counts, plan = split(observed, shares)
    total = float(counts.sum())
    if total == 0.0:
        message = "observed is 0 in every arm; allowed: counts with a sum above 0; wait for units"
        raise InputError(message)
    expected = total * plan
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Both counts of two arms are one and the same.
    arms = 1 if counts.size == 2 else counts.size
    p_value = min(1.0, arms * float(_exact(counts, total, plan)[:arms].min()))
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
        InputError: Negative counts or fractions, shares not positive, shapes that differ.

    Example:
        >>> split([3, 1], None)
        (array([3., 1.]), array([0.5, 0.5]))
    """
    counts = sample(observed, "observed").copy()
    plan = np.ones_like(counts) if shares is None else sample(shares, "shares")
    if plan.shape != counts.shape or np.any(plan < 1.0 / LARGEST):
        message = f"shares are {plan.tolist()}; allowed: {counts.size} positive numbers"
        raise InputError(f"{message} of at least {1.0 / LARGEST:g}")
    if np.any(counts < 0.0):
        message = f"observed is {counts.tolist()}; allowed: counts of units >= 0"
        raise InputError(message)
    if counts.sum() > _LARGEST_TOTAL or np.any(counts != np.floor(counts)):
        message = f"observed is {counts.tolist()}; allowed: whole numbers with a sum up to 2^53"
        raise InputError(f"{message}; count units")
    return counts, plan / plan.sum()


def _exact(
    counts: NDArray[np.float64], total: float, plan: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (arms,) the two-sided binomial p-value of each count, by itself."""
    # The binomial's tails as incomplete beta functions; at its ends they are all there is.
    at_most = betaincc(counts + 1.0, np.maximum(total - counts, 1.0), plan)
    at_least = betainc(np.maximum(counts, 1.0), total - counts + 1.0, plan)
    below = np.where(counts == total, 1.0, at_most)
    above = np.where(counts == 0.0, 1.0, at_least)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(below, above)), np.float64)


def _welch(candidate: ArrayLike, control: ArrayLike) -> tuple[float, float, float]:
    """Return the difference, its standard error and Satterthwaite's degrees of freedom.

    The error is infinite, without degrees of freedom, if an arm's numbers are all equal.
    """
    arms = sample(candidate, "candidate"), sample(control, "control")
    parts = [_squared_error(arm) for arm in arms]
    total = sum(parts)
    difference = float(arms[0].mean() - arms[1].mean())
    if math.isinf(total):
        return difference, math.inf, 0.0
    # Shares of the variance, since the square of a large variance leaves float64.
    spread = sum(
        (part / total) ** 2 / (arm.size - 1) for part, arm in zip(parts, arms, strict=True)
    )
    return difference, math.sqrt(total), 1.0 / spread


def _squared_error(arm: NDArray[np.float64]) -> float:
    """Return the squared error of an arm's mean; infinite where its numbers show no spread."""
    alike = float(np.ptp(arm)) <= _ROUNDING * float(np.abs(arm).max())
    variance = 0.0 if alike else float(arm.var(ddof=1))
    squared = variance / arm.size
    # Squares may be too small for float64.
    return squared if squared >= _LEAST else math.inf


def _untold(difference: float) -> Comparison:
    return Comparison(difference, -math.inf, math.inf, 0.0, 0.0, 1.0, rejected=False)
