"""Behaviour cloning: a scorer that does what an expert would, also where the expert never goes.

A clone of the expert's own steps alone meets states of its own making that nobody labelled. So it
is trained again with the states that it visits itself, labelled by the expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.learn.numbers import check_numbers
from steersman.learn.selecting.examples import Examples
from steersman.learn.selecting.task import choose, turn_stream
from steersman.learn.selecting.trees import TreeSettings, grow
from steersman.policies.sequence import StepRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.learn.selecting.task import Expert, Options, Task
    from steersman.policies import Scorer, TreeScorer

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CloneSettings:
    """How a clone is trained.

    Args:
        rounds: of visiting states and training, ≥ 1; the first visits those of the expert.
        others: wrong actions of a step that are kept, ≥ 2: those that rank highest by the scorer
            that visited, so that what is learned is to tell apart what is hard to; and half as
            many drawn from the rest, which count for all of it.
        trees: how trees are grown.

    Raises:
        InputError: a value out of its range.
    """

    rounds: int = 3
    others: int = 40
    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        check_numbers(self, {"rounds": ">= 1", "others": ">= 2"})


def clone(
    tasks: Sequence[Task],
    expert: Expert,
    settings: CloneSettings | None = None,
    *,
    seed: int = 0,
) -> TreeScorer:
    """Return trees that do what an expert would.

    Args:
        tasks: questions to learn from, at least one with a step.
        expert: says what is right in any state.
        settings: how it is trained.
        seed: of the expert's draws among what is right, and of the trees.

    Returns:
        The trees of the last round.

    Raises:
        InputError: no step has an action that is right and one that is not.
        DataError: the extra ``evidence`` is not installed.

    Source: Ross, Gordon & Bagnell, A Reduction of Imitation Learning and Structured Prediction to
    No-Regret Online Learning (2011), algorithm 3.1 (DAgger), with β = 1, 0, 0, …
    """
    how = settings or CloneSettings()
    scorer: TreeScorer | None = None
    seen: list[Examples] = []
    for turn in range(how.rounds):
        for task in tasks:
            seen += visit(task, expert, scorer, how.others, rng=turn_stream(seed, turn, task.id))
        if not seen:
            raise InputError(
                f"none of the {len(tasks)} questions has a step to learn from; pass others"
            )
        scorer = grow(Examples.joined(seen), how.trees, seed=seed)
    if scorer is None:
        raise InputError("no round was trained; set rounds to 1 or more")
    return scorer


def visit(
    task: Task, expert: Expert, scorer: Scorer | None, others: int, *, rng: np.random.Generator
) -> list[Examples]:
    """Return the labelled steps of one way through a task.

    Args:
        task: the question.
        expert: labels.
        scorer: whose way it is; None: the expert's, any right action being as likely.
        others: wrong actions of each step that are kept.
        rng: of the expert's draws.

    Returns:
        One for each step that has a right action.
    """
    state: Any = task.begin()
    found: list[Examples] = []
    while (options := task.options(state)) is not None:
        labels = expert.labels(task, state, options)
        if labels.any():  # where nothing is right, nothing can be told apart
            found.append(_kept(options, labels, scorer, others, rng))
        elif scorer is None:
            break
        state = task.take(state, _next(options, labels, scorer, rng))
    return found


def _next(options: Options, labels: Floats, scorer: Scorer | None, rng: np.random.Generator) -> int:
    if scorer is not None:
        return choose(options, scorer, StepRule(temperature=0.0), rng=rng).place
    right = np.flatnonzero(labels == labels.max())
    return int(rng.choice(right))


def _kept(
    options: Options, labels: Floats, scorer: Scorer | None, others: int, rng: np.random.Generator
) -> Examples:
    """Return a step with its hardest wrong actions and a fair sample of the other wrong ones.

    The sample counts for all that it stands for. Without it what ranks low would be known from
    right actions alone, and taken for right.
    """
    wrong = np.flatnonzero(labels[: options.candidates] == 0.0)
    hardness = np.arange(len(labels), 0, -1.0) if scorer is None else scorer.scores(options.rows)
    wrong = wrong[np.argsort(-hardness[wrong], kind="stable")]
    hard, easy = wrong[:others], wrong[others:]
    drawn = rng.choice(easy, min(len(easy), others // 2), replace=False)
    weights = np.ones(len(labels))
    weights[drawn] = len(easy) / max(len(drawn), 1)
    rest = np.setdiff1d(np.arange(len(labels)), wrong)
    kept = np.sort(np.concatenate([hard, drawn, rest]))
    return Examples(
        options.rows[kept], labels[kept], weights[kept], np.array([len(kept)], np.int64)
    )
