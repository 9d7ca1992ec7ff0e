"""How many units show an effect, and which effect a number of units can show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from scipy import optimize, stats

from steersman.errors import InputError
from steersman.stats.arguments import open_unit, positive

if TYPE_CHECKING:
    from collections.abc import Callable

Test = Literal["t", "z"]


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
    standardised = abs(_effect(effect)) / positive(sd, "sd")
    return _power(test, paired=paired)(standardised, _units(n), 1.0 - open_unit(level, "level"))


def required_sample_size(
    effect: float,
    sd: float,
    *,
    power: float = 0.8,
    level: float = 0.95,
    test: Test = "t",
    paired: bool = False,
) -> int:
    """Return the fewest units per arm (or pairs) whose test reaches ``power``.

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
        InputError: An argument is outside its range.

    Example:
        >>> required_sample_size(0.03, 0.25), required_sample_size(0.03, 0.25, paired=True)
        (1092, 547)

    Source:
        Cohen (1988), sections 2.4 and 12.4. Known answers: ``tests/stats/test_power.py``.
    """
    standardised = abs(_effect(effect)) / positive(sd, "sd")
    alpha = 1.0 - open_unit(level, "level")
    wanted = _wanted_power(power, alpha)
    reached = _power(test, paired=paired)
    quantiles = stats.norm.ppf(1.0 - alpha / 2.0) + stats.norm.ppf(wanted)
    start = (1.0 if paired else 2.0) * (quantiles / standardised) ** 2
    n = max(2, math.ceil(float(start)))
    # The t test needs a few units more than the z formula, and the formula leaves out a tail.
    while reached(standardised, n, alpha) < wanted:
        n += 1
    while n > 2 and reached(standardised, n - 1, alpha) >= wanted:
        n -= 1
    return n


def minimum_detectable_effect(
    n: int,
    sd: float,
    *,
    power: float = 0.8,
    level: float = 0.95,
    test: Test = "t",
    paired: bool = False,
) -> float:
    """Return the smallest true difference that ``n`` units per arm find with ``power``.

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
    scale, units = positive(sd, "sd"), _units(n)
    alpha = 1.0 - open_unit(level, "level")
    wanted = _wanted_power(power, alpha)
    reached = _power(test, paired=paired)
    ceiling = 1.0
    while reached(ceiling, units, alpha) < wanted:
        ceiling *= 2.0
    root = optimize.brentq(lambda d: reached(d, units, alpha) - wanted, 0.0, ceiling, xtol=1e-12)
    return float(root) * scale


def _power(test: Test, *, paired: bool) -> Callable[[float, int, float], float]:
    """Return power as a function of (standardised effect, n, alpha)."""
    if test not in {"t", "z"}:
        message = f"test is {test!r}; allowed are 't' and 'z'"
        raise InputError(message)
    arms = 1 if paired else 2

    def z_power(effect: float, n: int, alpha: float) -> float:
        shift = effect * math.sqrt(n / arms)
        edge = stats.norm.ppf(1.0 - alpha / 2.0)
        return float(stats.norm.sf(edge - shift) + stats.norm.cdf(-edge - shift))

    def t_power(effect: float, n: int, alpha: float) -> float:
        shift, degrees = effect * math.sqrt(n / arms), arms * (n - 1)
        edge = stats.t.ppf(1.0 - alpha / 2.0, degrees)
        upper, lower = stats.nct.sf(edge, degrees, shift), stats.nct.cdf(-edge, degrees, shift)
        # Far in the lower tail scipy answers NaN for a probability that is zero in float64.
        return float(upper + (lower if math.isfinite(lower) else 0.0))

    return z_power if test == "z" else t_power


def _effect(effect: float) -> float:
    if not (math.isfinite(effect) and effect != 0.0):
        message = f"effect is {effect!r}; allowed is a finite number other than 0"
        raise InputError(message)
    return float(effect)


def _units(n: int) -> int:
    if int(n) != n or n < 2:
        message = f"n is {n!r}; allowed is a whole number of at least 2 units per arm"
        raise InputError(message)
    return int(n)


def _wanted_power(power: float, alpha: float) -> float:
    if open_unit(power, "power") <= alpha:
        message = f"power is {power!r}; allowed is above 1 - level = {alpha:.4g}, the size itself"
        raise InputError(message)
    return float(power)
