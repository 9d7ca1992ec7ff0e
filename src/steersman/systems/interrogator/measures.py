"""What investigations are compared by: how close, how soon, and at what cost in embedded texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from steersman.errors import InputError
from steersman.stats import Estimate, bca_interval, kaplan_meier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from steersman.systems.interrogator.investigation import Investigation

    Floats = NDArray[np.float64]

SHARE = 0.9
"""Of what a search by trying comes to: the second level that sessions are timed to."""
_RESAMPLES = 4_000
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


def hit_rate(course: Course) -> float:
    """Return the share of questions that the cache answered; 0 where none was asked.

    Args:
        course: An investigation.
    """
    return float(course.hits.mean()) if course.hits.size else 0.0


def per_target(
    runs: Sequence[Sequence[Course]], measure: Callable[[Course], float]
) -> NDArray[np.float64]:
    """Return a measure of each target, the mean over seeds.

    Args:
        runs: (seeds, targets) courses of one arm.
        measure: Of one course.

    Returns:
        (targets,) float64.
    """
    rows = [[measure(course) for course in run] for run in runs]
    return np.asarray(np.mean(rows, axis=0), np.float64)


def mean_with_interval(values: Floats, *, level: float = 0.95) -> Estimate:
    """Return a mean over targets with its bootstrap interval.

    Targets are taken as independent. Those of one run share a cache, which ties them a little; the
    seeds change their order.

    Args:
        values: (targets,) one number a target, at least 2.
        level: In (0, 1).

    Raises:
        InputError: fewer than two targets.

    >>> mean_with_interval(np.arange(10.0)).value
    4.5
    """
    if values.size < 2:
        message = f"{values.size} targets; allowed are at least 2; name more to compare"
        raise InputError(message)
    ends = bca_interval(values, _mean, level=level, resamples=_RESAMPLES)
    return Estimate(float(values.mean()), ends)


def _mean(values: Floats) -> float:
    return float(values.mean())


def steps_until(
    runs: Sequence[Sequence[Course]], levels: Floats, *, level: float = 0.95
) -> dict[str, float | None]:
    """Return how many questions it takes to a similarity, unsolved sessions counted as cut off.

    The median and its interval are Kaplan and Meier's, over the sessions of all seeds; sessions of
    one target are not independent of each other, so the interval is that of the first seed alone,
    which is wider.

    Args:
        runs: (seeds, targets) courses of one arm.
        levels: (targets,) similarity to be reached.
        level: Of the interval, in (0, 1).

    Returns:
        ``median``, ``low``, ``high`` (None: beyond the longest session), ``solved`` (share of all
        sessions) and ``restricted_mean`` up to the longest session.
    """
    timed = [
        [course.steps_to(wanted) for course, wanted in zip(run, levels, strict=True)]
        for run in runs
    ]
    steps, solved = np.moveaxis(np.array(timed, np.float64), 2, 0)
    everything = kaplan_meier(steps.ravel(), solved.ravel(), level=level)
    ends = kaplan_meier(steps[0], solved[0], level=level).median.interval
    longest = float(steps.max())
    return {
        "median": _finite(everything.median.value),
        "low": _finite(ends.low),
        "high": _finite(ends.high),
        "solved": float(solved.mean()),
        "restricted_mean": everything.restricted_mean(longest).value if longest else 0.0,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def described(estimate: Estimate) -> dict[str, float]:
    """Return an estimate as a report has it.

    Args:
        estimate: A number with its interval.

    >>> from steersman.stats import Interval
    >>> described(Estimate(1.0, Interval(0.5, 1.5)))
    {'value': 1.0, 'low': 0.5, 'high': 1.5}
    """
    return {"value": estimate.value, "low": estimate.interval.low, "high": estimate.interval.high}
