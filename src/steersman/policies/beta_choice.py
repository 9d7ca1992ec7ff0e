"""The exact probability that each of K independent Beta success rates is the largest.

    P_a = ∫ f_a(t) ∏_{j≠a} F_j(t) dt,   t in (0, 1)

is integrated over s = logit(t), where the density t^a (1-t)^b / B(a, b) is smooth and bounded for
every a, b > 0, also where f itself has a pole. Arms with the same counts are integrated once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincinv, betaln, expit, log_expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEVELS = np.array([1e-14, 1e-6, 1e-2, 0.2, 0.5])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_SMALLEST = 1e-300
_END = 690.0  # |logit| of the smallest normal float64; a pole's tail beyond it is cut
_WIDEST = 4.0  # logits per panel


def beta_choice_probabilities(a: Floats, b: Floats) -> Floats:
    """Return the probability that each independent Beta(a, b) variable is the largest.

    Args:
        a: (K,) float64 > 0, pseudo-successes.
        b: (K,) float64 > 0, pseudo-failures.

    Returns:
        (K,) float64 that sums to 1; agrees with adaptive quadrature to 1e-8.

    >>> beta_choice_probabilities(np.array([1.0, 2.0]), np.array([1.0, 1.0])).round(6)
    array([0.333333, 0.666667])

    Source:
        Russo et al. (2018), "A tutorial on Thompson sampling", section 3.
    """
    pairs, place, copies = np.unique(
        np.column_stack((a, b)), axis=0, return_inverse=True, return_counts=True
    )
    if len(pairs) == 1:
        return np.full(len(a), 1.0 / len(a))
    mass = _integrate(pairs[:, 0], pairs[:, 1], copies)
    probabilities: Floats = (mass / (mass @ copies))[place.ravel()]
    return probabilities


def _integrate(a: Floats, b: Floats, copies: NDArray[np.int_]) -> Floats:
    """Return the probability of being the best for one copy of each of the different arms."""
    borders = _borders(a, b)
    half = 0.5 * (borders[1:] - borders[:-1])
    nodes = ((borders[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()[:, None]
    weights = np.outer(half, _WEIGHTS).ravel()
    log_below = _log_cdf(a, b, nodes)
    log_density = a * log_expit(nodes) + b * log_expit(-nodes) - betaln(a, b)
    others = (log_below @ copies)[:, None] - log_below
    mass: Floats = weights @ np.exp(log_density + others)
    return mass


def _log_cdf(a: Floats, b: Floats, nodes: Floats) -> Floats:
    """Return log F at the logits ``nodes`` (N, 1), from the smaller tail on either side."""
    left = nodes[:, 0] <= 0.0
    logs = np.empty((len(nodes), len(a)))
    logs[left] = np.log(np.maximum(betainc(a, b, expit(nodes[left])), _SMALLEST))
    above = np.minimum(betainc(b, a, expit(-nodes[~left])), 1.0)
    logs[~left] = np.log(np.maximum(1.0 - above, _SMALLEST))
    return logs


def _borders(a: Floats, b: Floats) -> Floats:
    """Return sorted panel borders in logits: every arm's quantiles, from where one F is 1e-14."""
    lower = _logits(betaincinv(a[:, None], b[:, None], _LEVELS))
    upper = -_logits(betaincinv(b[:, None], a[:, None], _LEVELS))
    lowest, highest = lower[:, 0].max(), upper[:, 0].max()
    points = np.unique(np.concatenate((lower, upper), axis=None))
    inner = points[(points > lowest) & (points < highest)]
    ends = np.concatenate(([lowest], inner, [highest]))
    return _split_wide(ends)


def _logits(quantiles: Floats) -> Floats:
    """Return log(q / (1 - q)), cut at what a float64 can hold."""
    with np.errstate(divide="ignore"):
        logits: Floats = np.clip(np.log(quantiles) - np.log1p(-quantiles), -_END, _END)
    return logits


def _split_wide(borders: Floats) -> Floats:
    """Return the borders with further ones between those more than ``_WIDEST`` apart."""
    pieces = [
        np.linspace(left, right, int(np.ceil((right - left) / _WIDEST)) + 1)[:-1]
        for left, right in pairwise(borders)
        if right > left
    ]
    return np.concatenate([*pieces, borders[-1:]])
