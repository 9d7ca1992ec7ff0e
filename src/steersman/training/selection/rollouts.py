"""Parallel sampling of selections: locally, in processes or on a Ray cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.training.parallel_map import spread
from steersman.training.selection.task import walks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.policies.scorers import Scorer
    from steersman.policies.sequence import StepRule
    from steersman.training.selection.rounds import Sampler
    from steersman.training.selection.task import Task, Walk


def walks_over(address: str | None = None, *, processes: int = 1, questions: int = 20) -> Sampler:
    """Return a sampler like `walks` that works in parallel.

    Each question has its own random stream from its id and the seed, so the results do not depend
    on where it runs.

    Args:
        address: address of a Ray cluster; None: this machine. See `steersman.training.parallel_map.spread`.
        processes: local processes without a cluster, ≥ 1.
        questions: questions per work item, ≥ 1; an item should take seconds.

    Raises:
        InputError: `questions` is below 1.
    """
    if questions < 1:
        raise InputError(f"questions is {questions!r}; allowed is 1 or more")

    def sample(
        tasks: Sequence[Task], scorer: Scorer, rule: StepRule, *, each: int, seed: int
    ) -> list[Walk]:
        # Tasks are sent once, as part of the function, because they share large data.
        work = partial(_drawn, tasks, scorer, rule, each, seed, questions)
        found: list[Walk] = []
        starts = range(0, len(tasks), questions)
        for part in spread(work, starts, address=address, processes=processes):
            found += part
        return found

    return sample


def _drawn(
    tasks: Sequence[Task],
    scorer: Scorer,
    rule: StepRule,
    each: int,
    seed: int,
    questions: int,
    start: int,
) -> list[Walk]:
    return walks(tasks[start : start + questions], scorer, rule, each=each, seed=seed)
