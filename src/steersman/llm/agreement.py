"""How far a judge agrees with people, and what moves it that does not move them."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.stats import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One pair as people and a judge saw it; 1 or 2 is the better answer, 0 a tie, None nothing.

    Args:
        human: of people.
        orig: of the judge, answer 1 shown first.
        swapped: of the judge, answer 2 shown first; still the number of the answer.
        lengths: of both answers, in characters.

    Raises:
        InputError: a verdict that is none of these.

    >>> Verdicts(1, 1, 2, (90, 50)).judged is None
    True
    """

    human: int
    orig: int | None
    swapped: int | None
    lengths: tuple[int, int]

    def __post_init__(self) -> None:
        for name in ("human", "orig", "swapped"):
            value = getattr(self, name)
            if value not in {0, 1, 2} and (value is not None or name == "human"):
                raise InputError(f"{name} is {value!r}; allowed are 0, 1 and 2")

    @property
    def judged(self) -> int | None:
        """What the judge says after both orders; None where it abstains."""
        return self.orig if self.orig == self.swapped else None


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge beside people.

    Attributes:
        pairs: all of them.
        judged: those with one verdict in both orders.
        unread: those with an order in which no verdict could be read.
        agree: share of the judged in which judge and people agree; NaN of none.
        agree_interval: Wilson's, 95 %.
        kappa: Cohen's, over the judged: agreement beyond what their shares alone would give.
        consistent: share of pairs with the same verdict in both orders, among those with two.
        first_shown: share of verdicts (ties left out) for the answer shown first. People's is one
            half by construction, since every pair is shown in both orders.
        position_bias: `first_shown` − ½, with its 95 % interval over pairs.
        longer_judge: share of the pairs that both decided, in which the judge takes the longer.
        longer_human: share of the same pairs in which people take the longer.
        length_bias: the difference of the two, with its paired 95 % interval.
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
    """Return how a judge stands beside people.

    Args:
        verdicts: at least one pair.

    Returns:
        Shares and intervals; NaN where nothing is left to count.

    Raises:
        InputError: there is no pair.

    >>> sure = [Verdicts(1, 1, 1, (9, 5)), Verdicts(2, 2, 2, (9, 5)), Verdicts(2, 1, 2, (9, 5))]
    >>> found = agreement(sure)
    >>> found.judged, found.agree, round(found.first_shown, 3)
    (2, 1.0, 0.667)

    Source: Zheng et al., Judging LLM-as-a-Judge (2023), section 3.3 (position and length bias);
    Wilson (1927) for the interval of a share.
    """
    if not verdicts:
        raise InputError("there is no pair to compare judge and people on; give at least one")
    both = [one for one in verdicts if one.orig is not None and one.swapped is not None]
    judged = [one for one in both if one.judged is not None]
    agreed = sum(one.judged == one.human for one in judged)
    decided = [
        one for one in judged if one.judged and one.human and one.lengths[0] != one.lengths[1]
    ]
    of_judge = np.array([_longer(one, one.judged) for one in decided])
    of_human = np.array([_longer(one, one.human) for one in decided])
    first = np.array([value for one in both if (value := _first_shown(one)) is not None])
    return Agreement(
        pairs=len(verdicts),
        judged=len(judged),
        unread=len(verdicts) - len(both),
        agree=agreed / len(judged) if judged else nan,
        agree_interval=_wilson(agreed, len(judged)),
        kappa=_kappa(judged),
        consistent=len(judged) / len(both) if both else nan,
        first_shown=float(first.mean()) if len(first) else nan,
        position_bias=_mean_interval(first - 0.5),
        longer_judge=float(of_judge.mean()) if decided else nan,
        longer_human=float(of_human.mean()) if decided else nan,
        length_bias=_mean_interval(of_judge - of_human),
    )


def _longer(one: Verdicts, chosen: int | None) -> float:
    return float((chosen == 1) == (one.lengths[0] > one.lengths[1]))


def _first_shown(one: Verdicts) -> float | None:
    """Return the share of a pair's verdicts for what was shown first; None where both are ties."""
    told = [float(won == first) for won, first in ((one.orig, 1), (one.swapped, 2)) if won]
    return sum(told) / len(told) if told else None


def _kappa(judged: Sequence[Verdicts]) -> float:
    if not judged:
        return nan
    table = np.zeros((3, 3))
    for one in judged:
        table[one.human, one.judged or 0] += 1
    table /= table.sum()
    by_chance = float(table.sum(0) @ table.sum(1))
    return float((np.trace(table) - by_chance) / (1 - by_chance)) if by_chance < 1 else nan


def _wilson(hits: int, count: int) -> Interval:
    if not count:
        return Interval(nan, nan)
    share, square = hits / count, _Z * _Z / count
    middle = (share + square / 2) / (1 + square)
    half = _Z * np.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    return Interval(float(middle - half), float(middle + half))


def _mean_interval(values: Floats) -> Interval:
    if len(values) < 2:
        return Interval(nan, nan)
    half = _Z * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean() - half), float(values.mean() + half))
