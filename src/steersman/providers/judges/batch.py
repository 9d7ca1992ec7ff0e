"""Batch judging: many answers, several threads, one shared judge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.providers.judges.scores import column, coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.providers.judges.judge import Judge
    from steersman.providers.judges.scores import Case, Coverage, Scored


class Measure(Protocol):
    """Measure of one answer: `Faithfulness`, `Relevancy`, or your own."""

    @property
    def name(self) -> str:
        """Column name."""

    def __call__(self, case: Case) -> Scored:
        """Return the score of an answer; must be thread-safe."""


@dataclass(frozen=True)
class Judged:
    """Result of batch judging.

    Attributes:
        judge: name of the judging model.
        scores: scores by measure, in the order of the cases.
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
        cost_usd: total cost of the judge's budget at the end, in US dollars; estimated where
            token counts are missing.
    """

    judge: str
    scores: Mapping[str, tuple[Scored, ...]] = field(repr=False)
    calls: int
    cached: int
    cost_usd: float

    @property
    def coverage(self) -> dict[str, Coverage]:
        """Coverage by measure: number of defined scores, and reasons for the others."""
        return {name: coverage(scores) for name, scores in self.scores.items()}

    @property
    def quality(self) -> NDArray[np.float64]:
        """(cases, measures) float64 in [0, 1], NaN where undefined; report `coverage` with it."""
        return np.stack([column(scores) for scores in self.scores.values()], axis=1)


def judge_all(
    judge: Judge, measures: Sequence[Measure], cases: Sequence[Case], *, workers: int = 4
) -> Judged:
    """Return the scores of all measures for all cases.

    When the budget is used up, the remaining scores are undefined with that reason. With a cache,
    the same call with a larger budget continues and pays nothing twice. On an exception, such as
    Ctrl-C, it sends no more requests and ends after those in flight.

    Args:
        workers: number of threads, 1 to 64; default 4.

    Raises:
        InputError: `workers` is out of range, no measures, or duplicate names.
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
    # No `with`: it would wait for all queued work before it raises.
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
