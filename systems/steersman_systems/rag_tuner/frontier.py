"""Pareto frontier of quality, latency and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.rag_tuner.question_means import mean_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FrontierPoint:
    """Quality, latency and cost of a configuration.

    Args:
        configuration: The configuration.
        quality: Mean of α·F + β·R over α + β, in [0, 1]; queries without a measure are left out.
        low: Lower end of the 95 % interval of `quality` (`mean_over` queries).
        high: Upper end.
        latency_ms: Mean latency in milliseconds.
        p95_ms: 95th percentile of latency in milliseconds.
        cost: Mean, in units of the reference cost.
        best: Whether it is on the Pareto frontier.
    """

    configuration: Configuration
    quality: float
    low: float
    high: float
    latency_ms: float
    p95_ms: float
    cost: float
    best: bool = False


def places(batches: Sequence[Batch], tuned: PolicyConfig) -> list[FrontierPoint]:
    """Return the places of configurations, with the Pareto frontier marked."""
    weights = tuned.reward_weights
    total = weights.alpha + weights.beta or 1.0
    shares = np.array([weights.alpha, weights.beta]) / total
    found = [_place(batch, shares) for batch in batches]
    marks = undominated(
        np.array([[-one.quality, one.latency_ms, one.cost] for one in found]).reshape(-1, 3)
    )
    return [
        FrontierPoint(one.configuration, one.quality, one.low, one.high, one.latency_ms, one.p95_ms,
              one.cost, bool(mark))
        for one, mark in zip(found, marks, strict=True)
    ]  # fmt: skip


def rising(found: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Return the places with more quality than all places of equal or lower cost."""
    line: list[FrontierPoint] = []
    known = [one for one in found if not np.isnan(one.quality)]
    for one in sorted(known, key=lambda one: (one.cost, -one.quality, one.latency_ms)):
        if not line or one.quality > line[-1].quality:
            line.append(one)
    return line


def undominated(losses: Floats) -> NDArray[np.bool_]:
    """Return which rows no other row beats: at most as much everywhere, and less somewhere.

    Returns:
        (n,) bool; equal rows have equal values.

    >>> undominated(np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0]])).tolist()
    [True, True, False]
    """
    known = np.where(np.isnan(losses), np.inf, losses)
    found = np.ones(len(known), bool)
    for row, loss in enumerate(known):
        others = known[found | (np.arange(len(known)) > row)]
        found[row] = not ((others <= loss).all(axis=1) & (others < loss).any(axis=1)).any()
    return found


def _place(batch: Batch, shares: Floats) -> FrontierPoint:
    quality = batch.scored @ shares
    known = quality[~np.isnan(quality)]
    mean = low = high = np.nan
    if len(known):
        mean, low, high, *_ = mean_over(known, within=(0.0, 1.0))
    return FrontierPoint(
        configuration=batch.configuration,
        quality=mean,
        low=low,
        high=high,
        latency_ms=float(batch.latency_ms.mean()),
        p95_ms=float(np.quantile(batch.latency_ms, 0.95)),
        cost=float(batch.cost.mean()),
    )
