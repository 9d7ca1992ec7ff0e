"""Power analysis: sample size, minimal detectable effect and power."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import scipy
from scipy.special import chdtr, ndtr, ndtri, stdtrit

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import as_number, check_truth, count, open_unit, positive

if TYPE_CHECKING:
    from collections.abc import Callable

Test = Literal["t", "z"]

# Degrees of freedom from which a normal law with corrected moments gives the noncentral t's
# probabilities to 1e-13, where scipy's own were not made to be used.
_NORMAL_DEGREES = 1e6

# Shift from which the statistic's numerator is a constant next to its denominator.
_CERTAIN_SHIFT = 1e5

# Units per arm beyond which float64 cannot represent one more unit.
_MOST_UNITS = 2**53


def achieved_power(
    effect: float,
    sd: float,
    n: int,
    *,
    level: float = 0.95,
    test: Test = "t",
    paired: bool = False,
) -> float:
    """Return the probability that a two-sided test rejects when the true difference is ``effect``.

    Assumes independent units, one number per unit, equal arms of equal variance, and one look at
    the end. Many decisions of one user counted as many units, or stopping at the first good look,
    break it: the true error rates are then far above the nominal ones.

    Args:
        effect: True difference of means, in the reward's unit, any sign, not 0.
        sd: Standard deviation of one unit's number, or of one pair's difference when ``paired``.
        n: Units per arm, or pairs; at least 2.
        level: Confidence level of the test, in (0, 1).
        test: ``"t"`` estimates the variance (Welch or Student); ``"z"`` takes it as known.
        paired: True for a one-sample test on differences.

    Returns:
        Power, in (0, 1).

    Raises:
        InputError: An argument is outside its range.

    Example:
        >>> round(achieved_power(0.03, 0.25, 500), 3)
        0.474

    Source:
        Cohen (1988), Statistical Power Analysis, sections 2.2 and 12.2: noncentral t.
        Checked against a simulation in ``tests/stats/test_power.py``.
    """
    standardised = _standardised(effect, sd)
    units = count(n, "n", at_least=2)
    return _power(test, paired=paired)(standardised, units, 1.0 - open_unit(level, "level"))


def required_sample_size(
    effect: float,
    sd: float,
    *,
    power: float = 0.8,
    level: float = 0.95,
    test: Test = "t",
    paired: bool = False,
) -> int:
    """Return the smallest number of units per arm (or pairs) that reaches ``power``.

    The answer to "how many requests until this can be known" in a live test. Assumptions, and
    what breaks them, are those of :func:`achieved_power`.

    Args:
        effect: True difference of means worth finding, in the reward's unit, not 0.
        sd: Standard deviation of one unit's number, or of one pair's difference when ``paired``.
        power: Wanted probability of finding it, in (0, 1) and above 1 - ``level``.
        level: Confidence level of the test, in (0, 1).
        test: ``"t"`` or ``"z"``.
        paired: True for a one-sample test on differences.

    Returns:
        Units per arm, or pairs, at least 2.

    Raises:
        InputError: Argument out of range, or 2^53 units would not be enough.

    Example:
        >>> required_sample_size(0.03, 0.25), required_sample_size(0.03, 0.25, paired=True)
        (1092, 547)

    Source:
        Cohen (1988), sections 2.4 and 12.4. Known answers: ``tests/stats/test_power.py``.
    """
    standardised = _standardised(effect, sd)
    alpha = 1.0 - open_unit(level, "level")
    wanted = _wanted_power(power, alpha)
    reached = _power(test, paired=paired)
    quantiles = float(ndtri(wanted) - ndtri(alpha / 2.0))
    root = math.sqrt(1.0 if paired else 2.0) * quantiles / standardised
    if root * root > _MOST_UNITS:
        message = (
            f"effect is {effect!r} at sd {sd!r}: detecting it needs more than "
            f"{_MOST_UNITS:.0e} units; allowed: larger effects; check the unit of both"
        )
        raise InputError(message)
    # The t test needs a few units more than the z formula, and the formula leaves out a tail.
    return _smallest(
        lambda n: reached(standardised, n, alpha) >= wanted, near=math.ceil(root * root)
    )


def minimum_detectable_effect(
    n: int,
    sd: float,
    *,
    power: float = 0.8,
    level: float = 0.95,
    test: Test = "t",
    paired: bool = False,
) -> float:
    """Return the smallest true difference that ``n`` units per arm detect with ``power``.

    Assumptions, and what breaks them, are those of :func:`achieved_power`.

    Args:
        n: Units per arm, or pairs; at least 2.
        sd: Standard deviation of one unit's number, or of one pair's difference when ``paired``.
        power: Wanted probability of finding it, in (0, 1) and above 1 - ``level``.
        level: Confidence level of the test, in (0, 1).
        test: ``"t"`` or ``"z"``.
        paired: True for a one-sample test on differences.

    Returns:
        Difference in the unit of ``sd``, above 0.

    Raises:
        InputError: An argument is outside its range.

    Example:
        >>> round(minimum_detectable_effect(500, 0.25), 3)
        0.044

    Source:
        The inverse of :func:`achieved_power` in its first argument.
    """
    scale, units = positive(sd, "sd"), count(n, "n", at_least=2)
    alpha = 1.0 - open_unit(level, "level")
    wanted = _wanted_power(power, alpha)
    reached = _power(test, paired=paired)
    # In standard errors, so that the root is of order 1 for any number of units.
    error = math.sqrt((1.0 if paired else 2.0) / units)
    ceiling = 1.0
    while reached(ceiling * error, units, alpha) < wanted:
        ceiling *= 2.0
    root = scipy.optimize.brentq(
        lambda shift: reached(shift * error, units, alpha) - wanted, 0.0, ceiling, xtol=1e-12
    )
    found = float(root) * error * scale
    if not (math.isfinite(found) and found > 0.0):
        message = (
            f"sd is {brief(sd)}: the effect leaves float64; allowed: moderate ones; rescale it"
        )
        raise InputError(message)
    return found


def _power(test: Test, *, paired: bool) -> Callable[[float, int, float], float]:
    """Return power as a function of (standardised effect, n, alpha)."""
    check_truth("paired", paired)
    named: object = test
    if not isinstance(named, str) or named not in {"t", "z"}:
        message = f"test is {brief(test)}; allowed: 't' and 'z'"
        raise InputError(message)
    arms = 1 if paired else 2

    def z_power(effect: float, n: int, alpha: float) -> float:
        shift = effect * math.sqrt(n / arms)
        edge = -ndtri(alpha / 2.0)
        return float(ndtr(shift - edge) + ndtr(-edge - shift))

    def t_power(effect: float, n: int, alpha: float) -> float:
        shift, degrees = effect * math.sqrt(n / arms), arms * (n - 1)
        edge = float(-stdtrit(degrees, alpha / 2.0))
        if shift > _CERTAIN_SHIFT:
            odds = min(shift / max(edge, 1.0), _CERTAIN_SHIFT)
            return float(chdtr(degrees, degrees * odds * odds))
        if degrees > _NORMAL_DEGREES:
            return _normal_power(shift, edge, degrees)
        upper = scipy.stats.nct.sf(edge, degrees, shift)  # imported at its first use: it is slow
        lower = scipy.stats.nct.cdf(-edge, degrees, shift)
        # Far in the lower tail scipy answers NaN for a probability that is zero in float64.
        return float(upper + (lower if math.isfinite(lower) else 0.0))

    return z_power if test == "z" else t_power


def _normal_power(shift: float, edge: float, degrees: int) -> float:
    """Return the power of a t test with many degrees of freedom.

    Source:
        Abramowitz and Stegun (1964), formula 26.7.10. Against scipy's noncentral t:
        ``tests/stats/test_power.py``.
    """
    centre, spread = edge * (1.0 - 0.25 / degrees), math.sqrt(1.0 + 0.5 * edge * edge / degrees)
    upper = ndtr((shift - centre) / spread)
    return float(upper + ndtr((-centre - shift) / spread))


def _smallest(enough: Callable[[int], bool], *, near: int) -> int:
    """Return the smallest n >= 2 that is enough: steps that double from ``near``, then halving."""
    high, step = max(2, near), 1
    low = high - 1
    while not enough(high):
        low, high, step = high, high + step, 2 * step
    while low > 1 and enough(low):
        low, high, step = max(1, low - step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _standardised(effect: float, sd: float) -> float:
    """Return the effect's size in standard deviations."""
    if not math.isfinite(as_number(effect)) or effect == 0.0:
        message = f"effect is {brief(effect)}; allowed: a finite number other than 0"
        raise InputError(message)
    ratio = abs(float(effect)) / positive(sd, "sd")
    if not (math.isfinite(ratio) and ratio > 0.0):
        message = f"effect is {effect!r} at sd {sd!r}, a ratio of {ratio}; check the unit of both"
        raise InputError(message)
    return ratio


def _wanted_power(power: float, alpha: float) -> float:
    if open_unit(power, "power") <= alpha * (1.0 + 1e-9):
        message = (
            f"power is {brief(power)}; allowed: above 1 - level = {alpha:.4g}, the size of the test"
        )
        raise InputError(message)
    return float(power)
