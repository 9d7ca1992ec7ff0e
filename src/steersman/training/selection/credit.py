"""Credit assignment within a selection: which actions caused the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.policies.sequence import EXPAND, STOP
from steersman.training.selection.examples import Examples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.training.selection.task import Options, Walk

    Floats = NDArray[np.float64]
    Credits = dict[str, dict[str, float]]
    Logged = dict[str, list[tuple[frozenset[str], float]]]
    Passing = Callable[[Sequence[Any], Credits], Credits]
    """Maps questions and their causes to the probability that each action is correct."""


def keep(log: Sequence[Walk]) -> tuple[float, dict[str, Walk]]:
    """Return the best selection of each question, and their mean reward; ties go to the first."""
    kept: dict[str, Walk] = {}
    for one in log:
        if one.task not in kept or one.reward > kept[one.task].reward:
            kept[one.task] = one
    return float(np.mean([one.reward for one in kept.values()])), kept


def causes(
    of_one: Sequence[tuple[frozenset[str], float]], *, doubt: float = 1.0, turns: int = 100
) -> dict[str, float]:
    """Return the probability that each action alone causes the reward, for one question.

    The model is a noisy or: a selection earns 1 − Π (1 − θ_a) on average. A failed selection clears
    all its actions. In a successful one, the actions that are not cleared elsewhere share the
    credit. The model is conditional on the actions, so it needs no propensities and accepts mixed
    policies.

    Args:
        doubt: prior weight in selections, ≥ 0.
        turns: number of expectation-maximisation steps, ≥ 1.

    Returns:
        θ in [0, 1] for each action that any selection took.

    >>> log = [
    ...     (frozenset("ab"), 1.0),
    ...     (frozenset("ac"), 1.0),
    ...     (frozenset("bc"), 0.0),
    ... ]
    >>> causes(log, doubt=0.0)
    {'a': 1.0, 'b': 0.0, 'c': 0.0}

    Source: noisy or: Pearl, Probabilistic Reasoning in Intelligent Systems (1988), section 4.3;
    its fit: Dempster, Laird & Rubin, Maximum Likelihood from Incomplete Data (1977).
    """
    names = sorted(set().union(*(actions for actions, _ in of_one)))
    if not names:
        return {}
    rewards = np.array([reward for _, reward in of_one])
    taken = np.array([[name in actions for name in names] for actions, _ in of_one], np.float64)
    having = taken.sum(axis=0) + doubt
    chances = np.full(len(names), 0.5)
    for _ in range(turns):
        none = np.exp(taken @ np.log1p(-np.minimum(chances, 1.0 - 1e-12)))
        chances = chances * ((rewards / np.maximum(1.0 - none, 1e-12)) @ taken) / having
    return dict(zip(names, np.round(np.clip(chances, 0.0, 1.0), 12).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Credited:
    """Expert that knows only credited actions.

    Args:
        right: probability that each action is correct.
    """

    right: Mapping[str, float]

    def labels(self, task: object, state: object, options: Options) -> Floats:
        """Return (k,) probability that each candidate is correct, at most 1."""
        found = np.array([min(self.right.get(name, 0.0), 1.0) for name in options.names])
        found[options.candidates :] = 0.0  # stop and expand are not identified by name
        return found


def by_task(log: Sequence[Walk]) -> Logged:
    """Return the candidates and reward of each selection, by question.

    Stop and expand actions contain no answer, so they get no credit.
    """
    found: Logged = {}
    for one in log:
        actions = frozenset(taken.step.action for taken in one.taken) - {STOP, EXPAND}
        found.setdefault(one.task, []).append((actions, one.reward))
    return found


def above(one: Walk, mean: float, *, only: Sequence[str] = ()) -> list[Examples]:
    """Return selected steps of a kept selection, weighted by its reward above the mean."""
    weight = one.reward - mean
    steps = []
    for taken in one.taken if weight > 1e-12 else ():
        if only and taken.step.action not in only:
            continue
        targets = np.zeros(len(taken.rows))
        targets[taken.chosen] = 1.0
        steps.append(Examples.step(taken.rows, targets, weight))
    return steps
