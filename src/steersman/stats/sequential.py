"""Sequential inference, valid under repeated looks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, lambertw

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.stats.arguments import as_number, check_truth, count, finite, open_unit, positive
from steersman.stats.comparisons import SampleRatio, split
from steersman.stats.interval import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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


_LEAST_CONCENTRATION = 1e-300
_MOST_CONCENTRATION = 1e12
_MOST_ARRIVED = 1e14


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and variance of an arm's numbers, one per unit.

    Args:
        n: Units, a whole number of at least 0.
        mean: Of their numbers; 0 without any.
        variance: Of one unit's number, at least 0, with n - 1 below; 0 below two units.

    Raises:
        InputError: A number that is not finite, or outside its range; a part of a unit.

    Example:
        >>> Moments(3, 0.5, 0.25).n
        3
    """

    n: int
    mean: float
    variance: float

    def __post_init__(self) -> None:
        """Validate the moments."""
        n, mean, variance = map(as_number, (self.n, self.mean, self.variance))
        whole = n >= 0.0 and n.is_integer()
        if not (whole and math.isfinite(mean) and 0.0 <= variance < math.inf):
            given = ", ".join(map(brief, (self.n, self.mean, self.variance)))
            message = f"n, mean, variance are {given}; allowed"
            message += " are finite numbers, n and variance >= 0, and n is whole; drop NaN"
            raise InputError(message)
        for name, number in (("n", int(n)), ("mean", mean), ("variance", variance)):
            object.__setattr__(self, name, number)


def two_arm_confidence_sequence(
    candidate: Moments,
    control: Moments,
    *,
    level: float = 0.95,
    n_star: int,
    one_sided: bool = False,
) -> Interval:
    r"""Return a confidence sequence for the difference of two means, valid at any time.

    Let N = n_c + n_k units have been seen, each on the candidate with probability 1/2 and
    independently of all before. The estimate mean_c - mean_k is the average of

        phi_i = 2 A_i (Y_i - mu_c) - 2 (1 - A_i) (Y_i - mu_k) + mu_c - mu_k

    but for a remainder of order log log N / N, which is small beside 1 / sqrt(N). The phi_i are
    independent, so the one-sample sequence over N units holds for their mean. Its variance of one
    term, estimated, is N (s_c^2 / n_c + s_k^2 / n_k): the variances may differ, and so may the
    counts, by chance. Hence the interval is the one of `asymptotic_confidence_sequence` with n = N.

    Assumes one number per unit, independent units, arms that are split evenly at every moment (an
    uneven split that changes while the world does confounds the two), and a first look after some
    50 units of each arm; rare outcomes need more. Zero variance is not evidence: an arm whose
    numbers were all equal so far adds nothing to the width, though it is not certain
    (`all_alike_interval`).

    Args:
        candidate: Its units so far, n >= 1.
        control: Its units so far, n >= 1.
        level: Probability that no look ever misses, in (0, 1); with ``one_sided`` that of each end
            by itself, in (0.5, 1).
        n_star: Units of *both* arms at which it is tightest; fixed before the first look.
        one_sided: Whether each end is a separate bound, at ``level``.

    Returns:
        Interval of candidate minus control; without ends while an arm has fewer than two units, of
        which no variance is known.

    Raises:
        InputError: An argument outside its range; an arm without units.

    Example:
        >>> arms = Moments(1000, 0.53, 0.0625), Moments(990, 0.5, 0.0625)
        >>> low, high = two_arm_confidence_sequence(*arms, n_star=2000)
        >>> round(low, 4), round(high, 4)
        (-0.004, 0.064)
        >>> low, _ = two_arm_confidence_sequence(*arms, n_star=2000, one_sided=True)
        >>> round(low, 4)
        -0.0011

    Source:
        Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), Time-uniform central limit theory
        and asymptotic confidence sequences, section 3 on average treatment effects in randomised
        experiments, here without covariates; its one-sided boundary, whose logarithm is
        log(1 + sqrt(N rho^2 + 1) / (2 alpha)), from the half-normal mixture. Coverage over many
        looks and the mixture by quadrature: ``tests/stats/test_two_arms.py``.
    """
    check_truth("one_sided", one_sided)
    arms: dict[str, object] = {"candidate": candidate, "control": control}
    for name, arm in arms.items():
        if not isinstance(arm, Moments):
            message = f"{name} is {brief(arm)}; allowed: Moments(n, mean, variance) of its units"
            raise InputError(message)
    sizes = count(candidate.n, "candidate.n"), count(control.n, "control.n")
    alpha, tuned = 1.0 - open_unit(level, "level"), count(n_star, "n_star")
    if one_sided and alpha >= 0.5:
        message = f"level is {brief(level)}; allowed: 0.5 < level < 1 for a bound; take e.g. 0.95"
        raise InputError(message)
    total = sizes[0] + sizes[1]
    rho_squared = tuned_rho_squared(2.0 * alpha if one_sided else alpha, tuned)
    scaled = total * rho_squared + 1.0
    root = math.sqrt(scaled)
    log_term = math.log1p(root / (2.0 * alpha)) if one_sided else math.log(root / alpha)
    error = candidate.variance / sizes[0] + control.variance / sizes[1]
    half = math.sqrt(error) * math.sqrt(2.0 * scaled / (total * rho_squared) * log_term)
    if min(sizes) < 2:
        half = math.inf
    difference = candidate.mean - control.mean
    return Interval(difference - half, difference + half)


