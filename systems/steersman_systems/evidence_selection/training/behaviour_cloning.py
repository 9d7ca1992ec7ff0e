"""Behaviour cloning with DAgger: trains a scorer to imitate an expert.

A clone trained only on the expert's steps reaches states that have no labels. So it is trained
again on states that it visits itself, labelled by the expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import check_numbers
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.task import choose, turn_stream
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings, grow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman.policies.tree_scorer import TreeScorer
    from steersman_systems.evidence_selection.training.task import Expert, Options, Task

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CloneSettings:
    """Settings of behaviour cloning.

    Args:
        rounds: rounds of visiting states and training, ≥ 1; the first visits the expert's states.
        others: number of wrong actions kept per step, ≥ 2: those with the highest scores, plus half
            as many sampled from the rest, weighted to represent all of it.
        trees: settings of the trees.

    Raises:
        InputError: a value is out of range.
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
    """Return trees that imitate an expert.

    Raises:
        InputError: no step has both a correct and a wrong action.
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
    """Return the labelled steps of one walk through a task.

    Args:
        scorer: chooses the actions; None: the expert chooses, uniformly among correct actions.
    """
    state: Any = task.begin()
    found: list[Examples] = []
    while (options := task.options(state)) is not None:
        labels = expert.labels(task, state, options)
        if labels.any():  # without a correct action there is nothing to learn
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
    """Return a step with its hardest wrong actions and a weighted sample of the others.

    Without the sample, low ranks would appear with correct actions only and look correct.
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
