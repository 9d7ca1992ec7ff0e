"""Off-policy comparison of two target policies on the same log, with a paired interval.

Both values are estimated on the same rows, so their errors largely cancel. The interval is computed
from the differences per row, and is far narrower than a comparison of two separate intervals.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.ope import ESTIMATORS, Log, LoggedData, evaluate
from steersman.ope.arguments import check_log_and_seed
from steersman.ope.estimators import levelled
from steersman.ope.intervals import left_open_between, widened
from steersman.stats import Interval, all_alike_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.ope import Report, Rounds

    Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # share of the reward range: smaller differences are rounding errors


@dataclass(frozen=True)
class OffPolicyDelta:
    """Off-policy difference of two policies' values.

    Args:
        estimator: ``"dr"`` or ``"snips"``.
        level: confidence level of the interval.
        rows: number of decisions with a reward.
        ess: effective sample sizes of both policies.
        values: estimated mean rewards of both; None if refused.
        delta: second minus first; None if refused, like the next three.
        low: lower end of the interval of ``delta``.
        high: upper end.
        standard_error: standard error of ``delta``.
        reasons: reasons for the refusal; empty if not refused.
    """

    estimator: str
    level: float
    rows: int
    ess: tuple[float, float]
    values: tuple[float, float] | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    reasons: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the estimate was refused."""
        return bool(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON values."""
        return {**asdict(self), "refused": self.refused}


@dataclass(frozen=True, eq=False)
class _Difference:
    """Estimate of the second policy minus the first, on the same rounds."""

    first: Rounds
    second: Rounds

    @property
    def value(self) -> float:
        return self.second.value - self.first.value

    def residuals(self) -> Floats:
        return self.second.residuals() - self.first.residuals()

    def scaled(self, factors: Floats) -> _Difference:
        return _Difference(self.first.scaled(factors), self.second.scaled(factors))

    def noisier(self, residuals: Floats) -> _Difference:
        return replace(self, second=self.second.noisier(residuals))


def off_policy_delta(
    first: LoggedData,
    second: LoggedData,
    *,
    estimator: str = "dr",
    adaptive: bool = True,
    level: float = 0.95,
    seed: int = 0,
) -> OffPolicyDelta:
    """Return the off-policy difference in mean reward, second policy minus first.

    Same assumptions as `steersman.ope.evaluate`: exact propensities, positivity, and independent
    rows (units, or rounds given the past). It refuses if the estimate of either policy is refused.
    If all rewards of an action with different probabilities are equal, the interval is widened to
    what that number of units allows.

    Args:
        first: log with the first policy's distributions as target.
        second: the same log with the second policy's distributions.
        estimator: name in ``steersman.ope.ESTIMATORS``, except ``dm``; default ``dr``.
        adaptive: whether the logging policy learned from these rewards.
        level: confidence level, in (0, 1); default 0.95.
        seed: random seed of the folds.

    Returns:
        The difference with its interval, or the reasons for the refusal.

    Raises:
        InputError: the logs have different rows, or the estimator is unknown.

    >>> rng = np.random.default_rng(0)
    >>> actions = rng.integers(0, 2, 4000)
    >>> rewards = (rng.random(4000) < np.array([0.3, 0.6])[actions]).astype(float)
    >>> logs = [
    ...     LoggedData(actions, rewards, np.full(4000, 0.5), np.tile(target, (4000, 1)))
    ...     for target in ([0.5, 0.5], [0.2, 0.8])
    ... ]
    >>> found = off_policy_delta(*logs)
    >>> round(found.delta, 3), round(found.low, 3), round(found.high, 3)
    (0.094, 0.085, 0.102)

    Source:
        Paired differences of estimates: Thomas, Theocharous, Ghavamzadeh (2015), "High confidence
        policy improvement", section 4, here with the linearised errors of
        ``steersman.ope.Rounds``. Coverage: ``tests/registry/test_paired.py``.
    """
    _check(first, second, estimator)
    reports = [
        evaluate(data, estimators=(estimator,), level=level, adaptive=adaptive, seed=seed)
        for data in (first, second)
    ]
    ess = reports[0].ess, reports[1].ess
    if reasons := _reasons(reports):
        return OffPolicyDelta(estimator, level, len(first), ess, reasons=reasons)
    method = ESTIMATORS[estimator]
    logs = [Log(data, adaptive=adaptive, seed=seed, levels=False) for data in (first, second)]
    difference = _Difference(*(method.rounds(log) for log in logs))
    if adaptive:
        # With separate factors, one policy would be judged more by the morning and the other
        # more by the afternoon: the better one may look worse where rewards moved in between.
        factors = np.minimum(*(log.stabilisers for log in logs))
        difference = levelled(difference, factors / factors.mean(), first.units)
    error = _paired_error(difference.residuals(), first.units)
    delta = difference.value
    half = _quantile(first.units, level) * error
    low, high = _no_narrower(Interval(delta - half, delta + half), first, second, level)
    return OffPolicyDelta(
        estimator=estimator,
        level=level,
        rows=len(first),
        ess=ess,
        values=(difference.first.value, difference.second.value),
        delta=delta,
        low=low,
        high=high,
        standard_error=error,
    )


def _check(first: LoggedData, second: LoggedData, estimator: str) -> None:
    for data in (first, second):
        check_log_and_seed(data, 0)
    rows = ("actions", "rewards", "propensities", "arms")
    alike = all(np.array_equal(getattr(first, name), getattr(second, name)) for name in rows)
    ours, theirs = first.units, second.units
    same = ours is theirs if ours is None or theirs is None else np.array_equal(ours, theirs)
    if not (alike and same):
        raise InputError("the two logs differ; pass the same rows with two targets")
    allowed = [name for name in ESTIMATORS if name != "dm"]  # its only noise is that of the model
    named: object = estimator
    if not isinstance(named, str) or named not in allowed:
        message = f"unknown estimator {brief(estimator)}; allowed: {', '.join(allowed)}"
        raise InputError(message)


def _reasons(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return the refusal reasons of both policies, with the policy named."""
    return tuple(
        f"{name} snapshot: {reason}"
        for name, report in zip(("first", "second"), reports, strict=True)
        for reason in report.reasons
    )


def _paired_error(residuals: Floats, units: NDArray[np.int64] | None) -> float:
    totals = residuals if units is None else np.bincount(units, weights=residuals)
    count = len(totals)
    if count < 2:
        return math.inf
    return float(np.linalg.norm(totals)) * math.sqrt(count / (count - 1)) / len(residuals)


def _no_narrower(ends: Interval, first: LoggedData, second: LoggedData, level: float) -> Interval:
    """Return the interval, widened to what equal rewards leave open.

    The difference is m (E₊ - E₋): mean reward of the actions that the second policy takes more
    often, minus that of the actions it takes less often, times the moved mass m. If neither side
    shows any noise (all rewards equal), each may still be off by what that number of units allows.
    If only some actions show none, that is added to the noise of the others.
    """
    moved = second.weights - first.weights
    if not moved.any():
        return ends
    mass = max(float(moved.clip(0.0).mean()), float((-moved).clip(0.0).mean()))
    more, less = (_alike(first, np.maximum(sign * moved, 0.0), level) for sign in (1.0, -1.0))
    if more is None or less is None:
        opened = left_open_between(first, second, Log(first).reward_range, level)
        return widened(ends, (ends.low + ends.high) / 2.0, opened)
    low, high = mass * (more.low - less.high), mass * (more.high - less.low)
    return Interval(min(ends.low, low), max(ends.high, high))


def _alike(data: LoggedData, weights: Floats, level: float) -> Interval | None:
    """Return the interval for weighted rewards that are all equal; None if they differ."""
    span = Log(data).reward_range
    seen = weights > 0.0
    if not seen.any():
        return Interval(*span)
    rewards = data.rewards[seen]
    least, most = float(rewards.min()), float(rewards.max())
    if most - least > _ROUNDING * (span[1] - span[0]):
        return None
    slack = _ROUNDING * (span[1] - span[0])
    if not span[0] - slack <= least <= most <= span[1] + slack:
        return Interval(-math.inf, math.inf)
    least = min(max(least, span[0]), span[1])
    size = int(weights.sum() ** 2 / np.square(weights).sum())
    units = size if data.units is None else len(np.unique(data.units[seen]))
    # Each side takes half of the error probability.
    return all_alike_interval(
        least, max(1, min(size, units)), low=span[0], high=span[1], level=(1.0 + level) / 2.0
    )


def _quantile(units: NDArray[np.int64] | None, level: float) -> float:
    tail = (1.0 - level) / 2.0
    if units is None:
        return float(-ndtri(tail))
    return float(-stdtrit(max(int(units.max()), 1), tail))
