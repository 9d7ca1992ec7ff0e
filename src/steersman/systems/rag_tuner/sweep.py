"""What is best under which reward weights: they decide more than the tuning does."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.systems.rag_tuner.reward import breaches, reward_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.systems.rag_tuner.configuration import Configuration
    from steersman.systems.rag_tuner.policy_config import Tuned
    from steersman.systems.rag_tuner.recorded import Recorded
    from steersman.systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

SPENDING = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Weights of latency, and of cost, that are tried unless others are given."""


@dataclass(frozen=True)
class Swept:
    """The best configuration under some weights.

    Args:
        gamma: Weight of latency.
        delta: Weight of cost.
        best: The best of those that hold every gate; ``None``: none does.
        reward: Its mean, without penalties.
        quality: Its two mean measures.
        latency_ms: Its mean.
        cost: Its mean, in units of the reference cost.
        ahead: Its reward over the baseline's.
    """

    gamma: float
    delta: float
    best: Configuration | None
    reward: float
    quality: tuple[float, float]
    latency_ms: float
    cost: float
    ahead: float


def sweep(
    recorded: Recorded,
    tuned: Tuned,
    queries: NDArray[np.intp],
    baseline: Configuration,
    *,
    gammas: Sequence[float] = SPENDING,
    deltas: Sequence[float] = SPENDING,
) -> list[Swept]:
    """Return the best configuration under each pair of weights, on the same queries.

    The best is picked and measured on these queries, so its reward is a little too good: this is
    for choosing weights, not for judging a configuration.

    Args:
        recorded: Every configuration on every query.
        tuned: Bounds, gates and the other weights.
        queries: (n,) places, n ≥ 1.
        baseline: What serves, or a manual configuration.
        gammas: Weights of latency, ≥ 0.
        deltas: Weights of cost, ≥ 0.

    Returns:
        One for each pair, γ by γ.

    Raises:
        InputError: A weight is negative, or something was not recorded.

    No doctest: ``tests/systems/rag_tuner/test_sweep.py`` shows it.
    """
    wrong = [weight for weight in (*gammas, *deltas) if not 0 <= weight <= 100]
    if wrong:
        raise InputError(f"weights {wrong}; allowed is 0 to 100")
    batches = [recorded.evaluate(one, queries) for one in (*tuned.space.all, baseline)]
    held = np.array([not breaches(batch, tuned.thresholds) for batch in batches[:-1]])
    rewards = [reward_of(batch, tuned) for batch in batches]
    weights = tuned.reward_weights
    quality = np.array(
        [weights.alpha * one.quality[0] + weights.beta * one.quality[1] for one in rewards]
    )
    latency, cost = (
        np.array([getattr(one, name) for one in rewards]) for name in ("latency", "cost")
    )
    values = {
        (gamma, delta): quality - gamma * latency - delta * cost
        for gamma in gammas
        for delta in deltas
    }
    found = []
    for (gamma, delta), of in values.items():
        best = int(np.where(held, of[:-1], -np.inf).argmax())
        one = batches[best], rewards[best]
        found.append(_swept(gamma, delta, of, best, *one) if held.any() else _none(gamma, delta))
    return found


def _swept(
    gamma: float, delta: float, values: Floats, best: int, batch: Batch, reward: Reward
) -> Swept:
    return Swept(
        gamma=gamma,
        delta=delta,
        best=batch.configuration,
        reward=float(values[best]),
        quality=reward.quality,
        latency_ms=float(batch.latency_ms.mean()),
        cost=float(batch.cost.mean()),
        ahead=float(values[best] - values[-1]),
    )


def _none(gamma: float, delta: float) -> Swept:
    return Swept(gamma, delta, None, nan, (nan, nan), nan, nan, nan)
