"""The exact probability that each of K independent Gaussian scores is the largest.

Thompson sampling draws one score per arm and takes the best, so arm a is chosen with probability

    P_a = ∫ φ_a(t) ∏_{j≠a} Φ_j(t) dt,    φ_a, Φ_j: density and distribution function of N(m, s²).

Two and three arms have closed forms (``gaussian_few``). Otherwise one rule integrates all K at
once. Where the spreads are alike, one panel of many nodes does it, and many such arms are first
replaced by few (``gaussian_many``). It fails when the spreads differ, as the density of a
well-known arm falls between two nodes; then the panels follow every arm's own scale, m plus and
minus {0,1,2,4,8} s, rounded to that arm's octave where they are many, so that a thousand arms do
not cost a thousand panels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from steersman.policies.gaussian_few import best_of_three, best_of_two
from steersman.policies.gaussian_many import grid_size, integrate_alike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_OFFSETS = np.array([[-8.0], [-4.0], [-2.0], [-1.0], [0.0], [1.0], [2.0], [4.0], [8.0]])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(64)
_LONGEST_PANEL = 32.0  # of the smallest spread: as far as 64 nodes reach to 1e-11
_MOST_GRID = 0.5  # of the arms: a larger grid of made-up arms is not worth making
_TAIL_SDS = 8.0  # beyond it a normal tail holds less than 1e-15
_LOG_NEGLIGIBLE = -35.0  # e^-35 = 6e-16: what lies below adds nothing to a float64 sum of 1
_NOTHING = 1e-280  # scores this small are all zero; their ratios no longer fit a float64
_BISECTIONS = 8
_BISECTED = 256  # arms; more would raise the lower end no further
_FEW_ARMS = 8  # up to here every arm keeps its own borders
_SMALLEST_SD = 1e-9  # of the scale of the problem; narrower arms are treated as this wide


def gaussian_choice_probabilities(means: Floats, sds: Floats) -> Floats:
    """Return the probability of each independent N(mean, sd²) score to be the largest.

    Exact to 1e-13 for up to three arms; to 1e-10 where the spreads are alike, and to 1e-7 for
    spreads up to nine orders of magnitude apart.
    Arms with the same mean and spread get the same probability; arms with a spread of zero are
    compared as numbers.

    Args:
        means: (K,) float64, finite.
        sds: (K,) float64 >= 0, finite.

    Returns:
        (K,) float64 that sums to 1.

    >>> gaussian_choice_probabilities(np.array([0.0, 0.0]), np.array([1.0, 3.0])).round(6)
    array([0.5, 0.5])
    >>> gaussian_choice_probabilities(np.array([0.0, 1.0]), np.array([1.0, 1.0])).round(6)
    array([0.23975, 0.76025])

    Source:
        Russo, Van Roy, Kazerouni, Osband, Wen (2018), "A tutorial on Thompson sampling", section 3:
        the probability of an action is the posterior probability that it is the best one.
    """
    count = len(means)
    if count <= 3:
        return _few(means.tolist(), sds.tolist())
    scale = float(np.abs(means).max() + sds.max())
    if scale < _NOTHING:
        return np.full(count, 1.0 / count)
    widths = np.maximum(sds, _SMALLEST_SD * scale)
    reach = _TAIL_SDS * widths
    tops = means + reach
    lowest = _raise_lowest(means, widths, float((means - reach).max()), float(tops.max()))
    possible = (tops > lowest).nonzero()[0]
    probabilities = np.zeros(count)
    if len(possible) <= 3:
        probabilities[possible] = _few(means[possible].tolist(), widths[possible].tolist())
        return probabilities
    mass = _integrate(means[possible], widths[possible], lowest, float(tops.max()))
    probabilities[possible] = mass / mass.sum()
    return probabilities


def _few(means: list[float], sds: list[float]) -> Floats:
    """Return the probabilities of one to three arms."""
    count = len(means)
    scale = max(map(abs, means)) + max(sds)
    if count == 1 or scale < _NOTHING:
        return np.full(count, 1.0 / count)
    widths = [max(sd, _SMALLEST_SD * scale) for sd in sds]
    return best_of_two(means, widths) if count == 2 else best_of_three(means, widths)


def _raise_lowest(means: Floats, sds: Floats, lowest: float, highest: float) -> float:
    """Return a larger t below which the best score still lies with probability under 1e-15.

    With many arms the best score is far above any single arm's lower tail, and every arm that
    cannot reach it is left out of the integral. The arms with the highest upper ends decide.
    """
    if len(means) > _BISECTED:
        chosen = np.argpartition(means + 2.0 * sds, -_BISECTED)[-_BISECTED:]
        means, sds = means[chosen], sds[chosen]
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lowest + highest)
        below = np.log(np.maximum(ndtr((middle - means) / sds), 1e-300)).sum()
        lowest, highest = (middle, highest) if below < _LOG_NEGLIGIBLE else (lowest, middle)
    return lowest


def _integrate(means: Floats, sds: Floats, lowest: float, highest: float) -> Floats:
    """Return the K integrals over [lowest, highest], outside which nothing is left of them."""
    count = len(means)
    half = 0.5 * (highest - lowest)
    if 2.0 * half > _LONGEST_PANEL * sds.min():
        rule = _nodes(_borders(means, sds, lowest, highest))
        return _integrate_with(*rule, means, sds, np.ones(count))
    nodes, weights = lowest + half + half * _PANEL_NODES, half * _PANEL_WEIGHTS
    size = grid_size(means, sds)
    if size[0] * size[1] > _MOST_GRID * count:
        return _integrate_with(nodes, weights, means, sds, np.ones(count))
    return integrate_alike(means, sds, size, partial(_integrate_with, nodes, weights))


def _integrate_with(
    nodes: Floats, weights: Floats, means: Floats, sds: Floats, counts: Floats
) -> Floats:
    """Return the integrals by nodes and weights, where arm a stands for ``counts[a]`` like it."""
    standard = nodes[:, None] - means
    standard /= sds
    below = np.maximum(ndtr(standard), 1e-300)
    # φ_a ∏_{j≠a} Φ_j: the product over all arms, times the arm's density over its own Φ_a
    of_all = weights * np.exp(np.log(below) @ counts)
    standard *= standard
    standard *= -0.5
    np.exp(standard, out=standard)
    standard /= below
    mass: Floats = (of_all @ standard) / sds
    return mass


def _borders(means: Floats, sds: Floats, lowest: float, highest: float) -> Floats:
    """Return the sorted panel borders: every arm's own offsets, alike arms' offsets merged."""
    points = means + _OFFSETS * sds
    if len(means) > _FEW_ARMS:
        grid = np.exp2(np.floor(np.log2(sds)))
        points = np.unique(np.rint(points / grid) * grid)
    else:
        points = np.sort(points, axis=None)
    inner = points[(points > lowest) & (points < highest)]
    return np.concatenate(([lowest], inner, [highest]))


def _nodes(borders: Floats) -> tuple[Floats, Floats]:
    """Return the Gauss-Legendre nodes and weights of all panels, flat."""
    half = 0.5 * (borders[1:] - borders[:-1])
    centres = borders[:-1] + half
    return (centres[:, None] + half[:, None] * _NODES).ravel(), np.outer(half, _WEIGHTS).ravel()
