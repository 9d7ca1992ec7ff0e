"""What rounds of learning have in common: what each found, and by which questions it is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman.learn.selecting.task import Walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.learn.selecting.task import Task
    from steersman.policies import Scorer
    from steersman.policies.sequence import StepRule

Stopped = Literal["rounds", "early", "not finite", "nothing to learn"]
Sampler = Callable[..., list[Walk]]
"""Draws selections as `walks` does, perhaps on other machines."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    Args:
        reward: mean of what was logged.
        best: mean of what was kept: of each question's best selection; by PPO, of the best of all.
        kept: steps that were learned from, in all states that were visited; by PPO, selections.
        held_out: mean greedy reward of the questions that judge, of what was learned without them.
    """

    reward: float
    best: float
    kept: int
    held_out: float


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What training came to.

    Args:
        scorer: the last that held-out feedback did not show to be worse; what started, if none.
        rounds: in their order.
        before: held-out reward of what started.
        stopped: why it ended.
    """

    scorer: Scorer
    rounds: tuple[Round, ...]
    before: float
    stopped: Stopped


def split(tasks: Sequence[Task], held_out: float, seed: int) -> tuple[list[Task], list[Task]]:
    """Return the questions that are learned from, and those by which rounds are judged.

    Args:
        tasks: at least five, of at least two groups; those of one group are on one side.
        held_out: share of the second; a little more where the last group that is held out has more.
        seed: of the order.

    Returns:
        Both, in the order of `tasks`.

    Raises:
        InputError: fewer than that.
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
    """Return for each part the questions outside it, to learn from, and its own, which judge.

    Args:
        tasks: at least five, of at least as many groups as parts; those of one group are in one.
        parts: ≥ 2, whose numbers of groups differ by one at most.
        seed: of the order.

    Returns:
        Both, in the order of `tasks`; every question judges once.

    Raises:
        InputError: fewer than that.

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
    """Return how many questions each group has, in the order in which they first come."""
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
    """Return the reward of what a scorer selects without exploring, by question.

    Args:
        tasks: the held-out questions.
        scorer: whose selections they are.
        rule: how it selects otherwise.
        sample: draws selections.
    """
    return {one.task: one.reward for one in sample(tasks, scorer, rule.greedy, each=1, seed=0)}


def mean_reward(tasks: Sequence[Task], rewards: Mapping[str, float]) -> float:
    """Return the mean reward of questions: the same to the bit, however the rewards came together.

    Args:
        tasks: in whose order they are added up.
        rewards: of `greedy_rewards`.

    Raises:
        FloatingPointError: a reward is no finite number.
    """
    reward = float(np.mean([rewards[task.id] for task in tasks]))
    if not np.isfinite(reward):
        raise FloatingPointError(f"the held-out reward is {reward}")
    return reward
