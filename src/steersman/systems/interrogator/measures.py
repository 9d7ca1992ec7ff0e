"""What investigations are compared by: how close, how soon, and at what cost in embedded texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.stats import Estimate, crossed_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman.systems.interrogator.investigation import Investigation

    Floats = NDArray[np.float64]

SHARE = 0.9
"""Of what a search by trying comes to: the second level that sessions are timed to."""
# A similarity counts as reached within the rounding of sums of 16-bit products.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """One investigation in numbers.

    Args:
        similarity: (k + 1,) float64, of the opening and after each of k questions; never falls.
        calls: (k + 1,) int64, texts embedded up to there.
        hits: (k,) bool, whether the cache had the answer.
    """

    similarity: Floats
    calls: NDArray[np.int64]
    hits: NDArray[np.bool_]

    @classmethod
    def of(cls, done: Investigation) -> Self:
        """Return an investigation in numbers.

        Args:
            done: The investigation.

        Returns:
            Its course.
        """
        answers = (done.opening, *(step.answer for step in done.steps))
        return cls(
            np.array([answer.similarity for answer in answers], np.float64),
            np.cumsum([answer.embedder_calls for answer in answers], dtype=np.int64),
            np.array([step.answer.cache_hit for step in done.steps], np.bool_),
        )

    @property
    def reached(self) -> float:
        """The similarity in the end."""
        return float(self.similarity[-1])

    def steps_to(self, similarity: float) -> tuple[int, bool]:
        """Return after how many questions a similarity was reached.

        Args:
            similarity: A cosine, −1 to 1.

        Returns:
            (questions, True), or (all that were asked, False) where it was not reached: the session
            was cut off there.
        """
        places = np.flatnonzero(self.similarity >= similarity - _ROUNDING)
        if places.size:
            return int(places[0]), True
        return len(self.hits), False

    def calls_to(self, similarity: float) -> int:
        """Return how many texts were embedded until a similarity was reached.

        Args:
            similarity: A cosine that this course reached.

        Returns:
            Texts; all of them where it was not reached.
        """
        return int(self.calls[self.steps_to(similarity)[0]])


def calls_to_the_same(one: Course, other: Course) -> tuple[int, int]:
    """Return how many texts each of two investigations embedded until both were equally close.

    The level is the lower of what both reached, so that neither is charged for going further, and
    neither is cut off.

    Args:
        one: An investigation.
        other: Another of the same target.

    Returns:
        Texts of the one and of the other.

    >>> quick = Course(np.array([0.1, 0.5, 0.6]), np.array([1, 9, 15]), np.zeros(2, bool))
    >>> slow = Course(np.array([0.1, 0.2, 0.5]), np.array([1, 13, 25]), np.zeros(2, bool))
    >>> calls_to_the_same(quick, slow)
    (9, 25)
    """
    level = min(one.reached, other.reached)
    return one.calls_to(level), other.calls_to(level)


def both_calls_to_the_same(
    one: Sequence[Sequence[Course]], other: Sequence[Sequence[Course]]
) -> tuple[Floats, Floats]:
    """Return what `calls_to_the_same` says of every session of two arms.

    Args:
        one: (seeds, targets) courses.
        other: Those of another arm.

    Returns:
        (seeds, targets) float64 of both.
    """
    pairs = [
        [calls_to_the_same(a, b) for a, b in zip(*runs, strict=True)]
        for runs in zip(one, other, strict=True)
    ]
    first, second = np.moveaxis(np.array(pairs, np.float64), 2, 0)
    return first, second


def hit_rate(course: Course) -> float:
    """Return the share of questions that the cache answered; 0 where none was asked.

    Args:
        course: An investigation.
    """
    return float(course.hits.mean()) if course.hits.size else 0.0


def reached(course: Course) -> float:
    """Return the similarity in the end.

    Args:
        course: An investigation.
    """
    return course.reached


def all_calls(course: Course) -> float:
    """Return how many texts were embedded in all.

    Args:
        course: An investigation.
    """
    return float(course.calls[-1])


MEASURES = {"similarity": reached, "embedder_calls": all_calls, "cache_hit_rate": hit_rate}
"""Of a whole session, by the name that reports and the gate use."""
SHARES = frozenset({"cache_hit_rate"})
"""Of these, which are never below 0 and never above 1."""


def of_each(
    runs: Sequence[Sequence[Course]], measure: Callable[[Course], float]
) -> NDArray[np.float64]:
    """Return a measure of every session.

    Args:
        runs: (seeds, targets) courses of one arm.
        measure: Of one course.

    Returns:
        (seeds, targets) float64.
    """
    return np.array([[measure(course) for course in run] for run in runs], np.float64)


def compared(differences: Floats, *, shares: bool = False) -> dict[str, Any]:
    """Return the mean of some differences as a report has it, and that of each seed.

    Args:
        differences: (seeds, targets), at least 2 targets.
        shares: whether they are of numbers from 0 to 1.

    Returns:
        ``value``, ``low``, ``high`` as `crossed_mean` has them, and ``by_seed``.

    >>> compared(np.array([[1.0, 2.0], [2.0, 3.0]]))["by_seed"]
    [1.5, 2.5]
    """
    by_seed = [float(mean) for mean in differences.mean(axis=1)]
    within = (-1.0, 1.0) if shares else None
    return {**described(crossed_mean(differences, within=within)), "by_seed": by_seed}


def described(estimate: Estimate) -> dict[str, float]:
    """Return an estimate as a report has it.

    Args:
        estimate: A number with its interval.

    >>> from steersman.stats import Interval
    >>> described(Estimate(1.0, Interval(0.5, 1.5)))
    {'value': 1.0, 'low': 0.5, 'high': 1.5}
    """
    return {"value": estimate.value, "low": estimate.interval.low, "high": estimate.interval.high}
