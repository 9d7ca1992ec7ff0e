"""Agreement of a judge with people, position bias and length bias."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.stats import Interval, all_alike_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]

_Z = 1.959963984540054
_ALIKE = 1e-18


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts on one pair: 1 or 2 is the better answer, 0 a tie, None no verdict.

    Args:
        human: verdict of people, 0 to 2.
        orig: verdict of the judge with answer 1 shown first.
        swapped: verdict of the judge with answer 2 shown first, still by answer number.
        lengths: lengths of both answers, in characters.
        prompt: prompt of both answers; pairs with the same prompt form a cluster in every
            interval; "": a cluster for this pair alone.

    Raises:
        InputError: an invalid verdict.

    >>> Verdicts(1, 1, 2, (90, 50)).judged is None
    True
    """

    human: int
    orig: int | None
    swapped: int | None
    lengths: tuple[int, int]
    prompt: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for name in ("human", "orig", "swapped"):
            value = getattr(self, name)
            if value not in {0, 1, 2} and (value is not None or name == "human"):
                raise InputError(f"{name} is {value!r}; allowed: 0, 1, 2")

    @property
    def judged(self) -> int | None:
        """Verdict of the judge if both orders agree; None if it abstains."""
        return self.orig if self.orig == self.swapped else None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a judge with people.

    Attributes:
        pairs: number of pairs.
        judged: number of pairs with the same verdict in both orders.
        unread: number of pairs without a readable verdict in one of the orders.
        agree: share of judged pairs with agreement; NaN without judged pairs.
        agree_interval: Wilson interval, 95 %, with the effective number of pairs by prompt.
        kappa: Cohen's kappa over the judged pairs: agreement beyond chance.
        consistent: share of pairs with the same verdict in both orders, of pairs with two verdicts.
        first_shown: share of verdicts (without ties) for the answer shown first, of pairs with a
            verdict in both orders. For people it is one half by construction. Each verdict counts
            once: a mean of the pairs' shares would give a pair with one tie too much weight.
        position_bias: `first_shown` − ½, with its 95 % interval over prompts.
        longer_judge: share of pairs decided by both in which the judge prefers the longer answer.
        longer_human: share of the same pairs in which people prefer the longer answer.
        length_bias: difference of the two, with its paired 95 % interval.
    """

    pairs: int
    judged: int
    unread: int
    agree: float
    agree_interval: Interval
    kappa: float
    consistent: float
    first_shown: float
    position_bias: Interval
    longer_judge: float
    longer_human: float
    length_bias: Interval


def agreement(verdicts: Sequence[Verdicts]) -> Agreement:
    """Return the agreement of a judge with people.

    Raises:
        InputError: the list of pairs is empty.

    >>> sure = [Verdicts(1, 1, 1, (9, 5)), Verdicts(2, 2, 2, (9, 5)), Verdicts(2, 1, 2, (9, 5))]
    >>> found = agreement(sure)
    >>> found.judged, found.agree, round(found.first_shown, 3)
    (2, 1.0, 0.667)

    Source: Zheng et al., Judging LLM-as-a-Judge (2023), section 3.3 (position and length bias);
    Wilson (1927) for the interval of a share; Cochran, Sampling Techniques (1977), section 9A.4,
    for variances over clusters, and chapter 6 for that of a ratio, which `first_shown` is.
    """
    if not verdicts:
        raise InputError("no pairs to compare judge and people on; pass at least one")
    both = [one for one in verdicts if one.orig is not None and one.swapped is not None]
    judged = [one for one in both if one.judged is not None]
    agreed = np.array([float(one.judged == one.human) for one in judged])
    decided = [
        one for one in judged if one.judged and one.human and one.lengths[0] != one.lengths[1]
    ]
    of_judge = np.array([_longer(one, one.judged) for one in decided])
    of_human = np.array([_longer(one, one.human) for one in decided])
    shown = [one for one in both if one.orig or one.swapped]
    first = _first_shown(shown)
    return Agreement(
        pairs=len(verdicts),
        judged=len(judged),
        unread=len(verdicts) - len(both),
        agree=float(agreed.mean()) if judged else nan,
        agree_interval=_wilson(agreed, _clusters(judged)),
        kappa=_kappa(judged),
        consistent=len(judged) / len(both) if both else nan,
        first_shown=float(first.mean()) if len(first) else nan,
        position_bias=_mean_interval(first - 0.5, _clusters(shown), -0.5, 0.5),
        longer_judge=float(of_judge.mean()) if decided else nan,
        longer_human=float(of_human.mean()) if decided else nan,
        length_bias=_mean_interval(of_judge - of_human, _clusters(decided), -1.0, 1.0),
    )


def _longer(one: Verdicts, chosen: int | None) -> float:
    return float((chosen == 1) == (one.lengths[0] > one.lengths[1]))


def _first_shown(pairs: Sequence[Verdicts]) -> Floats:
    """Return (n,) values whose mean is the share of verdicts for the answer shown first.

    They are the terms of the ratio's linearisation, so they have its variance.
    """
    if not pairs:
        return np.empty(0)
    verdicts = np.array([bool(one.orig) + bool(one.swapped) for one in pairs], np.float64)
    hits = np.array([(one.orig == 1) + (one.swapped == 2) for one in pairs], np.float64)
    share = hits.sum() / verdicts.sum()
    result: Floats = share + (hits - share * verdicts) / verdicts.mean()
    return result


def _kappa(judged: Sequence[Verdicts]) -> float:
    if not judged:
        return nan
    table = np.zeros((3, 3))
    for one in judged:
        table[one.human, one.judged or 0] += 1
    table /= table.sum()
    by_chance = float(table.sum(0) @ table.sum(1))
    return float((np.trace(table) - by_chance) / (1 - by_chance)) if by_chance < 1 else nan


def _clusters(pairs: Sequence[Verdicts]) -> Places:
    """Return (n,) the cluster number of each pair's prompt; a new one without a prompt."""
    numbers: dict[str | int, int] = {}
    return np.array(
        [numbers.setdefault(one.prompt or place, len(numbers)) for place, one in enumerate(pairs)],
        np.intp,
    )


def _variance(values: Floats, clusters: Places) -> float:
    """Return the variance of a mean over clusters."""
    off = np.bincount(clusters, values - values.mean())
    return float(off @ off / len(values) ** 2 * len(off) / (len(off) - 1))


def _wilson(hits: Floats, clusters: Places) -> Interval:
    if not len(hits):
        return Interval(nan, nan)
    share, count = float(hits.mean()), float(len(hits))
    groups = float(clusters.max() + 1)
    if groups > 1 and 0 < share < 1:
        alone = share * (1 - share) / (count - 1)
        count /= max(_variance(hits, clusters) / alone, 1.0)
    elif groups < count:  # unknown correlation within a cluster: assume the maximum
        count = groups
    square = _Z * _Z / count
    middle = (share + square / 2) / (1 + square)
    half = _Z * np.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    return Interval(float(middle - half), float(middle + half))


def _mean_interval(values: Floats, clusters: Places, low: float, high: float) -> Interval:
    """Return the interval of a mean over clusters, for values in [low, high]."""
    if not len(values) or not clusters.max():
        return Interval(nan, nan)
    mean, variance = float(values.mean()), _variance(values, clusters)
    if variance < _ALIKE:
        return all_alike_interval(mean, int(clusters.max()) + 1, low=low, high=high)
    half = _Z * np.sqrt(variance)
    return Interval(mean - float(half), mean + float(half))
