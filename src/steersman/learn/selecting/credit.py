"""Which part of what came back for a selection belongs to which of its actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.learn.selecting.examples import Examples
from steersman.policies.sequence import EXPAND, STOP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.learn.selecting.task import Options, Walk

    Floats = NDArray[np.float64]
    Credits = dict[str, dict[str, float]]
    Logged = dict[str, list[tuple[frozenset[str], float]]]
    Passing = Callable[[Sequence[Any], Credits], Credits]
    """Says how surely each action is right, from questions and what alone brings their reward."""


def keep(log: Sequence[Walk]) -> tuple[float, dict[str, Walk]]:
    """Return the mean reward of each question's best selection, and these; the first of equals.

    Args:
        log: selections; those of one question next to each other.

    Returns:
        The mean of the best, and the best by their questions.
    """
    kept: dict[str, Walk] = {}
    for one in log:
        if one.task not in kept or one.reward > kept[one.task].reward:
            kept[one.task] = one
    return float(np.mean([one.reward for one in kept.values()])), kept


def causes(
    of_one: Sequence[tuple[frozenset[str], float]], *, doubt: float = 1.0, turns: int = 100
) -> dict[str, float]:
    """Return how surely each action alone brings the reward, from one question's selections.

    A selection earns what any of its actions brings: 1 − Π (1 − θ_a) on average, a noisy or. One
    that came out wrong clears all that it took; of one that came out right, what is not cleared
    elsewhere shares what it explains. What is fitted is a reward given what was taken, so no
    propensity is needed, and selections of several policies may stand in one log.

    Args:
        of_one: the actions of each selection, and its reward.
        doubt: ≥ 0; selections' worth of doubt in what few selections show.
        turns: of expectation and maximisation, ≥ 1.

    Returns:
        Action -> θ in [0, 1], for all that any selection took.

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
    """An expert that knows what earned credit, and nothing else.

    Args:
        right: how surely each action is right.
    """

    right: Mapping[str, float]

    def labels(self, task: object, state: object, options: Options) -> Floats:
        """Return (k,) how surely each candidate is right, at most 1.

        Args:
            task: whose state it is.
            state: where one stands.
            options: its actions.
        """
        found = np.array([min(self.right.get(name, 0.0), 1.0) for name in options.names])
        found[options.candidates :] = 0.0  # when to stop or expand is no matter of the name
        return found


def by_task(log: Sequence[Walk]) -> Logged:
    """Return the candidates and the reward of each selection, by question.

    To stop and to expand holds no answer, and must not share what a candidate brought.

    Args:
        log: selections.
    """
    found: Logged = {}
    for one in log:
        actions = frozenset(taken.step.action for taken in one.taken) - {STOP, EXPAND}
        found.setdefault(one.task, []).append((actions, one.reward))
    return found


def above(one: Walk, mean: float, *, only: Sequence[str] = ()) -> list[Examples]:
    """Return the steps of a kept selection, or some of them, by how far it was above the mean.

    Args:
        one: the selection.
        mean: of its question's rewards.
        only: actions whose steps are wanted; () for all.
    """
    weight = one.reward - mean
    steps = []
    for taken in one.taken if weight > 1e-12 else ():
        if only and taken.step.action not in only:
            continue
        targets = np.zeros(len(taken.rows))
        targets[taken.chosen] = 1.0
        steps.append(Examples.step(taken.rows, targets, weight))
    return steps
