"""Best configuration by reward weights; the weights matter more than the tuning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.errors import InputError
from steersman_systems.rag_tuner.answerable import LEAST
from steersman_systems.rag_tuner.logged import EvaluationLog
from steersman_systems.rag_tuner.reward import breaches, reward_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig

    Floats = NDArray[np.float64]

SPENDING = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Default weights of latency and of cost."""
_BLOCK = 100
"""Number of configurations per remote job: a single one takes less time than its transfer."""


@dataclass(frozen=True)
class SweepResult:
    """The best configuration under some weights.

    Args:
        gamma: Weight of latency.
        delta: Weight of cost.
        best: Best configuration that holds every gate; ``None``: none does.
        reward: Mean reward, without penalties.
        quality: Means of the two measures.
        latency_ms: Mean latency in milliseconds.
        cost: Mean cost, in units of the reference cost.
        ahead: Reward minus that of the baseline.
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
    recorded: World,
    tuned: PolicyConfig,
    queries: NDArray[np.intp],
    baseline: Configuration,
    *,
    gammas: Sequence[float] = SPENDING,
    deltas: Sequence[float] = SPENDING,
    address: str | None = None,
) -> list[SweepResult]:
    """Return the best configuration under each pair of weights, on the same queries.

    The best is chosen and measured on the same queries, so its reward is slightly optimistic. Use
    it to choose weights, not to evaluate a configuration.

    Args:
        queries: (n,) query indexes, n ≥ 1.
        gammas: Weights of latency, ≥ 0.
        deltas: Weights of cost, ≥ 0.
        address: Address of a Ray cluster, as for `spread`; None: local evaluation.

    Raises:
        InputError: A weight is negative, an evaluation is not recorded, or a log has none.
        ClusterError: The cluster does not respond, or gave up.
    """
    wrong = [weight for weight in (*gammas, *deltas) if not 0 <= weight <= 100]
    if wrong:
        raise InputError(f"weights {wrong}; allowed: 0 to 100")
    measured = _everything(recorded, tuned, queries, baseline, address)
    held = np.array([one.held for one in measured[:-1]])
    weights = tuned.reward_weights
    quality = np.array(
        [weights.alpha * one.quality[0] + weights.beta * one.quality[1] for one in measured]
    )
    latency, cost = np.array([one.spent for one in measured]).T
    values = {
        (gamma, delta): quality - gamma * latency - delta * cost
        for gamma in gammas
        for delta in deltas
    }
    found = []
    for (gamma, delta), of in values.items():
        fits = held & np.isfinite(of[:-1])
        best = int(np.where(fits, of[:-1], -np.inf).argmax())
        one = measured[best]
        found.append(_swept(gamma, delta, of, best, one) if fits.any() else _none(gamma, delta))
    return found


class _Measured(NamedTuple):
    """Results of a configuration."""

    configuration: Configuration
    held: bool
    quality: tuple[float, float]
    spent: tuple[float, float]
    latency_ms: float
    cost: float


def _everything(
    recorded: World, tuned: PolicyConfig, queries: NDArray[np.intp], baseline: Configuration,
    address: str | None,
) -> list[_Measured]:  # fmt: skip
    # Imports the store; most tuning runs do not need it.
    from steersman.training.parallel_map import spread  # noqa: PLC0415

    every = [*tuned.space.all, baseline]
    if isinstance(recorded, EvaluationLog):
        every = [one for one in every if len(recorded.seen(one, queries)) >= LEAST]
        if baseline not in every or len(every) < 2:
            raise InputError(
                f"the log has {len(every)} configurations on at least {LEAST} of these "
                f"{len(queries)} queries; expected the baseline {baseline} and another one; choose "
                "another --baseline, or evaluate more"
            )
    blocks = [every[first : first + _BLOCK] for first in range(0, len(every), _BLOCK)]
    measure = partial(_measured, recorded, tuned, queries)
    return list(chain.from_iterable(spread(measure, blocks, address=address)))


def _measured(
    recorded: World, tuned: PolicyConfig, queries: NDArray[np.intp],
    configurations: Sequence[Configuration],
) -> list[_Measured]:  # fmt: skip
    found = []
    for one in configurations:
        batch = recorded.evaluate(one, recorded.seen(one, queries))
        reward, held = reward_of(batch, tuned), not breaches(batch, tuned.thresholds)
        spent = (reward.latency, reward.cost)
        times, costs = float(batch.latency_ms.mean()), float(batch.cost.mean())
        found.append(_Measured(one, held, reward.quality, spent, times, costs))
    return found


def _swept(gamma: float, delta: float, values: Floats, best: int, one: _Measured) -> SweepResult:
    return SweepResult(
        gamma=gamma,
        delta=delta,
        best=one.configuration,
        reward=float(values[best]),
        quality=one.quality,
        latency_ms=one.latency_ms,
        cost=one.cost,
        ahead=float(values[best] - values[-1]),
    )


def _none(gamma: float, delta: float) -> SweepResult:
    return SweepResult(gamma, delta, None, nan, (nan, nan), nan, nan, nan)
