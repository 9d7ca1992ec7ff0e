"""Linear clone of an expert: a weighted sum of features, with numpy and scipy only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from steersman.errors import InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman_systems.evidence_selection.training.behaviour_cloning import visit
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.task import turn_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.training.task import Expert, Task

    Floats = NDArray[np.float64]

_OTHERS = 40


def linear_clone(
    tasks: Sequence[Task], expert: Expert, *, rounds: int = 2, ridge: float = 1.0, seed: int = 0
) -> NetworkScorer:
    """Return feature weights whose softmax over a step's actions imitates an expert.

    Trees are better, but need the extra ``evidence``.

    Args:
        rounds: rounds of visiting states and training, ≥ 1; the first visits the expert's states.
        ridge: L2 penalty of the weights, > 0.

    Raises:
        InputError: no step has a correct action, or an argument is out of range.

    Source: Ross, Gordon & Bagnell, A Reduction of Imitation Learning and Structured Prediction to
    No-Regret Online Learning (2011), algorithm 3.1 (DAgger). The loss is −ln of the total
    probability of a step's correct actions, so any of them may be chosen.
    """
    if rounds < 1 or not ridge > 0:
        raise InputError(f"rounds is {rounds!r} and ridge {ridge!r}; allowed: ≥ 1 and > 0")
    scorer: NetworkScorer | None = None
    seen: list[Examples] = []
    for turn in range(rounds):
        for task in tasks:
            seen += visit(task, expert, scorer, _OTHERS, rng=turn_stream(seed, turn, task.id))
        if not seen:
            raise InputError(
                f"{len(tasks)} questions have no step to learn from; use other questions"
            )
        scorer = _fitted(Examples.joined(seen), ridge)
    if scorer is None:
        raise InputError("no round was trained; use rounds of 1 or more")
    return scorer


def _fitted(examples: Examples, ridge: float) -> NetworkScorer:
    mean, scale = examples.rows.mean(axis=0), np.maximum(examples.rows.std(axis=0), 1e-9)
    rows = (examples.rows - mean) / scale
    starts = np.concatenate([[0], np.cumsum(examples.sizes)[:-1]])
    step = np.repeat(np.arange(len(examples)), examples.sizes)
    offset = np.log(np.maximum(examples.weights, 1e-12))
    right = examples.targets >= 0.5 * np.maximum.reduceat(examples.targets, starts)[step]
    right &= examples.targets > 0

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores = rows @ weights + offset
        every, whole = _softmax(scores, np.ones(len(rows), np.bool_), starts, step)
        own, best = _softmax(scores, right, starts, step)
        value = float((whole - best).sum()) + 0.5 * ridge * float(weights @ weights)
        return value, rows.T @ (every - own) + ridge * weights

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B")
    layer = (np.asarray(found.x, np.float64)[None], np.zeros(1))
    return NetworkScorer(mean, scale, [layer])


def _softmax(
    scores: Floats, among: NDArray[np.bool_], starts: NDArray[np.int64], step: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the softmax within each step, and each step's ln Σ exp."""
    held = np.where(among, scores, -np.inf)
    top = np.maximum.reduceat(held, starts)
    mass = np.where(among, np.exp(held - top[step]), 0.0)
    whole = np.add.reduceat(mass, starts)
    return mass / whole[step], top + np.log(whole)