def sequential_sample_ratio_test(
    observed: ArrayLike,
    shares: ArrayLike | None = None,
    *,
    level: float = 0.999,
    concentration: float = 200.0,
) -> SampleRatio:
    """Return whether units were split as planned, valid under repeated looks.

    The p-value is one over a martingale: the likelihood of the counts under a Dirichlet mixture
    around the plan, over their likelihood under the plan. The chance that it ever falls to 1 -
    ``level`` when the plan is kept is at most 1 - ``level``, where Pearson's test, looked at
    often, calls a mismatch sooner or later.

    Assumes that each unit is assigned independently with the planned probabilities. Count units,
    never decisions.

    Args:
        observed: Units per arm so far, shape (arms,), at least two arms; all may be 0, and their
            sum up to 1e14.
        shares: Planned shares, positive, in any common scale, shape (arms,); equal by default.
        level: A mismatch is called at p <= 1 - ``level``, in (0, 1).
        concentration: How near to the plan the mixture lies, 1e-300 to 1e12: for two equal
            arms its standard deviation is 1 / (2 sqrt(concentration + 1)), .035 by default.

    Returns:
        Counts, expected counts, the log of the martingale as ``statistic``, p-value and the call.

    Raises:
        InputError: Negative counts or fractions, a sum above 1e14, shares not positive, shapes that
            differ, or a concentration that is none.

    Example:
        >>> sequential_sample_ratio_test([10_000, 10_400]).p_value.__round__(4)
        0.209
        >>> sequential_sample_ratio_test([10_000, 11_000]).mismatch
        True

    Source:
        Lindon and Malek (2022), Anytime-valid inference for multinomial count data, NeurIPS,
        equation 5; Ville's inequality. False alarms over many looks, and the binomial case by
        quadrature: ``tests/stats/test_two_arms.py``.
    """
    counts, plan = split(observed, shares)
    expected = counts.sum() * plan
    strength = positive(concentration, "concentration")
    # Beyond these the logarithms cancel to their last digits, which would be a call.
    if not _LEAST_CONCENTRATION <= strength <= _MOST_CONCENTRATION:
        allowed = f"{_LEAST_CONCENTRATION:g} to {_MOST_CONCENTRATION:g}"
        message = (
            f"concentration is {brief(concentration)}; allowed: {allowed}: a smaller value gives "
            "no valid "
        )
        raise InputError(f"{message}mixture, a larger one detects no mismatch")
    if counts.sum() > _MOST_ARRIVED:
        message = f"observed has a sum of {counts.sum():g}; allowed: up to {_MOST_ARRIVED:g}"
        raise InputError(f"{message}; use sample_ratio_test, once")
    prior = strength * plan
    log_ratio = float(
        gammaln(prior.sum())
        - gammaln(prior.sum() + counts.sum())
        + (gammaln(prior + counts) - gammaln(prior) - counts * np.log(plan)).sum()
    )
    p_value = math.exp(min(0.0, -log_ratio))
    mismatch = p_value <= 1.0 - open_unit(level, "level")
    return SampleRatio(counts, expected, log_ratio, p_value, mismatch)
