"""What a judge found of one answer, and how much of many answers it could judge at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

Reason = Literal[
    "", "no_statements", "malformed", "budget", "unavailable", "refused", "too_long", "unreadable",
    "embedder",
]  # fmt: skip
"""Why a score is undefined; "" when it is not."""


@dataclass(frozen=True, slots=True)
class Case:
    """An answer to be judged.

    Attributes:
        question: what was asked.
        answer: what was answered.
        contexts: the passages it was answered from.
    """

    question: str
    answer: str
    contexts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that an answer makes.

    Attributes:
        text: of the statement, in the judge's words.
        supported: whether the judge finds that the contexts say so.
        why: the judge's grounds, cut to 500 characters.
    """

    text: str
    supported: bool
    why: str


@dataclass(slots=True)
class Tally:
    """What judging one answer took so far.

    Attributes:
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
    """

    calls: int = 0
    cached: int = 0


class Undefined(Exception):  # noqa: N818 - it ends the judging of one answer, and is no error
    """An answer cannot be judged.

    Args:
        reason: one of `Reason`.
        detail: what happened, for a person.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Scored:
    """One measure of one answer.

    Attributes:
        value: in [0, 1]; None: undefined.
        reason: why it is undefined, one of a few words that can be counted; "" if it is defined.
        detail: what happened, for a person; of a defined one, what is special about it, or "".
        statements: those of the answer with their verdicts; of faithfulness.
        questions: those generated from the answer; of answer relevancy.
        calls: number of requests, retries included.
        cached: number of answers found in the cache.

    Raises:
        InputError: a value outside [0, 1] or NaN, or not exactly one of value and reason.

    >>> Scored(None, "budget", "all 100 calls are spent").value is None
    True
    """

    value: float | None
    reason: Reason = ""
    detail: str = ""
    statements: tuple[Statement, ...] = field(default=(), repr=False)
    questions: tuple[str, ...] = field(default=(), repr=False)
    calls: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        if self.value is not None and not 0.0 <= self.value <= 1.0:
            raise InputError(f"value is {self.value!r}; allowed: 0 to 1, or None for undefined")
        if (self.value is None) != bool(self.reason):
            raise InputError(
                f"value is {self.value!r} with reason {self.reason!r}; an undefined score has a "
                "reason, a defined score has none"
            )

    @classmethod
    def undefined(cls, why: Undefined, tally: Tally) -> Scored:
        """Return an undefined score.

        Args:
            why: what ended the judging.
            tally: what it took until then.
        """
        return cls(None, why.reason, why.detail, calls=tally.calls, cached=tally.cached)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of some answers could be judged.

    Attributes:
        total: all of them.
        defined: those with a score.
        reasons: of the others, how many for each reason.
    """

    total: int
    defined: int
    reasons: Mapping[str, int]

    @property
    def share(self) -> float:
        """Defined of all, in [0, 1]; NaN of none."""
        return self.defined / self.total if self.total else nan

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count}" for name, count in sorted(self.reasons.items()))
        return f"{self.defined} of {self.total} defined" + (f" ({told})" if told else "")


def coverage(scores: Sequence[Scored]) -> Coverage:
    """Return how many scores are defined, and why the others are not.

    Args:
        scores: any number of them.

    Returns:
        The counts.

    >>> print(coverage([Scored(0.5), Scored(None, "budget"), Scored(None, "malformed")]))
    1 of 3 defined (budget 1, malformed 1)
    """
    reasons: Counter[str] = Counter(score.reason for score in scores if score.value is None)
    return Coverage(len(scores), len(scores) - reasons.total(), dict(reasons))


def column(scores: Sequence[Scored]) -> NDArray[np.float64]:
    """Return scores as a column of numbers, as batches of the tuner hold them.

    Args:
        scores: any number of them.

    Returns:
        (scores,) float64 in [0, 1]; NaN where undefined, so tell `coverage` beside it.

    >>> column([Scored(0.5), Scored(None, "budget")])
    array([0.5, nan])
    """
    return np.array([nan if s.value is None else s.value for s in scores], np.float64)
