"""Many answers judged at once, by several threads that share one judge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.llm.scored import column, coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.llm.judge import Judge
    from steersman.llm.scored import Case, Coverage, Scored


class Measure(Protocol):
    """A measure of one answer: `Faithfulness`, `Relevancy`, or one of your own."""

    @property
    def name(self) -> str:
        """What its column is called."""

    def __call__(self, case: Case) -> Scored:
        """Return the score of an answer; it may be called from several threads.

        Args:
            case: the answer.
        """


@dataclass(frozen=True)
class Judged:
    """What came of judging.

    Attributes:
        judge: name of the model that judged.
        scores: measure -> one score a case, in the order of the cases.
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
        cost_usd: what the judge's budget had spent when this ended, estimated where tokens were
            not told.
    """

    judge: str
    scores: Mapping[str, tuple[Scored, ...]] = field(repr=False)
    calls: int
    cached: int
    cost_usd: float

    @property
    def coverage(self) -> dict[str, Coverage]:
        """Measure -> how many are defined, and why the others are not."""
        return {name: coverage(scores) for name, scores in self.scores.items()}

    @property
    def quality(self) -> NDArray[np.float64]:
        """(cases, measures) float64 in [0, 1], NaN where undefined; tell `coverage` beside it."""
        return np.stack([column(scores) for scores in self.scores.values()], axis=1)


def judge_all(
    judge: Judge, measures: Sequence[Measure], cases: Sequence[Case], *, workers: int = 4
) -> Judged:
    """Return every measure of every case.

    What is not judged because the budget ended is undefined with that reason; with a cache, the
    same call with more budget goes on from there and pays nothing twice. Broken off by an exception
    (Ctrl-C is one), it begins no further request and ends when those under way have.

    Args:
        judge: the one that the measures ask; its budget and rate are shared by all threads.
        measures: one or more, of different names.
        cases: any number.
        workers: threads, 1 to 64: as many answers are judged at a time.

    Returns:
        The scores in the order of the cases, and what they took.

    Raises:
        InputError: `workers` out of range, no measure, or two of one name.
        DataError: the judge cache is damaged.
    """
    names = [measure.name for measure in measures]
    if not names or len(set(names)) < len(names):
        raise InputError(f"measures are {names}; pass one or more with distinct names")
    if not 1 <= workers <= 64:
        raise InputError(f"workers is {workers!r}; allowed: 1 to 64")
    rows = _judged(judge, measures, cases, workers)
    scores = {name: tuple(row[place] for row in rows) for place, name in enumerate(names)}
    every = [score for row in rows for score in row]
    calls, cached = sum(s.calls for s in every), sum(s.cached for s in every)
    return Judged(judge.name, scores, calls, cached, judge.budget.cost_usd)


def _judged(
    judge: Judge, measures: Sequence[Measure], cases: Sequence[Case], workers: int
) -> list[list[Scored]]:
    # No `with`: its end would wait for everything that is queued before it tells what was wrong.
    pool = ThreadPoolExecutor(workers, thread_name_prefix="steersman-judge")
    try:
        waiting = [pool.submit(_scores, measures, case) for case in cases]
        return [future.result() for future in waiting]
    except BaseException:
        judge.budget.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _scores(measures: Sequence[Measure], case: Case) -> list[Scored]:
    return [measure(case) for measure in measures]
