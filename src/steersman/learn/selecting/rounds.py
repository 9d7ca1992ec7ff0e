"""What rounds of learning have in common: what each found, and by which questions it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from steersman.errors import InputError
from steersman.learn.selecting.task import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        best: mean of what was kept.
        kept: questions that something was learned from.
        held_out: mean greedy reward of the held-out questions afterwards.
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
        tasks: at least five.
        held_out: share of the second.
        seed: of the order.

    Returns:
        Both, in the order of `tasks`.

    Raises:
        InputError: fewer than five.

    No doctest: it needs tasks; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    if len(tasks) < 5:
        raise InputError(f"{len(tasks)} questions; at least 5 are needed to hold some out")
    order = np.random.default_rng([seed, len(tasks)]).permutation(len(tasks)).tolist()
    judged = set(order[: max(1, round(held_out * len(tasks)))])
    return (
        [task for place, task in enumerate(tasks) if place not in judged],
        [task for place, task in enumerate(tasks) if place in judged],
    )


def greedy_reward(tasks: Sequence[Task], scorer: Scorer, rule: StepRule, sample: Sampler) -> float:
    """Return the mean reward of what a scorer selects without exploring.

    Args:
        tasks: the held-out questions.
        scorer: whose selections they are.
        rule: how it selects otherwise.
        sample: draws selections.

    Raises:
        FloatingPointError: a reward is no finite number.

    No doctest: it needs tasks; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    found = sample(tasks, scorer, rule.greedy, each=1, seed=0)
    reward = float(np.mean([one.reward for one in found]))
    if not np.isfinite(reward):
        raise FloatingPointError(f"the held-out reward is {reward}")
    return reward
