"""Exact choice probabilities of Gaussian Thompson sampling.

Thompson sampling draws one score per arm and takes the best, so arm a is chosen with probability

    P_a = ∫ φ_a(t) ∏_{j≠a} Φ_j(t) dt,    φ_a, Φ_j: density and distribution function of N(m, s²).

Two and three arms have closed forms (``gaussian_few``). Otherwise one rule integrates all K at
once. Where the spreads are alike, equal steps do it, whose error falls exponentially with their
number, as all there is vanishes at both ends; and many such arms are first replaced by few
(``gaussian_many``). It takes too many steps when the spreads differ much, as the density of a
well-known arm falls between two nodes; then panels follow every arm's own scale, m plus and minus
{0,1,2,4,8} s. Where arms are many, these are rounded to the arm's octave, so that a thousand arms
do not cost a thousand panels, and lie closer above m, where the best of many alike is found.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from math import ceil, copysign, cos, erfc, inf, log2, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.special.cython_special import owens_t

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.gaussian_compiled import choose_compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from collections.abc import Callable, Sequence

    Integral = Callable[[Floats, Floats, Floats], Floats]

_SMALLEST_SPAN = 1e-6  # of the spread; a grid over less would only show rounding


def grid_size(means: Floats, sds: Floats) -> tuple[int, int]:
    """Return how many grid means and grid spreads give every probability to 1e-10.

    Found by comparing with the direct integral for up to 3,000 arms, spreads up to four times each
    other, and means up to ten of the smallest spread apart.
    """
    smallest = float(sds.min())
    apart = float(means.max() - means.min()) / smallest
    return 10 + int(2.6 * apart), 9 + ceil(6.0 * log2(float(sds.max()) / smallest))


def integrate_alike(
    means: Floats, sds: Floats, size: tuple[int, int], integral: Integral
) -> Floats:
    """Return the K integrals, from those of a grid of made-up arms.

    Args:
        means: (K,).
        sds: (K,), > 0.
        size: numbers of means and of spreads in the grid, p and q.
        integral: given (p·q,) means, sds and counts, returns the (p·q,) integrals among that many
            arms of each kind; counts need be neither whole nor positive.
    """
    p, q = size
    smallest = float(sds.min())
    grid_means, of_means = _polynomials(means, p, _SMALLEST_SPAN * smallest)
    grid_logs, of_logs = _polynomials(np.log(sds), q, _SMALLEST_SPAN)
    to_means, to_logs = _values_to_coefficients(p), _values_to_coefficients(q)
    counts = to_means.T @ (of_means @ of_logs.T) @ to_logs
    grid = np.repeat(grid_means, q), np.tile(np.exp(grid_logs), p)
    mass = integral(*grid, counts.ravel()).reshape(p, q)
    coefficients = to_means @ mass @ to_logs.T
    # Polynomials may end a rounding error below zero.
    result: Floats = np.maximum(((coefficients.T @ of_means) * of_logs).sum(0), 0.0)
    return result


def _polynomials(values: Floats, n: int, smallest: float) -> tuple[Floats, Floats]:
    """Return n Chebyshev nodes (n,) around ``values``, and T_0 .. T_n-1 at the values, (n, K)."""
    low, high = float(values.min()), float(values.max())
    half = max(0.5 * (high - low), smallest)
    x = (values - 0.5 * (low + high)) / half
    table: Floats = np.empty((n, len(values)))
    table[0] = 1.0
    table[1] = x
    x += x
    for k in range(2, n):
        np.multiply(x, table[k - 1], out=table[k])
        table[k] -= table[k - 2]
    nodes = np.array([cos(pi * (j + 0.5) / n) for j in range(n)])
    return 0.5 * (low + high) + half * nodes, table


@lru_cache(maxsize=64)
def _values_to_coefficients(n: int) -> Floats:
    """Return the (n, n) matrix that turns values at the nodes into Chebyshev coefficients."""
    k = np.arange(n)
    matrix: Floats = np.cos(np.outer(k, pi * (k + 0.5) / n)) * (2.0 / n)
    matrix[0] *= 0.5
    return matrix


_SQRT_HALF = sqrt(0.5)


def best_of_two(means: Sequence[float], sds: Sequence[float]) -> list[float]:
    """Return P (2,) of N(means[i], sds[i]²) to be the larger; at least one sd is above 0."""
    unit = max(sds)
    gap = (means[0] - means[1]) / unit / sqrt((sds[0] / unit) ** 2 + (sds[1] / unit) ** 2)
    first = _normal_cdf(gap)
    return [first, 1.0 - first]


def best_of_three(means: Sequence[float], sds: Sequence[float]) -> list[float]:
    """Return P (3,) of N(means[i], sds[i]²) to be the largest; all sds are above 0.

    With a, b, c in falling order of their means, h_ab = (m_a - m_b) / √(s_a² + s_b²), and

        T_ab = T(h_ab, ((m_a - m_c) s_b² + (m_b - m_c) s_a²) / (q (m_a - m_b))),
        q² = s_a² s_b² + s_a² s_c² + s_b² s_c²,

    P_a = (Φ(h_ab) + Φ(h_ac)) / 2 - T_ab - T_ac. T_ba = -T_ab, so three values serve all arms; the
    middle arm alone has differences of both signs, which takes another 1/2 from it. Nothing
    cancels where one spread is far smaller than another.

    Source:
        Owen (1956), "Tables for computing bivariate normal probabilities", equation 2.1, with the
        correlation s_a² / √((s_a² + s_b²)(s_a² + s_c²)) put in.
    """
    first, second, third = means
    a, b, c = (0, 1, 2) if first >= second else (1, 0, 2)
    if third > means[b]:
        a, b, c = (c, a, b) if third > means[a] else (a, c, b)
    sa, sb, sc = sds[a], sds[b], sds[c]
    unit = max(sa, sb, sc)
    sa, sb, sc = sa / unit, sb / unit, sc / unit
    va, vb, vc = sa * sa, sb * sb, sc * sc
    ab, bc = (means[a] - means[b]) / unit, (means[b] - means[c]) / unit
    ac = (means[a] - means[c]) / unit
    h_ab, h_ac, h_bc = ab / sqrt(va + vb), ac / sqrt(va + vc), bc / sqrt(vb + vc)
    if ac == 0.0:
        ac = bc = 1.0  # all equal: any direction from which they become so gives the same limit
    q = sqrt(va * vb + va * vc + vb * vc)
    t_ab = owens_t(h_ab, _ratio(ac * vb + bc * va, q * ab))
    t_ac = owens_t(h_ac, _ratio(ab * vc - bc * va, q * ac))
    t_bc = owens_t(h_bc, _ratio(-ab * vc - ac * vb, q * bc))
    p_ab, p_ac, p_bc = _normal_cdf(h_ab), _normal_cdf(h_ac), _normal_cdf(h_bc)
    best = 0.5 * (p_ab + p_ac) - t_ab - t_ac
    middle = 0.5 * (p_bc - p_ab) + t_ab - t_bc  # Φ(-h) = 1 - Φ(h)
    last = 0.5 * (2.0 - p_ac - p_bc) + t_ac + t_bc
    best, middle, last = best * (best > 0.0), middle * (middle > 0.0), last * (last > 0.0)
    total = best + middle + last
    found = [0.0, 0.0, 0.0]
    found[a], found[b], found[c] = best / total, middle / total, last / total
    return found


def _normal_cdf(z: float) -> float:
    return 0.5 * erfc(-z * _SQRT_HALF)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else copysign(inf, top)


_OFFSETS = np.array([-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0])[:, None]
_CLOSER = np.array([-8.0, -4, -2, -1, 0, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 8])[:, None]
_RULE, _FINER_RULE = (np.polynomial.legendre.leggauss(count) for count in (6, 8))
_MOST_NODES = 200  # in equal steps; panels take no more, whatever the spreads
_WORTH_HALVING = 4000  # arms by steps: with fewer it costs more to look than to take all
_SEEN_ENOUGH = 2e-6  # of the largest; half the steps square what is left, to under 1e-9 of it
_MOST_GRID = 0.5  # of the arms: a larger grid of made-up arms is not worth making
_TAIL_SDS = 8.0  # beyond it a normal tail holds less than 1e-15
_LOG_NEGLIGIBLE = -35.0  # e^-35 = 6e-16: what lies below adds nothing to a float64 sum of 1
_NOTHING = 1e-280  # scores this small are all zero; their ratios no longer fit a float64
_HIGHEST = 256  # arms; more would raise the lower end no further
_FIRST = np.arange(1.0, _HIGHEST + 1.0)
_LOWEST_SUMS = _FIRST * ndtri(np.exp(_LOG_NEGLIGIBLE / _FIRST))
_FEW_ARMS = 8  # up to here every arm keeps its own borders
_SMALLEST_SD = 1e-9  # of the scale of the problem; narrower arms are treated as this wide


def gaussian_choice_probabilities(means: Floats, sds: Floats) -> Floats:
    """Return the probability of each independent N(mean, sd²) score to be the largest.

    The error is at most 1e-13 for up to three arms. For more it is 1e-10 if the largest sd is at
    most four times the smallest (1e-8 from a thousand arms), and 1e-7 for sds up to nine orders of
    magnitude apart. Arms with equal mean and sd get equal probabilities. For more than three arms,
    an sd below 1e-9 of the largest mean and sd is raised to that value.

    Args:
        means: (K,) float64, finite.
        sds: (K,) float64 >= 0, finite.

    Returns:
        (K,) float64 that sums to 1.

    Raises:
        InputError: no numbers, non-finite numbers, a negative sd, or different lengths.

    >>> gaussian_choice_probabilities(np.array([0.0, 0.0]), np.array([1.0, 3.0])).round(6)
    array([0.5, 0.5])
    >>> gaussian_choice_probabilities(np.array([0.0, 1.0]), np.array([1.0, 1.0])).round(6)
    array([0.23975, 0.76025])

    Source:
        Russo, Van Roy, Kazerouni, Osband, Wen (2018), "A tutorial on Thompson sampling", section 3:
        the probability of an action is the posterior probability that it is the best one.
        Trefethen, Weideman (2014), "The exponentially convergent trapezoidal rule".
    """
    means, sds = inputs.numbers("means", means), inputs.numbers("sds", sds)
    fit = len(means) == len(sds) > 0 and sds.min() >= 0.0
    if not (fit and np.isfinite(means).all() and np.isfinite(sds).all()):
        raise InputError(
            "means and sds must be finite, sds at least 0, one of each per action; got "
            f"{brief(means)} and {brief(sds)}"
        )
    return choose_normal(means, sds)


def choose_normal(means: Floats, sds: Floats) -> Floats:
    """Return `gaussian_choice_probabilities` of validated arrays."""
    count = len(means)
    if count <= 3:
        return np.array(_few(means.tolist(), sds.tolist()))
    if (compiled := choose_compiled(means, sds)) is not None:
        probabilities, done = compiled
        if not done:
            possible = probabilities.nonzero()[0]
            probabilities[possible] = _few(means[possible].tolist(), sds[possible].tolist())
        return probabilities
    return _choose_with_numpy(means, sds)


def _choose_with_numpy(means: Floats, sds: Floats) -> Floats:
    count = len(means)
    reach = _TAIL_SDS * sds
    surely = float((means - reach).max())
    able = means + reach >= surely - _SMALLEST_SD * abs(surely) - _NOTHING
    if not able.all():  # what cannot be best must not say how narrow is too narrow
        probabilities = np.zeros(count)
        probabilities[able] = choose_normal(means[able], sds[able])
        return probabilities
    scale = float(np.abs(means).max() + sds.max())
    if scale < _NOTHING:
        return np.full(count, 1.0 / count)
    widths = np.maximum(sds, _SMALLEST_SD * scale)
    tops = means + _TAIL_SDS * widths
    lowest = _lowest(means, widths)
    possible = (tops > lowest).nonzero()[0]
    probabilities = np.zeros(count)
    if len(possible) <= 3:
        probabilities[possible] = _few(means[possible].tolist(), widths[possible].tolist())
        return probabilities
    mass = _integrate(means[possible], widths[possible], lowest, float(tops.max()))
    probabilities[possible] = mass / mass.sum()
    return probabilities


def _few(means: list[float], sds: list[float]) -> list[float]:
    count = len(means)
    low, high, spreads = min(means), max(means), sorted(sds)
    if high - low > _TAIL_SDS * sum(spreads[:2]):  # else no arm lies wholly below another
        surely = max([mean - _TAIL_SDS * sd for mean, sd in zip(means, sds, strict=True)])
        surely -= _SMALLEST_SD * abs(surely) + _NOTHING
        able = [place for place in range(count) if means[place] + _TAIL_SDS * sds[place] >= surely]
        if len(able) < count:
            shares = _few([means[one] for one in able], [sds[one] for one in able])
            found = [0.0] * count
            for place, share in zip(able, shares, strict=True):
                found[place] = share
            return found
    scale = max(high, -low) + spreads[-1]
    if count == 1 or scale < _NOTHING:
        return [1.0 / count] * count
    if spreads[0] < _SMALLEST_SD * scale:
        sds = [max(sd, _SMALLEST_SD * scale) for sd in sds]
    return best_of_two(means, sds) if count == 2 else best_of_three(means, sds)


def _lowest(means: Floats, sds: Floats) -> float:
    """Return a t below which the best score lies with probability under 1e-15.

    With many arms the best score is far above any single arm's lower tail, and every arm that
    cannot reach it is left out of the integral. That probability is ∏ Φ(z_a), z_a = (t − m_a)/s_a,
    at most that of any k of the arms, and as ln Φ is concave, at most Φ(their mean z)^k. So each k
    gives a t; the arms with the highest upper ends come first, and the best k decides.
    """
    tops = means + 2.0 * sds
    if len(means) > _HIGHEST:
        chosen = np.argpartition(tops, -_HIGHEST)[-_HIGHEST:]
        means, sds, tops = means[chosen], sds[chosen], tops[chosen]
    order = (-tops).argsort()
    scale = 1.0 / sds[order]
    from_zero = (means[order] * scale).cumsum()
    return float(((_LOWEST_SUMS[: len(means)] + from_zero) / scale.cumsum()).max())


def _integrate(means: Floats, sds: Floats, lowest: float, highest: float) -> Floats:
    """Return the K integrals over [lowest, highest], outside which nothing is left of them."""
    count = len(means)
    steps = _steps(count, (highest - lowest) / float(sds.min()))
    if not steps < _MOST_NODES:
        rule = _RULE if count <= _FEW_ARMS else _FINER_RULE
        panels = _nodes(_borders(means, sds, lowest, highest), *rule)
        return _integrate_with(*panels, means, sds)
    integral = partial(_step_through, lowest, highest, steps)
    size = grid_size(means, sds)
    if size[0] * size[1] > _MOST_GRID * count:
        return integral(means, sds)
    return integrate_alike(means, sds, size, integral)


def _steps(count: int, length: float) -> float:
    """Return how many steps over some smallest spreads give every probability to 1e-11.

    The more arms, the steeper the integrand. Found by comparing with steps a tenth as long, for 4
    arms to 10,000 with spreads up to ten times each other.
    """
    return length / 0.6 * (1.0 + 0.37 * math.log(count))


def _step_through(
    lowest: float,
    highest: float,
    steps: float,
    means: Floats,
    sds: Floats,
    counts: Floats | None = None,
) -> Floats:
    """Return the integrals in equal steps: half of them, where a quarter says nearly the same.

    All of them are needed where the narrowest arm decides, and mostly it does not. An error that
    falls exponentially is squared by halving the steps: what a quarter lacks shows what half lacks.
    """
    if len(means) * steps < _WORTH_HALVING:
        step = (highest - lowest) / math.ceil(steps)
        nodes = lowest + step * np.arange(math.ceil(steps) + 1.0)
        return _integrate_with(nodes, step, means, sds, counts)
    half = math.ceil(steps / 2.0)
    step = (highest - lowest) / half
    nodes = lowest + step * np.arange(half + 1.0)
    of_all, of_each = _factors(nodes, means, sds, counts)
    mass: Floats = (of_all @ of_each) * (step / sds)
    quarter = (of_all[::2] @ of_each[::2]) * (2.0 * step / sds)
    if np.abs(quarter - mass).max() <= _SEEN_ENOUGH * mass.max():
        return mass
    between = nodes[:-1] + 0.5 * step
    return 0.5 * (mass + _integrate_with(between, step, means, sds, counts))


def _integrate_with(
    nodes: Floats,
    weights: Floats | float,
    means: Floats,
    sds: Floats,
    counts: Floats | None = None,
) -> Floats:
    """Return the integrals by nodes and weights, where arm a stands for ``counts[a]`` like it."""
    of_all, of_each = _factors(nodes, means, sds, counts)
    mass: Floats = ((weights * of_all) @ of_each) / sds
    return mass


def _factors(
    nodes: Floats, means: Floats, sds: Floats, counts: Floats | None
) -> tuple[Floats, Floats]:
    """Return φ_a ∏_{j≠a} Φ_j as two factors: the product over all arms, and φ_a over its Φ_a."""
    standard = nodes[:, None] - means
    standard /= sds
    below = np.maximum(ndtr(standard), 1e-300)
    of_all: Floats = below.prod(axis=1) if counts is None else np.exp(np.log(below) @ counts)
    standard *= standard
    standard *= -0.5
    np.exp(standard, out=standard)
    standard /= below
    return of_all, standard


def _borders(means: Floats, sds: Floats, lowest: float, highest: float) -> Floats:
    """Return the sorted panel borders: every arm's own offsets, alike arms' offsets merged."""
    if len(means) > _FEW_ARMS:
        points = means + _CLOSER * sds
        grid = np.exp2(np.floor(np.log2(sds)))
        points = np.unique(np.rint(points / grid) * grid)
    else:
        points = np.sort(means + _OFFSETS * sds, axis=None)
    inner = points[(points > lowest) & (points < highest)]
    return np.concatenate(([lowest], inner, [highest]))


def _nodes(borders: Floats, nodes: Floats, weights: Floats) -> tuple[Floats, Floats]:
    half = 0.5 * (borders[1:] - borders[:-1])
    centres = borders[:-1] + half
    return (centres[:, None] + half[:, None] * nodes).ravel(), np.outer(half, weights).ravel()
