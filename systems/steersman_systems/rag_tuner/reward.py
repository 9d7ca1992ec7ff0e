"""Reward of a batch of evaluated queries, and its broken hard gates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.policy_config import PolicyConfig, Thresholds

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

CAP = 2.0
"""Cap of latency and cost, in units of their references."""
GATED = ("faithfulness", "relevancy")
_STABLE = 3
_COLUMNS = ("queries", "quality", "latency_ms", "cost", "failed", "violations", "unstable")
"""Per-query fields of a batch."""


@dataclass(frozen=True)
class Batch:
    """Results of some queries under one configuration.

    Args:
        configuration: Configuration of the evaluation.
        queries: (n,) query indexes in the data set, n ≥ 1.
        quality: (n, 2) in [0, 1], two measures per query; NaN: not defined. A failed query counts
            0 in both, whatever its values here.
        latency_ms: (n,) ≥ 0.
        cost: (n,) ≥ 0, in units of the reference cost of one query.
        failed: (n,) whether the answer is missing.
        violations: (n,) whether the answer has forbidden content.
        unstable: (n,) True if repeated answers differ; default: not checked.
        measures: Names of the two measures. Gates on faithfulness and relevancy apply to measures
            of these names only, not to proxies.

    Raises:
        InputError: Shapes do not match, no query, or a number is out of range.
    """

    configuration: Configuration
    queries: NDArray[np.intp]
    quality: Floats
    latency_ms: Floats
    cost: Floats
    failed: Flags
    violations: Flags
    unstable: Flags = field(default_factory=lambda: np.zeros(0, np.bool_), kw_only=True)
    measures: tuple[str, str] = GATED

    def __post_init__(self) -> None:
        count = len(self.queries)
        if not len(self.unstable):
            object.__setattr__(self, "unstable", np.zeros(count, np.bool_))
        columns = (self.latency_ms, self.cost, self.failed, self.violations, self.unstable)
        if not count or self.quality.shape != (count, 2):
            raise InputError(
                f"quality has shape {self.quality.shape} for {count} queries; allowed: (n, 2) "
                "with n of 1 or more"
            )
        if any(column.shape != (count,) for column in columns):
            shapes = ", ".join(str(column.shape) for column in columns)
            raise InputError(
                f"latency, cost, failed, violations, unstable are {shapes}; allowed ({count},)"
            )
        if not ((self.latency_ms >= 0).all() and (self.cost >= 0).all()):
            raise InputError("a latency or a cost is negative or NaN; allowed: 0 or more")
        if np.isinf(self.quality).any() or (self.quality < 0).any() or (self.quality > 1).any():
            raise InputError("a quality is outside [0, 1]; allowed: 0 to 1, or NaN for undefined")

    def __len__(self) -> int:
        return len(self.queries)

    def rows(self, places: NDArray[np.intp]) -> Batch:
        """Return the batch of some of its queries.

        Args:
            places: (m,) indexes in this batch, in the order of the result, m ≥ 1.
        """
        taken: dict[str, Any] = {name: getattr(self, name)[places] for name in _COLUMNS}
        return replace(self, **taken)

    @property
    def scored(self) -> Floats:
        """Quality, with 0 for failed queries, (n, 2)."""
        return np.where(self.failed[:, None], 0.0, self.quality)


@dataclass(frozen=True)
class Reward:
    """Reward of a batch, with its terms.

    Args:
        value: α·F + β·R − γ·L − δ·C − λ·P, of the whole batch.
        per_query: (n,) the same per query without the penalty; NaN where quality is undefined.
        spent: (n,) its part γ·L + δ·C.
        quality: Means of the two measures over the queries that have them; NaN if none has.
            latency: Mean of min(latency / its unit, 2).
        cost: Mean of min(cost, 2).
        penalty: P, in units of penalty.
        breaches: Names of the broken hard gates.
        coverage: Shares of the queries that have each measure.
    """

    value: float
    per_query: Floats = field(repr=False)
    spent: Floats = field(repr=False)
    quality: tuple[float, float]
    latency: float
    cost: float
    penalty: float
    breaches: tuple[str, ...]
    coverage: tuple[float, float]


def reward_of(batch: Batch, tuned: PolicyConfig, *, recent: Sequence[float] = ()) -> Reward:
    """Return the reward of a batch.

    Latency and cost are capped per query. So the reward is a mean over queries (minus the
    penalty), and two configurations on the same queries can be compared in pairs. The latency
    gate checks the 95th percentile.

    >>> import numpy as np
    >>> from steersman_systems.rag_tuner.configuration import Configuration
    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> none = np.zeros(2, bool)
    >>> batch = Batch(
    ...     Configuration(),
    ...     np.arange(2),
    ...     np.array([[0.8, 0.9], [0.9, 0.8]]),
    ...     np.array([100.0, 300.0]),
    ...     np.array([0.1, 0.1]),
    ...     none,
    ...     none,
    ... )
    >>> found = reward_of(batch, load_policy_config())
    >>> round(found.value, 3), found.breaches
    (0.75, ())

    Source: requirement 000, sections 3, 8 and 11, with the corrections of docs/adr/0019.
    """
    weights, scored = tuned.reward_weights, batch.scored
    latency = np.minimum(batch.latency_ms / tuned.thresholds.latency_unit_ms, CAP)
    cost = np.minimum(batch.cost, CAP)
    spent = weights.gamma * latency + weights.delta * cost
    per_query = scored @ np.array([weights.alpha, weights.beta]) - spent
    means = _means(scored)
    breached = _breached(batch, means, tuned.thresholds)
    penalty = _penalty(batch, breached, tuned, [*recent, sum(means) / 2])
    quality = weights.alpha * means[0] + weights.beta * means[1]
    covered = (~np.isnan(scored)).mean(axis=0)
    return Reward(
        value=float(quality - spent.mean() - weights.penalty * penalty),
        per_query=per_query,
        spent=spent,
        quality=means,
        latency=float(latency.mean()),
        cost=float(cost.mean()),
        penalty=penalty,
        breaches=breached,
        coverage=(float(covered[0]), float(covered[1])),
    )


def reward_range(tuned: PolicyConfig) -> tuple[float, float]:
    """Return the range of a query's reward, without the penalty.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> reward_range(load_policy_config())
    (-0.8, 1.0)
    """
    weights = tuned.reward_weights
    return -CAP * (weights.gamma + weights.delta), weights.alpha + weights.beta


def breaches(batch: Batch, thresholds: Thresholds) -> tuple[str, ...]:
    """Return the names of the hard gates that a batch breaks.

    In batches where one failure already exceeds the allowed rate, two failures are required.
    """
    return _breached(batch, _means(batch.scored), thresholds)


def _breached(batch: Batch, means: tuple[float, float], thresholds: Thresholds) -> tuple[str, ...]:
    found = [
        name
        for name, mean in zip(batch.measures, means, strict=True)
        if name in GATED and not mean >= getattr(thresholds, name)
    ]
    if _p95_is_above(batch.latency_ms, thresholds.p95_latency_ms):
        found.append("p95_latency_ms")
    # A small batch can have one failure by chance: at a rate of .3 % a tenth of all batches of 32
    # have one.
    few = len(batch) * thresholds.error_rate < 1 and batch.failed.sum() < 2
    if batch.failed.mean() >= thresholds.error_rate and not few:
        found.append("error_rate")
    return tuple(found)


def pooled(batches: Sequence[Batch]) -> Batch:
    """Return several batches of one configuration as one."""
    together: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in batches]) for name in _COLUMNS
    }
    return replace(batches[0], **together)


def mean_of_defined(values: Floats) -> float:
    """Return the mean without NaN; NaN if all values are NaN.

    >>> mean_of_defined(np.array([1.0, np.nan]))
    1.0
    """
    defined = values[~np.isnan(values)]
    return float(defined.sum() / len(defined)) if len(defined) else nan


def _means(scored: Floats) -> tuple[float, float]:
    return mean_of_defined(scored[:, 0]), mean_of_defined(scored[:, 1])


def _p95_is_above(values: Floats, most: float) -> bool:
    """Return whether the 95th percentile is above; counts first, because that is faster."""
    at, above = int(0.95 * (len(values) - 1)), np.count_nonzero(values > most)
    if above != len(values) - at - 1:
        return bool(above >= len(values) - at)
    # The percentile lies between a value above and one below. numpy cannot interpolate infinity.
    return float(np.quantile(np.minimum(values, np.finfo(np.float64).max), 0.95)) > most


def _band(batch: Batch, tuned: PolicyConfig) -> float:
    """Return the allowed standard deviation of means: the band plus the sampling error."""
    each = batch.scored.mean(axis=1)
    known = each[~np.isnan(each)]
    drawn = float(known.var(ddof=1)) / len(known) if len(known) > 1 else np.inf
    return float(np.sqrt(tuned.penalties.instability_band**2 + drawn))


def _penalty(
    batch: Batch, breached: tuple[str, ...], tuned: PolicyConfig, recent: list[float]
) -> float:
    penalties = tuned.penalties
    recent = [one for one in recent if not np.isnan(one)]
    shaken = len(recent) >= _STABLE and float(np.std(recent, ddof=1)) > _band(batch, tuned)
    return (
        penalties.breach * bool(breached)
        + penalties.violation * bool(batch.violations.any())
        + penalties.instability * (shaken or bool(batch.unstable.any()))
    )
