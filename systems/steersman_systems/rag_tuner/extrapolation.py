"""Predictions for configurations that are not in a log; they are not evidence.

The model is that of the default strategy, fitted to the tuning questions. Its error on
configurations outside the fit is measured and reported. If it is not better than the mean of all
configurations, it gives no prediction. The best of many predictions is often too high; the error
does not include that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.rag_tuner.answerable import LEAST
from steersman_systems.rag_tuner.reward import mean_of_defined, reward_of
from steersman_systems.rag_tuner.strategies.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import EvaluationLog
    from steersman_systems.rag_tuner.policy_config import PolicyConfig

    Floats = NDArray[np.float64]

_FOLDS = 5


@dataclass(frozen=True)
class Prediction:
    """Prediction of a model for the configurations outside a log.

    Args:
        configuration: Best of them by the model; None: no prediction.
        chosen: Configuration chosen within the log.
        ahead: Predicted mean reward minus that of `chosen`, without penalties.
        error: Root mean square error on left-out configurations, against `chosen` on the same
            questions; it includes the sampling error of few questions.
        constant: The same error of the mean of all other configurations.
        left_out: Number of left-out configurations, each once.
    """

    configuration: Configuration | None
    chosen: Configuration
    ahead: float
    error: float
    constant: float
    left_out: int

    def __str__(self) -> str:
        missed = (
            f"on {self.left_out} configurations of the log that were left out of it, it missed by "
            f"{self.error:.4f} (root mean square; the mean of all: {self.constant:.4f})"
        )
        if self.configuration is None:
            return f"A model fitted to the log tells nothing of what the log lacks: {missed}."
        return (
            f"A model fitted to the log, and no evaluation, guesses {self.configuration} to be "
            f"worth {self.ahead:+.4f} against {self.chosen}; {missed}. The best of many guesses is "
            "mostly too high: evaluate it before you believe it."
        )


def guessed(
    world: EvaluationLog,
    tuned: PolicyConfig,
    queries: NDArray[np.intp],
    chosen: Configuration,
    *,
    seed: int = 0,
) -> Prediction | None:
    """Return the prediction of a model, fitted to a log, for configurations outside the log.

    Args:
        queries: (n,) indexes of the questions for the fit, ascending; without held-out ones.

    Returns:
        The prediction; None if the log has the whole space, or fewer than ten configurations
        with ten questions shared with `chosen`.
    """
    space, base = tuned.space, world.seen(chosen, queries)
    known = [one for one in space.all if len(world.seen(one, queries))]
    others = [one for one in known if len(world.seen(one, base)) >= LEAST and one != chosen]
    measured = {one: _seen_ahead(world, tuned, one, chosen, base) for one in others}
    shared = [one for one, of in measured.items() if not np.isnan(of)]
    absent = ~np.isin(np.arange(len(space.all)), [space.index[one] for one in known])
    if len(shared) < LEAST or not absent.any():
        return None
    fold = np.random.default_rng([seed, 17]).permutation(len(shared)) % _FOLDS
    seen = np.array([measured[one] for one in shared])
    at, place = space.index[chosen], np.array([space.index[one] for one in shared])
    by_model, by_mean = np.zeros(len(shared)), np.zeros(len(shared))
    for number in range(_FOLDS):
        out = {one for one, of in zip(shared, fold, strict=True) if of == number}
        mean = _fitted(world, tuned, [one for one in known if one not in out], queries)
        rows = fold == number
        by_model[rows] = mean[place[rows]] - mean[at]
        by_mean[rows] = seen[~rows].mean()
    error, constant = (float(np.sqrt(np.mean((seen - one) ** 2))) for one in (by_model, by_mean))
    mean = _fitted(world, tuned, known, queries)
    best = int(np.where(absent, mean, -np.inf).argmax())
    tells = error < constant
    return Prediction(
        space.all[best] if tells else None,
        chosen,
        float(mean[best] - mean[at]),
        error,
        constant,
        len(shared),
    )


def _seen_ahead(
    world: EvaluationLog,
    tuned: PolicyConfig,
    one: Configuration,
    other: Configuration,
    base: NDArray[np.intp],
) -> float:
    both = world.seen(one, base)
    mine, theirs = (reward_of(world.evaluate(it, both), tuned).per_query for it in (one, other))
    return mean_of_defined(mine - theirs)


def _fitted(
    world: EvaluationLog,
    tuned: PolicyConfig,
    known: Sequence[Configuration],
    queries: NDArray[np.intp],
) -> Floats:
    """Return the predictions for every configuration of the space."""
    belief = Belief(tuned, len(world))
    for one in known:
        batch = world.evaluate(one, world.seen(one, queries))
        belief.learn(batch, replace(reward_of(batch, tuned), penalty=0.0))
    return belief.mean()
