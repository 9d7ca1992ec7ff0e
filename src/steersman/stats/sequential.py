"""Sequential inference, valid under repeated looks."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import lambertw

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import as_number, count, finite, open_unit, positive
from steersman.stats.interval import Interval


def asymptotic_confidence_sequence(
    mean: float, variance: float, n: int, *, level: float = 0.95, n_star: int
) -> Interval:
    """Return a confidence sequence for the mean, valid after every unit.

    The probability that *any* of the intervals, over all n, misses the true mean is about
    1 - ``level``; so one may peek, stop early and go on. A fixed-time interval does not allow that:
    looked at 40 times it misses in about 31 % of runs.

    Assumes independent units (or martingale differences) with at least a little more than two
    moments. "Asymptotic": the first look must come after enough units for the central limit theorem
    (about 50; more when rewards are rare). Several numbers of one sticky user counted as units
    break it, and so does choosing ``n_star`` after seeing the data. Zero variance is not evidence:
    numbers that were all alike so far have a variance of 0, and an interval without width that is
    sure of nothing (`all_alike_interval`).

    Args:
        mean: Running mean of the first ``n`` units (or the difference of two arms' means).
        variance: Running variance of one unit's number, at least 0.
        n: Units so far, at least 1.
        level: Probability that no look ever misses, in (0, 1).
        n_star: Units at which the sequence is tightest; fixed before the first look.

    Returns:
        The interval at this look, about 1.5 times as wide as the fixed-time one at ``n_star``;
        without ends below two units, of which no variance is known.

    Raises:
        InputError: An argument is outside its range.

    Example:
        >>> low, high = asymptotic_confidence_sequence(0.5, 0.25, 1000, n_star=1000)
        >>> round(low, 4), round(high, 4)
        (0.452, 0.548)

    Source:
        Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), Time-uniform central limit theory
        and asymptotic confidence sequences, Theorem 2.2; rho is its exact minimiser at ``n_star``,
        by Lambert's W. False alarms over 40 looks: ``tests/stats/test_sequential.py``.
    """
    alpha = 1.0 - open_unit(level, "level")
    size, tuned = count(n, "n"), count(n_star, "n_star")
    centre, spread = as_number(mean), as_number(variance)
    if not (math.isfinite(centre) and 0.0 <= spread < math.inf):
        message = (
            f"mean is {brief(mean)}, variance {brief(variance)}; allowed: finite numbers, >= 0"
        )
        raise InputError(message)
    rho_squared = tuned_rho_squared(alpha, tuned)
    scaled = size * rho_squared + 1.0
    log_term = math.log(math.sqrt(scaled) / alpha)
    half = math.sqrt(spread) / size * math.sqrt(2.0 * scaled / rho_squared * log_term)
    if size < 2:
        half = math.inf
    return Interval(centre - half, centre + half)


@lru_cache(maxsize=1024)
def tuned_rho_squared(alpha: float, n_star: int) -> float:
    """Return the mixture's variance that makes a two-sided sequence tightest at ``n_star``.

    Args:
        alpha: Chance that any look misses, in (0, 1).
        n_star: Units at which the sequence is tightest, at least 1.

    Returns:
        rho squared, above 0: (-W(-alpha^2 / e) - 1) / n_star on the lower branch of Lambert's W.

    Raises:
        InputError: alpha is 0 or 1 to the last digit.

    Example:
        >>> round(tuned_rho_squared(0.05, 1000), 6)
        0.008212
    """
    rho_squared = (-float(lambertw(-(alpha**2) / math.e, k=-1).real) - 1.0) / n_star
    if not rho_squared > 0.0:
        level = 1.0 - alpha
        message = f"level is {brief(level)}, rounded to 0 or 1; allowed: levels such as 0.95"
        raise InputError(message)
    return rho_squared


def msprt(mean_diff: float, variance: float, n: int, *, tau: float) -> float:
    """Return the mixture sequential probability ratio test's p-value at this look.

    Rejecting at the first look whose value is at most alpha keeps the false-alarm rate at or below
    alpha over all looks. The always-valid p-value is the running minimum over the looks so far.

    Assumes independent normal differences of known variance; with a plug-in variance and any law
    it holds approximately once ``n`` is large. Units that are not independent, or a ``tau`` chosen
    after seeing the data, break it.

    Args:
        mean_diff: Mean of the first ``n`` differences candidate minus control.
        variance: Variance of one such difference, above 0 (for two arms of equal size whose units
            are paired by arrival: the sum of both arms' variances).
        n: Differences so far, at least 1.
        tau: Standard deviation of the normal mixture over effects, above 0: about the size of
            effect that one hopes for.

    Returns:
        min(1, 1 / likelihood ratio), in [0, 1].

    Raises:
        InputError: An argument is outside its range.

    Example:
        >>> round(msprt(0.1, 1.0, 2000, tau=0.1), 5)
        0.00033

    Source:
        Johari, Koomen, Pekelis and Walsh (2022), Always valid inference, section on the mSPRT with
        a normal mixture, for differences of variance V = ``variance``. False-alarm rate and a
        second implementation by quadrature: ``tests/stats/test_sequential.py``.
    """
    log_size = math.log(count(n, "n"))
    log_spread = math.log(positive(variance, "variance"))
    log_mixture = 2.0 * math.log(positive(tau, "tau"))
    mean_diff = finite(mean_diff, "mean_diff")
    # In logarithms, since squares of large or small arguments leave float64.
    log_gain = log_size + log_mixture - log_spread
    log_ratio = -0.5 * float(np.logaddexp(0.0, log_gain))
    if mean_diff != 0.0:
        log_square = 2.0 * math.log(abs(mean_diff)) + log_size - log_spread
        # Beyond exp(700) the p-value is 0 in any case.
        log_ratio += 0.5 * math.exp(min(log_square - float(np.logaddexp(0.0, -log_gain)), 700.0))
    return math.exp(-max(log_ratio, 0.0))
