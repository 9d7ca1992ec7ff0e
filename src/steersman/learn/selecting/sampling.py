"""Many selections drawn at once: here, in processes, or on a Ray cluster, with the same results."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.learn.selecting.task import walks
from steersman.learn.spreading import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.learn.selecting.rounds import Sampler
    from steersman.learn.selecting.task import Task, Walk
    from steersman.policies import Scorer
    from steersman.policies.sequence import StepRule


def walks_over(address: str | None = None, *, processes: int = 1, questions: int = 20) -> Sampler:
    """Return what draws selections as `walks` does, some questions at a time.

    A question draws from a stream of its own, by its id and the seed: where it is worked on, and
    with which others, changes nothing.

    Args:
        address: of a Ray cluster; None: this machine. See `steersman.learn.spread`.
        processes: of this machine, where no cluster is named, ≥ 1.
        questions: of one item of work, ≥ 1: enough for seconds.

    Returns:
        What `raft` and `ppo` take as ``sample``.

    Raises:
        InputError: `questions` is below 1.
    """
    if questions < 1:
        raise InputError(f"questions is {questions!r}; allowed is 1 or more")

    def sample(
        tasks: Sequence[Task], scorer: Scorer, rule: StepRule, *, each: int, seed: int
    ) -> list[Walk]:
        # The tasks travel once, as part of the function: they share what is large.
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
