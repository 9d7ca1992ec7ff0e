"""Exact choice probabilities of Beta Thompson sampling.

    P_a = ∫ f_a(t) ∏_{j≠a} F_j(t) dt,   t in (0, 1)

is integrated over s = logit(t), where the density t^a (1-t)^b / B(a, b) is smooth and bounded for
every a, b > 0, also where f itself has a pole. Of counts near 0 much lies nearer to 0 and 1 than a
float64 can: out there F and 1 - F are powers, e^(as) / (a B(a, b)) and e^(-bs) / (b B(a, b)). Arms
with the same counts are integrated once. Panels lie between the quantiles of all arms; those of
many arms are joined as long as none takes more than half of a gap between any arm's own quantiles,
so that their number does not grow with that of arms alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincinv, betaln, expit, gammaln, log_expit

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.policies import inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEVELS = np.array([1e-14, 1e-6, 1e-2, 0.2, 0.5])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_SMALLEST = 1e-300
_MOST = 1e17  # beyond, quantiles fail
_MANY = 1e6  # counts, beyond which rounding of their logarithms would show in the probabilities
_SERIES_FROM = 20.0
_END = 690.0  # |logit| up to which t and 1 - t are normal numbers
_WIDEST = 4.0  # logits per panel; beyond _END over the largest count that still reaches there
_JOINED_FROM = 64  # borders; fewer are not worth the search
_OF_A_GAP = 0.5  # how much of an arm's own gap a joined panel may take: 1 costs three digits


def beta_choice_probabilities(a: Floats, b: Floats) -> Floats:
    """Return the probability that each independent Beta(a, b) variable is the largest.

    Args:
        a: (K,) float64 > 0, pseudo-successes.
        b: (K,) float64 > 0, pseudo-failures.

    Returns:
        (K,) float64 that sums to 1; agrees with adaptive quadrature to 1e-8 where a + b is up to
        1e10, and to 1e-4 up to 1e13, where SciPy's incomplete beta function is as inexact.

    Raises:
        InputError: no counts, counts outside (0, 1e17], or different lengths.

    >>> beta_choice_probabilities(np.array([1.0, 2.0]), np.array([1.0, 1.0])).round(6)
    array([0.333333, 0.666667])

    Source:
        Russo et al. (2018), "A tutorial on Thompson sampling", section 3.
    """
    a, b = inputs.numbers("a", a), inputs.numbers("b", b)
    paired = len(a) == len(b) > 0
    if not (paired and a.min() > 0.0 < b.min() and a.max() <= _MOST >= b.max()):
        raise InputError(
            f"a and b must be counts above 0 and up to {_MOST:g}, one of each per action; got "
            f"{brief(a)} and {brief(b)}"
        )
    pairs, place, copies = np.unique(
        np.column_stack((a, b)), axis=0, return_inverse=True, return_counts=True
    )
    if len(pairs) == 1:
        return np.full(len(a), 1.0 / len(a))
    mass = _integrate(pairs[:, 0], pairs[:, 1], copies)
    probabilities: Floats = (mass / (mass @ copies))[place.ravel()]
    return probabilities


def _integrate(a: Floats, b: Floats, copies: NDArray[np.int_]) -> Floats:
    borders = _borders(a, b)
    half = 0.5 * (borders[1:] - borders[:-1])
    nodes = ((borders[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()[:, None]
    weights = np.outer(half, _WEIGHTS).ravel()
    log_below = _log_cdf(a, b, nodes)
    log_density = _log_density(a, b, nodes)
    others = (log_below @ copies)[:, None] - log_below
    mass: Floats = weights @ np.exp(log_density + others)
    return mass


def _log_density(a: Floats, b: Floats, nodes: Floats) -> Floats:
    """Return log t^a (1-t)^b / B(a, b) (N, K) at the logits ``nodes`` (N, 1)."""
    logs: Floats = a * log_expit(nodes) + b * log_expit(-nodes) - betaln(a, b)
    many = a + b >= _MANY
    if many.any():
        logs[:, many] = _log_density_of_many(a[many], b[many], nodes)
    return logs


def _log_density_of_many(a: Floats, b: Floats, nodes: Floats) -> Floats:
    """Return the same of large counts, of which the terms of `_log_density` cancel.

    With p = a / (a + b) and d = s - logit(p) it is what it is at p, less the deviance
    (a + b) (log(1 + p (e^d - 1)) - p d). At p, Stirling's formula leaves its remainders alone.

    Source: Loader (2000), "Fast and accurate computation of binomial probabilities", section 3.
    """
    total = a + b
    share = a / total
    away = np.minimum(nodes - (np.log(a) - np.log(b)), _END)  # beyond, e^d overflows
    deviance = total * (np.log1p(share * np.expm1(away)) - share * away)
    height = 0.5 * (np.log(a) + np.log(b) - np.log(2.0 * np.pi * total))
    logs: Floats = height + _remainder(total) - _remainder(a) - _remainder(b) - deviance
    return logs


def _remainder(counts: Floats) -> Floats:
    """Return by how much log Γ is above Stirling's formula, right to 1e-13."""
    few, many = np.minimum(counts, _SERIES_FROM), np.maximum(counts, _SERIES_FROM)
    stirling = (few - 0.5) * np.log(few) - few + 0.5 * np.log(2.0 * np.pi)
    inverse = 1.0 / many**2
    series = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse / 1680))) / many
    remainder: Floats = np.where(counts < _SERIES_FROM, gammaln(few) - stirling, series)
    return remainder


