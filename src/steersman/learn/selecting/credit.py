"""Which part of what came back for a selection belongs to which of its actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.learn.selecting.examples import Examples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.learn.selecting.task import Options, Walk

    Floats = NDArray[np.float64]
    Credits = dict[str, dict[str, float]]
    Logged = dict[str, list[tuple[frozenset[str], float]]]


def keep(log: Sequence[Walk]) -> tuple[float, dict[str, Walk]]:
    """Return the mean reward of each question's best selection, and these; the first of equals.

    Args:
        log: selections; those of one question next to each other.

    Returns:
        The mean of the best, and the best by their questions.

    No doctest: it needs selections; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    kept: dict[str, Walk] = {}
    for one in log:
        if one.task not in kept or one.reward > kept[one.task].reward:
            kept[one.task] = one
    return float(np.mean([one.reward for one in kept.values()])), kept


def credit_actions(
    of_one: Sequence[tuple[frozenset[str], float]], *, doubt: float = 4.0
) -> dict[str, float]:
    """Return the total effect of each action on the reward of one question's selections.

    The mean reward of the selections that took the action, less that of those that did not, times
    n/(n + doubt) for the n that took it. Selections are drawn by chance, so on average nothing but
    the action differs between the two. The effect is the total one: a passage without an answer
    that leads to the one with it has its part in what came of that. (Explaining rewards by all
    actions together would give everything to the last of them, which alone "has" the answer.)

    Assumes that every selection was drawn by one and the same policy. Across policies, or where an
    action is tried by the better half of them alone, differences are not effects.

    Args:
        of_one: the actions of each selection, and its reward.
        doubt: ≥ 0; selections' worth of doubt in an effect that few selections show.

    Returns:
        Action -> credit, for those with a positive one; none where all rewards are alike.

    >>> log = [
    ...     (frozenset("ab"), 1.0),
    ...     (frozenset("a"), 1.0),
    ...     (frozenset("b"), 0.0),
    ...     (frozenset("c"), 0.0),
    ... ]
    >>> credit_actions(log, doubt=0.0)
    {'a': 1.0}

    Source: the difference of means in a randomised experiment, Neyman (1923); that controlling for
    what lies between hides an effect: Pearl, Causality (2009), section 4.5.
    """
    rewards = np.array([reward for _, reward in of_one])
    if not len(rewards) or np.ptp(rewards) < 1e-12:
        return {}
    names = sorted(set().union(*(actions for actions, _ in of_one)))
    taken = np.array([[name in actions for name in names] for actions, _ in of_one], np.float64)
    having = taken.sum(axis=0)
    lacking = len(rewards) - having
    with_it = taken.T @ rewards / having
    without = (1.0 - taken).T @ rewards / np.maximum(lacking, 1.0)
    effect = np.where(lacking > 0, with_it - without, 0.0) * having / (having + doubt)
    return {
        name: float(one) for name, one in zip(names, effect.tolist(), strict=True) if one > 1e-9
    }


@dataclass(frozen=True, slots=True)
class Credited:
    """An expert that knows what earned credit, and nothing else.

    Args:
        right: credit by action.
    """

    right: Mapping[str, float]

    def labels(self, task: object, state: object, options: Options) -> Floats:
        """Return (k,) the credit of each action, at most 1.

        Args:
            task: whose state it is.
            state: where one stands.
            options: its actions.
        """
        found = np.array([min(self.right.get(name, 0.0), 1.0) for name in options.names])
        found[options.candidates :] = 0.0  # when to stop or expand is no matter of the name
        return found


def credited(before: Credits, log: Sequence[Walk]) -> Credits:
    """Return the credits after one more log: of what was tried again, the later ones hold.

    Each log is looked at by itself, since the selections of another policy are no fair comparison.
    What all of its selections took, or none, was not tried by it.

    Args:
        before: credits by question and action.
        log: selections of one policy.

    No doctest: it needs selections; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    found = {name: dict(of_one) for name, of_one in before.items()}
    for name, of_one in by_task(log).items():
        taken = [actions for actions, _ in of_one]
        tried = frozenset().union(*taken) - frozenset.intersection(*taken)
        kept = {action: one for action, one in found.get(name, {}).items() if action not in tried}
        found[name] = kept | credit_actions(of_one)
    return found


def by_task(log: Sequence[Walk]) -> Logged:
    """Return the actions and the reward of each selection, by question.

    Args:
        log: selections.

    No doctest: it needs selections; ``tests/learn/selecting/test_raft.py`` shows it.
    """
    found: Logged = {}
    for one in log:
        actions = frozenset(taken.step.action for taken in one.taken)
        found.setdefault(one.task, []).append((actions, one.reward))
    return found


def above(one: Walk, mean: float, *, only: Sequence[str] = ()) -> list[Examples]:
    """Return the steps of a kept selection, or some of them, by how far it was above the mean.

    Args:
        one: the selection.
        mean: of its question's rewards.
        only: actions whose steps are wanted; () for all.

    No doctest: it needs a selection; ``tests/learn/selecting/test_raft.py`` shows it.
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
