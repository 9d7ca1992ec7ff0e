"""The exact probability that each of K independent Gaussian scores is the largest.

Thompson sampling draws one score per arm and takes the best, so arm a is chosen with probability

    P_a = ∫ φ_a(t) ∏_{j≠a} Φ_j(t) dt,    φ_a, Φ_j: density and distribution function of N(m, s²).

One rule integrates all K at once. A fixed grid fails when the spreads differ, as the density of
a well-known arm falls between two nodes; so the panels follow every arm's own scale, m plus and
minus {0,1,2,4,8} s, rounded to that arm's octave where they are many, so that a thousand alike arms
do not cost a thousand panels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_OFFSETS = np.array([[-8.0], [-4.0], [-2.0], [-1.0], [0.0], [1.0], [2.0], [4.0], [8.0]])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_TAIL_SDS = 8.0  # beyond it a normal tail holds less than 1e-15
_LOG_NEGLIGIBLE = -35.0  # e^-35 = 6e-16: what lies below adds nothing to a float64 sum of 1
_NOTHING = 1e-280  # scores this small are all zero; their ratios no longer fit a float64
_BISECTIONS = 12
_FEW_ARMS = 8  # up to here every arm keeps its own borders
_SMALLEST_SD = 1e-9  # of the scale of the problem; narrower arms are treated as this wide


def gaussian_choice_probabilities(means: Floats, sds: Floats) -> Floats:
    """Return the probability of each independent N(mean, sd²) score to be the largest.

    Agrees with adaptive quadrature to 1e-7, for spreads up to nine orders of magnitude apart.
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
    scale = float(np.abs(means).max() + sds.max())
    count = len(means)
    if count == 1 or scale < _NOTHING:
        return np.full(count, 1.0 / count)
    widths = np.maximum(sds, _SMALLEST_SD * scale)
    if count == 2:
        first = float(ndtr((means[0] - means[1]) / np.hypot(widths[0], widths[1])))
        return np.array([first, 1.0 - first])
    lowest = float((means - _TAIL_SDS * widths).max())
    if count > _FEW_ARMS:
        lowest = _raise_lowest(means, widths, lowest)
    tops = means + _TAIL_SDS * widths
    possible = (tops > lowest).nonzero()[0]
    probabilities = np.zeros(count)
    if len(possible) == 1:
        probabilities[possible] = 1.0
        return probabilities
    mass = _integrate(means[possible], widths[possible], lowest, float(tops.max()))
    probabilities[possible] = mass / mass.sum()
    return probabilities


def _raise_lowest(means: Floats, sds: Floats, lowest: float) -> float:
    """Return a larger t below which the best score still lies with probability under 1e-15.

    With many arms the best score is far above any single arm's lower tail, and every arm that
    cannot reach it is left out of the integral.
    """
    highest = float((means + _TAIL_SDS * sds).max())
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lowest + highest)
        below = np.log(np.maximum(ndtr((middle - means) / sds), 1e-300)).sum()
        lowest, highest = (middle, highest) if below < _LOG_NEGLIGIBLE else (lowest, middle)
    return lowest


def _integrate(means: Floats, sds: Floats, lowest: float, highest: float) -> Floats:
    """Return the K integrals over [lowest, highest], outside which nothing is left of them."""
    nodes, weights = _nodes(_borders(means, sds, lowest, highest))
    standard = nodes[:, None] - means
    standard /= sds
    log_below = np.log(np.maximum(ndtr(standard), 1e-300))
    # log of φ_a ∏_{j≠a} Φ_j: the sum over all arms less the arm's own, and its density
    standard *= standard
    standard *= -0.5
    standard -= log_below
    standard += log_below.sum(1)[:, None]
    mass: Floats = (weights @ np.exp(standard)) / sds
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
