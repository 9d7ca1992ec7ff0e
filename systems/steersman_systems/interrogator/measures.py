"""Measures of investigations: similarity, number of questions and embedder calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.stats import Estimate, crossed_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman_systems.interrogator.investigation import Investigation

    Floats = NDArray[np.float64]

SHARE = 0.9
"""Share of the exhaustive search's similarity that is the second level for timing."""
# A similarity counts as reached within the rounding of sums of 16-bit products.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Figures of one investigation.

    Args:
        similarity: (k + 1,) float64, at the opening and after each of k questions; never falls.
        calls: (k + 1,) int64, embedded texts so far.
        hits: (k,) bool, cache hits.
    """

    similarity: Floats
    calls: NDArray[np.int64]
    hits: NDArray[np.bool_]

    @classmethod
    def of(cls, done: Investigation) -> Self:
        """Return the figures of an investigation."""
        answers = (done.opening, *(step.answer for step in done.steps))
        return cls(
            np.array([answer.similarity for answer in answers], np.float64),
            np.cumsum([answer.embedder_calls for answer in answers], dtype=np.int64),
            np.array([step.answer.cache_hit for step in done.steps], np.bool_),
        )

    @property
    def reached(self) -> float:
        """Final similarity."""
        return float(self.similarity[-1])

    def steps_to(self, similarity: float) -> tuple[int, bool]:
        """Return the number of questions until a similarity was reached, and True.

        If it was not reached: all questions, and False (censored).
        """
        places = np.flatnonzero(self.similarity >= similarity - _ROUNDING)
        if places.size:
            return int(places[0]), True
        return len(self.hits), False

    def calls_to(self, similarity: float) -> int:
        """Return the number of embedded texts until a similarity was reached, else all of them."""
        return int(self.calls[self.steps_to(similarity)[0]])


def calls_to_the_same(one: Course, other: Course) -> tuple[int, int]:
    """Return the embedded texts of two investigations until both were equally close.

    The level is the lower of the two final similarities, so neither is censored.

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
    """Return `calls_to_the_same` of every session of two arms, (seeds, targets) float64 each."""
    pairs = [
        [calls_to_the_same(a, b) for a, b in zip(*runs, strict=True)]
        for runs in zip(one, other, strict=True)
    ]
    first, second = np.moveaxis(np.array(pairs, np.float64), 2, 0)
    return first, second


def hit_rate(course: Course) -> float:
    """Return the share of questions answered from the cache; 0 without questions."""
    return float(course.hits.mean()) if course.hits.size else 0.0


def reached(course: Course) -> float:
    """Return the final similarity."""
    return course.reached


def all_calls(course: Course) -> float:
    """Return the number of embedded texts."""
    return float(course.calls[-1])


MEASURES = {"similarity": reached, "embedder_calls": all_calls, "cache_hit_rate": hit_rate}
"""Measures of a whole session, by their names in reports and in the gate."""
SHARES = frozenset({"cache_hit_rate"})
"""Names of the measures in [0, 1]."""


def of_each(
    runs: Sequence[Sequence[Course]], measure: Callable[[Course], float]
) -> NDArray[np.float64]:
    """Return a measure of every session, (seeds, targets) float64."""
    return np.array([[measure(course) for course in run] for run in runs], np.float64)


def compared(differences: Floats, *, shares: bool = False) -> dict[str, Any]:
    """Return the mean of differences with its interval, and the mean of each seed.

    Args:
        differences: (seeds, targets), at least 2 targets.
        shares: True for differences of numbers from 0 to 1.

    >>> compared(np.array([[1.0, 2.0], [2.0, 3.0]]))["by_seed"]
    [1.5, 2.5]
    """
    by_seed = [float(mean) for mean in differences.mean(axis=1)]
    within = (-1.0, 1.0) if shares else None
    return {**described(crossed_mean(differences, within=within)), "by_seed": by_seed}


def described(estimate: Estimate) -> dict[str, float]:
    """Return an estimate as JSON values.

    >>> from steersman.stats import Interval
    >>> described(Estimate(1.0, Interval(0.5, 1.5)))
    {'value': 1.0, 'low': 0.5, 'high': 1.5}
    """
    return {"value": estimate.value, "low": estimate.interval.low, "high": estimate.interval.high}