def _log_cdf(a: Floats, b: Floats, nodes: Floats) -> Floats:
    """Return log F at the logits ``nodes`` (N, 1), from the smaller tail on either side."""
    left = nodes[:, 0] <= 0.0
    logs = np.empty((len(nodes), len(a)))
    logs[left] = np.log(np.maximum(_lower_tail(a, b, nodes[left]), _SMALLEST))
    above = np.minimum(_lower_tail(b, a, -nodes[~left]), 1.0)
    logs[~left] = np.log(np.maximum(1.0 - above, _SMALLEST))
    return logs


def _lower_tail(a: Floats, b: Floats, nodes: Floats) -> Floats:
    """Return F (N, K) at logits (N, 1) of at most 0."""
    tail: Floats = betainc(a, b, expit(nodes))
    far = nodes[:, 0] < -_END
    if far.any():
        tail[far] = np.exp(a * nodes[far] - _log_pole(a, b))
    return tail


def _log_pole(a: Floats, b: Floats) -> Floats:
    """Return log(a B(a, b)): far below 0, log F is ``a s`` less this."""
    logs: Floats = np.log(a) + betaln(a, b)
    return logs


def _borders(a: Floats, b: Floats) -> Floats:
    """Return sorted panel borders in logits: every arm's quantiles, from where one F is 1e-14."""
    lower, upper = _quantiles(a, b), -_quantiles(b, a)
    lowest, highest = lower[:, 0].max(), upper[:, 0].max()
    points = np.unique(np.concatenate((lower, upper, np.array([-_END, _END])), axis=None))
    inner = points[(points > lowest) & (points < highest)]
    ends = np.concatenate(([lowest], inner, [highest]))
    if len(ends) > _JOINED_FROM:
        ends = _joined(ends, np.sort(np.concatenate((lower, upper), axis=1), axis=1))
    # Only small counts reach so far out, and there all changes as slowly as they do.
    widest = np.where(ends[:-1] < -_END, _far_panel(a), _WIDEST)
    widest[ends[:-1] >= _END] = _far_panel(b)
    return _split_wide(ends, widest)


def _joined(borders: Floats, own: Floats) -> Floats:
    """Return the borders without those that no arm needs.

    Args:
        borders: (N,), sorted.
        own: (K, levels), sorted: each arm's quantiles.
    """
    room = (_OF_A_GAP * _narrowest_gaps(borders, own)).tolist()
    places = borders.tolist()
    kept, begin, least = [0], places[0], np.inf
    for place, (end, wide) in enumerate(zip(places[1:], room, strict=True)):
        least = min(least, wide)
        if end - begin > least and place > kept[-1]:
            kept.append(place)
            begin, least = places[place], wide
    joined: Floats = borders[[*kept, len(places) - 1]]
    return joined


def _narrowest_gaps(borders: Floats, own: Floats) -> Floats:
    """Return the least width of all arms' own gaps that each panel (N - 1,) lies in."""
    begins, ends = own[:, :-1].ravel(), own[:, 1:].ravel()
    reaching = (ends > begins) & (ends > borders[0]) & (begins < borders[-1])
    begins, ends = begins[reaching], ends[reaching]
    widest_first = np.argsort(begins - ends)
    first = np.searchsorted(borders, begins[widest_first])
    last = np.searchsorted(borders, ends[widest_first])
    gaps = (ends - begins)[widest_first]
    narrowest = np.full(len(borders) - 1, np.inf)
    for i, j, gap in zip(first.tolist(), last.tolist(), gaps.tolist(), strict=True):
        narrowest[i:j] = gap  # a narrower one overwrites it later
    return narrowest


def _quantiles(a: Floats, b: Floats) -> Floats:
    """Return the logits (K, levels) below which ``_LEVELS`` lie."""
    a, b = a[:, None], b[:, None]
    quantiles = betaincinv(a, b, _LEVELS)
    far = (np.log(_LEVELS) + _log_pole(a, b)) / a
    with np.errstate(divide="ignore"):
        near = np.log(quantiles) - np.log1p(-quantiles)
    logits: Floats = np.where(far < -_END, far, np.clip(near, -_END, _END))
    return logits


def _far_panel(counts: Floats) -> float:
    """Return how wide a panel may be where only these counts that lie below .05 still matter."""
    reaching = counts[counts < -np.log(_LEVELS[0]) / _END]
    return _WIDEST / float(reaching.max()) if reaching.size else _WIDEST


def _split_wide(borders: Floats, widest: Floats) -> Floats:
    """Return the borders with further ones, evenly, between those more than ``widest`` apart."""
    gaps = np.diff(borders)
    pieces = np.where(gaps > 0.0, np.ceil(gaps / widest), 0.0).astype(np.int64)
    total = int(pieces.sum())
    place = np.arange(total) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    steps = gaps / np.maximum(pieces, 1)
    split = place * np.repeat(steps, pieces) + np.repeat(borders[:-1], pieces)
    return np.concatenate((split, borders[-1:]))
