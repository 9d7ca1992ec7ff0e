"""Choice of an action: share ties, mix in the floor, draw.

The policy first computes the distribution, then draws the action from this vector with one uniform.
So the logged propensity is the exact probability of the draw.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_FEW = 20


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Drawn action with its exact propensity.

    Args:
        action: name of the drawn action.
        propensity: its probability, ``distribution[action]``, in (0, 1].
        distribution: (K,) float64, sums to 1, 0 where not eligible, in ``policy.actions`` order.
        scores: (K,) float64 scores of the policy (larger is better), NaN where not eligible.
        eligible: (K,) bool; read-only if all are eligible.
        u: uniform in [0, 1) that drew the action; it allows an exact replay.
    """

    action: str
    propensity: float
    distribution: Floats
    scores: Floats
    eligible: Mask
    u: float


@lru_cache(maxsize=256)
def all_of(count: int) -> Mask:
    """Return a shared read-only mask (count,) of True.

    Args:
        count: K >= 0.

    >>> all_of(2)
    array([ True,  True])
    """
    mask = np.ones(count, dtype=np.bool_)
    mask.flags.writeable = False
    return mask


def share_ties(scores: Floats, eligible: Mask | None, *, tolerance: float = 1e-12) -> Floats:
    """Return the greedy distribution: all probability on the best eligible score, shared by ties.

    Args:
        scores: (K,) float64, finite where eligible.
        eligible: (K,) bool with at least one True; ``None``: all of them.
        tolerance: scores within ``tolerance * max(1, |best|)`` of the best count as tied.

    Returns:
        (K,) float64 that sums to 1.
    """
    allowed = scores if eligible is None else np.where(eligible, scores, -np.inf)
    first = int(allowed.argmax())
    best = float(allowed[first])
    tied = allowed >= best - tolerance * max(1.0, abs(best))
    count = np.count_nonzero(tied)
    if count > 1:
        shared: Floats = tied / count
        return shared
    alone: Floats = np.zeros(len(scores))
    alone[first] = 1.0
    return alone


def mix_floor(distribution: Floats, eligible: Mask | None, floor: float) -> Floats:
    """Return ``(1 - floor) * distribution + floor / |eligible|``, zero where not eligible.

    Args:
        distribution: (K,) float64 that sums to 1 and is zero where not eligible.
        eligible: (K,) bool; ``None``: all of them.
        floor: total mass in [0, 1) that is spread evenly.
    """
    if floor == 0.0:
        return distribution
    if eligible is None:
        return (1.0 - floor) * distribution + floor / len(distribution)
    mixed: Floats = (1.0 - floor) * distribution
    mixed[eligible] += floor / np.count_nonzero(eligible)
    return mixed


def mix_reserved(distribution: Floats, reserved: Floats) -> Floats:
    """Return the distribution with the ``reserved`` share of each action mixed in.

    Args:
        distribution: (K,) float64 that sums to 1.
        reserved: (K,) float64 >= 0 with a sum below 1.
    """
    mixed: Floats = (1.0 - reserved.sum()) * distribution + reserved
    return mixed


def draw(distribution: Floats, u: float) -> int:
    """Return the index that the uniform ``u`` selects by inversion of the cumulative sum.

    An entry of zero mass is never selected: the search is for the first cumulative value that is
    strictly above ``u`` times the total.

    Args:
        distribution: (K,) float64 >= 0 with a positive sum.
        u: in [0, 1).

    >>> [draw(np.array([0.25, 0.0, 0.75]), u) for u in (0.0, 0.2499, 0.25, 0.999)]
    [0, 0, 2, 2]
    """
    if len(distribution) <= _FEW:  # the same sums, without what each call of numpy costs
        masses: list[float] = distribution.tolist()
        if 1.0 in masses:
            return masses.index(1.0)
        sums = list(accumulate(masses))
        index = bisect_right(sums, u * sums[-1])
        return index if index < len(sums) else int(np.flatnonzero(distribution)[-1])
    likeliest = int(distribution.argmax())
    if distribution[likeliest] == 1.0:
        return likeliest  # what the search below finds, in a third of the time
    cumulative = distribution.cumsum()
    last = cumulative[-1]
    index = int(cumulative.searchsorted(u * last, side="right"))
    if index < len(cumulative):
        return index
    return int(np.flatnonzero(distribution)[-1])
