"""Training rounds: statistics, held-out questions and cross-validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman.training.parallel_map import spread
from steersman_systems.evidence_selection.training.task import Walk, walks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.policies.scorers import Scorer
    from steersman.policies.sequence import StepRule
    from steersman_systems.evidence_selection.training.task import Task


def walks_over(address: str | None = None, *, processes: int = 1, questions: int = 20) -> Sampler:
    """Return a sampler like `walks` that works in parallel.

    Each question has its own random stream from its id and the seed, so the results do not depend
    on where it runs.

    Args:
        address: address of a Ray cluster; None: this machine. See
            `steersman.training.parallel_map.spread`.
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


Stopped = Literal["rounds", "early", "not finite", "nothing to learn"]
Sampler = Callable[..., list[Walk]]
"""Sampler with the signature of `walks`, possibly on other machines."""


@dataclass(frozen=True, slots=True)
class Round:
    """Statistics of one round.

    Args:
        reward: mean reward of the logged selections.
        best: mean reward of each question's best selection.
        kept: number of training steps in all visited states; for PPO, of selections.
        held_out: mean greedy reward on held-out questions.
    """

    reward: float
    best: float
    kept: int
    held_out: float


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """Result of training.

    Args:
        scorer: the last policy that held-out rewards do not show to be worse; else the start.
        rounds: rounds in order.
        before: held-out reward of the start policy.
        stopped: why training ended.
    """

    scorer: Scorer
    rounds: tuple[Round, ...]
    before: float
    stopped: Stopped


def split(tasks: Sequence[Task], held_out: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Return training questions and held-out questions.

    Args:
        held_out: share of held-out questions; slightly more if the last group is large.

    Raises:
        InputError: too few questions or groups.
    """
    sizes = _groups(tasks, 2)
    names, wanted, judged = list(sizes), max(1, round(held_out * len(tasks))), set[str]()
    for place in np.random.default_rng([seed, len(names)]).permutation(len(names)).tolist()[:-1]:
        if sum(sizes[name] for name in judged) >= wanted:
            break
        judged.add(names[place])
    return (
        [task for task in tasks if task.group not in judged],
        [task for task in tasks if task.group in judged],
    )


def crossed(tasks: Sequence[Task], parts: int, seed: int) -> list[tuple[list[Task], list[Task]]]:
    """Return for each part its training questions and its own held-out questions.

    `parts`: number of parts, ≥ 2; their numbers of groups differ by at most one.

    Raises:
        InputError: too few questions or groups.

    Source: cross-validation: Stone, Cross-Validatory Choice and Assessment of Statistical
    Predictions (1974).
    """
    names = list(_groups(tasks, parts))
    drawn = np.random.default_rng([seed, len(names)]).permutation(len(names)) % parts
    part_of = dict(zip(names, drawn.tolist(), strict=True))
    return [
        (
            [task for task in tasks if part_of[task.group] != part],
            [task for task in tasks if part_of[task.group] == part],
        )
        for part in range(parts)
    ]


def _groups(tasks: Sequence[Task], least: int) -> Counter[str]:
    """Return the number of questions per group, in order of first appearance."""
    if len(tasks) < 5:
        raise InputError(f"{len(tasks)} questions; at least 5 are needed to hold some out")
    sizes = Counter(task.group for task in tasks)
    if len(sizes) < least:
        raise InputError(
            f"{len(tasks)} questions of {len(sizes)} groups (conversations, or single questions); "
            f"at least {least} are needed, as each is held out as a whole"
        )
    return sizes


def greedy_rewards(
    tasks: Sequence[Task], scorer: Scorer, rule: StepRule, sample: Sampler
) -> dict[str, float]:
    """Return the reward of a scorer without exploration, by question."""
    return {one.task: one.reward for one in sample(tasks, scorer, rule.greedy, each=1, seed=0)}


def mean_reward(tasks: Sequence[Task], rewards: Mapping[str, float]) -> float:
    """Return the mean reward, independent of the order to the last bit.

    Raises:
        FloatingPointError: a reward is not finite.
    """
    reward = float(np.mean([rewards[task.id] for task in tasks]))
    if not np.isfinite(reward):
        raise FloatingPointError(f"the held-out reward is {reward}")
    return reward
