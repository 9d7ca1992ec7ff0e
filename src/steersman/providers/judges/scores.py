"""Scores of a judge, and coverage: how many answers could be scored."""

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
"""Reason of an undefined score; "" if it is defined."""


@dataclass(frozen=True, slots=True)
class Case:
    """An answer to be judged.

    Attributes:
        question: question text.
        answer: answer text.
        contexts: passages given for the answer.
    """

    question: str
    answer: str
    contexts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement of an answer.

    Attributes:
        text: statement in the judge's words.
        supported: whether the contexts support it, according to the judge.
        why: reasons of the judge, truncated to 500 characters.
    """

    text: str
    supported: bool
    why: str


@dataclass(slots=True)
class Tally:
    """Counter of calls for one answer.

    Attributes:
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
    """

    calls: int = 0
    cached: int = 0


class Undefined(Exception):  # noqa: N818 - it ends the judging of one answer without an error
    """An answer cannot be judged.

    Args:
        reason: a `Reason`.
        detail: explanation in words.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Score:
    """One measure of one answer.

    Attributes:
        value: score in [0, 1]; None: undefined.
        reason: reason code if it is undefined; "" if it is defined.
        detail: explanation in words, or "".
        statements: statements with verdicts (faithfulness only).
        questions: generated questions (answer relevancy only).
        calls: number of requests, retries included.
        cached: number of answers found in the cache.

    Raises:
        InputError: the value is NaN or outside [0, 1], or not exactly one of value and reason is
            set.

    >>> Score(None, "budget", "all 100 calls are spent").value is None
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
    def undefined(cls, why: Undefined, tally: Tally) -> Score:
        """Return an undefined score."""
        return cls(None, why.reason, why.detail, calls=tally.calls, cached=tally.cached)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a batch: how many answers have a score.

    Attributes:
        total: number of answers.
        defined: number of answers with a score.
        reasons: number of undefined scores by reason.
    """

    total: int
    defined: int
    reasons: Mapping[str, int]

    @property
    def share(self) -> float:
        """Share of defined scores, in [0, 1]; NaN without answers."""
        return self.defined / self.total if self.total else nan

    def __str__(self) -> str:
        reasons = ", ".join(f"{name} {count}" for name, count in sorted(self.reasons.items()))
        return f"{self.defined} of {self.total} defined" + (f" ({reasons})" if reasons else "")


def coverage(scores: Sequence[Score]) -> Coverage:
    """Return the number of defined scores, and the reasons of undefined ones.

    >>> print(coverage([Score(0.5), Score(None, "budget"), Score(None, "malformed")]))
    1 of 3 defined (budget 1, malformed 1)
    """
    reasons: Counter[str] = Counter(score.reason for score in scores if score.value is None)
    return Coverage(len(scores), len(scores) - reasons.total(), dict(reasons))


def column(scores: Sequence[Score]) -> NDArray[np.float64]:
    """Return scores as a column of numbers, for batches of the tuner.

    Returns:
        (scores,) float64 in [0, 1]; NaN where undefined; report `coverage` with it.

    >>> column([Score(0.5), Score(None, "budget")])
    array([0.5, nan])
    """
    return np.array([nan if s.value is None else s.value for s in scores], np.float64)
