"""Worlds of units for `benchmarks.rollout`: simulated arms, and rollouts of a plan on them.

Two kinds of unit. ``counted``: 1 to 30 decisions, each 0 or 1, with a given intraclass correlation
(a beta-binomial law), so a naive test can count decisions. ``measured``: one
number with a given mean and standard deviation (a beta law).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.rollouts.arm_comparison import MetricEvidence
from steersman.rollouts.error_budget import Counts, stretches
from steersman.rollouts.evidence import Evidence, SourceEvidence
from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
from steersman.rollouts.verdicts import judge
from steersman.stats import Moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LOOKS = 40
UNITS_PER_LOOK = 50  # mean per arm
UNITS_PER_DAY = 1000
_MOST_DECISIONS = 30
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Metric:
    """Law of the units of both arms in one guardrail.

    Args:
        name: Name of the guardrail.
        mean: Mean of control.
        effect: Candidate minus control.
        sd: Standard deviation of a unit's number; None for counted decisions.
        correlation: Intraclass correlation of counted decisions, in [0, 1).
    """

    name: str
    mean: float
    effect: float = 0.0
    sd: float | None = None
    correlation: float = 0.1

    @property
    def unit_sd(self) -> float:
        """Standard deviation of one unit's number on control."""
        if self.sd is not None:
            return self.sd
        smallness = float(np.mean(1.0 / np.arange(1, _MOST_DECISIONS + 1)))
        shared = self.correlation + (1.0 - self.correlation) * smallness
        return math.sqrt(self.mean * (1.0 - self.mean) * shared)


class DrawnRuns(NamedTuple):
    """Both arms of many runs, cumulative over looks; arms are candidate, control.

    Attributes:
        arrived: Number of units, (runs, looks, 2).
        moments: By metric: mean and variance, each (runs, looks, 2).
        decisions: Number of decisions, and their sum by metric, if counted.
    """

    arrived: Floats
    moments: dict[str, tuple[Floats, Floats]]
    decisions: Floats
    sums: dict[str, Floats]


class Run(NamedTuple):
    """Result of one rollout.

    Attributes:
        end: ``promoted``, ``rolled_back`` or ``none``.
        look: number of the last look, from 1; `LOOKS` for none.
        units: candidate units until the end.
        days: days until the end.
        incidents: kinds of reported incidents.
        reasons: reasons of the last verdict.
    """

    end: str
    look: int
    units: int
    days: float
    incidents: frozenset[str]
    reasons: tuple[str, ...]


def default_plan(first: str = "canary", **changes: object) -> RolloutPlan:
    """Return the default plan with the five guardrails, without the shadow.

    Args:
        first: First stage.
        changes: Fields to replace.
    """
    stages = [
        PlannedStage("canary", 0.05, 200, _DAY_S),
        PlannedStage("ab", 0.25, 200, _DAY_S),
        PlannedStage("ab", 0.5, 200, _DAY_S),
        PlannedStage("live", 0.95, 0, _DAY_S),
    ]
    while stages[0].name != first:
        del stages[0]
    part = 0.025 / 4
    guardrails = (
        PlannedGuardrail("reward", "reward", better="higher", alpha=0.025),
        PlannedGuardrail("errors", "errors", margin=0.01, alpha=part),
        PlannedGuardrail("success", "mean", "success", better="higher", alpha=part),
        PlannedGuardrail("latency_ms>900", "above", "latency_ms", 900.0, alpha=part),
        PlannedGuardrail("cost_usd", "mean", "cost_usd", worse="hold", alpha=part),
    )
    fields: dict[str, object] = {"salt": "", "stages": tuple(stages), "guardrails": guardrails}
    return RolloutPlan(**(fields | changes))  # type: ignore[arg-type]


def metrics(*, reward: Metric, **effects: float) -> tuple[Metric, ...]:
    """Return the five independent metrics of a world.

    Independence is the worst case: most false alarms, and fewest runs within all margins. So every
    rate is conservative.

    Args:
        reward: Law of the reward.
        effects: Effects of the other metrics, by name.
    """
    others = (
        Metric("errors", 0.005, effects.get("errors", 0.0)),
        Metric("success", 0.7, effects.get("success", 0.0)),
        Metric("latency_ms>900", 0.05, effects.get("latency", 0.0)),
        Metric("cost_usd", 0.1, effects.get("cost", 0.0), sd=0.08),
    )
    return (reward, *others)


def draw(
    world: Sequence[Metric], rng: np.random.Generator, runs: int, *, lost: float = 0.0
) -> DrawnRuns:
    """Draw many runs of a world.

    Args:
        world: Metrics of the world.
        rng: Random generator.
        runs: Number of runs.
        lost: Share of the candidate's units that are lost.
    """
    shape = (runs, LOOKS, 2 * UNITS_PER_LOOK)
    candidate = rng.random(shape) < 0.5
    here = ~(candidate & (rng.random(shape) < lost)) if lost else np.ones(shape, dtype=bool)
    arms = [candidate & here, ~candidate & here]
    arrived = _cumulative(arms, np.ones(shape))
    size = rng.integers(1, _MOST_DECISIONS + 1, shape)
    moments, sums = {}, {}
    for metric in world:
        values = _values(metric, rng, candidate, size)
        total, squares = _cumulative(arms, values), _cumulative(arms, values * values)
        mean = total / np.maximum(arrived, 1)
        spread = (squares - arrived * mean**2) / np.maximum(arrived - 1, 1)
        moments[metric.name] = mean, np.maximum(spread, 0.0)
        if metric.sd is None:
            sums[metric.name] = _cumulative(arms, values * size)
    return DrawnRuns(arrived, moments, _cumulative(arms, size), sums)


def rollouts(plan: RolloutPlan, drawn: DrawnRuns) -> Iterator[Run]:
    """Return the rollouts of all runs, judged at each look.

    Args:
        plan: Plan of every rollout.
        drawn: Drawn arms of the runs.
    """
    # Plain floats: numpy scalars are slow.
    arrived, decisions = drawn.arrived.astype(int).tolist(), drawn.decisions.tolist()
    errors = drawn.sums["errors"].tolist()
    means = {name: pair[0].tolist() for name, pair in drawn.moments.items()}
    spreads = {name: pair[1].tolist() for name, pair in drawn.moments.items()}
    for run, units in enumerate(arrived):
        mean = {name: rows[run] for name, rows in means.items()}
        spread = {name: rows[run] for name, rows in spreads.items()}
        yield _roll(plan, units, mean, spread, decisions[run], errors[run])


def _roll(
    plan: RolloutPlan,
    arrived: list[list[int]],
    means: dict[str, list[list[float]]],
    spreads: dict[str, list[list[float]]],
    decisions: list[list[float]],
    errors: list[list[float]],
) -> Run:
    step, began, at_start = 0, 0.0, [0, 0]
    incidents: set[str] = set()
    reasons: tuple[str, ...] = ()
    failing = _Failing(stretches(plan.budget))
    for look, units in enumerate(arrived):
        days = UNITS_PER_LOOK / (UNITS_PER_DAY * plan.stages[step].share)
        failing.add(days * _DAY_S, errors[look][0], decisions[look][0])
        now = failing.times[-1]
        evidence = Evidence(
            step_started_at=began,
            last_decision_at=now,
            arrived=(units[0], units[1]),
            closed=(units[0], units[1]),
            step_closed=(units[0] - at_start[0], units[1] - at_start[1]),
            metrics={
                name: MetricEvidence(
                    Moments(units[0], rows[look][0], spreads[name][look][0]),
                    Moments(units[1], rows[look][1], spreads[name][look][1]),
                )
                for name, rows in means.items()
            },
            sources=(SourceEvidence("store", candidate=failing.counts()),),
        )
        judged = judge(plan, step, evidence, now)
        reasons = judged.reasons
        if judged.incident and judged.verdict != "roll_back":
            incidents.add(judged.incident)
        if judged.verdict == "roll_back":
            return Run(
                "rolled_back", look + 1, units[0], now / _DAY_S, frozenset(incidents), reasons
            )
        if judged.verdict == "promote":
            step, began, at_start = step + 1, now, units
            if plan.stages[step].name == "live":
                days = now / _DAY_S
                return Run("promoted", look + 1, units[0], days, frozenset(incidents), reasons)
    return Run("none", LOOKS, arrived[-1][0], now / _DAY_S, frozenset(incidents), reasons)


class _Failing:
    """Errors of the candidate over time, uniform between looks."""

    def __init__(self, lengths: Sequence[float]) -> None:
        self.times, self._bad, self._total = [0.0], [0.0], [0.0]
        self._lengths = lengths

    def add(self, seconds: float, bad: float, total: float) -> None:
        self.times.append(self.times[-1] + seconds)
        self._bad.append(bad)
        self._total.append(total)

    def counts(self) -> tuple[Counts, ...]:
        return tuple(Counts(length, *self._within(length)) for length in self._lengths)

    def _within(self, length: float) -> tuple[float, float]:
        since = self.times[-1] - length
        after = bisect_right(self.times, since)
        if after == 0:
            return self._bad[-1], self._total[-1]
        began, ended = self.times[after - 1], self.times[after]
        passed = (since - began) / (ended - began)
        bad, total = (
            rows[-1] - rows[after - 1] - passed * (rows[after] - rows[after - 1])
            for rows in (self._bad, self._total)
        )
        return min(bad, total), total


def _values(
    metric: Metric, rng: np.random.Generator, candidate: NDArray[np.bool_], size: NDArray[np.int64]
) -> Floats:
    """Return one value per unit."""
    mean = np.where(candidate, metric.mean + metric.effect, metric.mean)
    if metric.sd is not None:
        concentration = metric.mean * (1.0 - metric.mean) / metric.sd**2 - 1.0
        return rng.beta(mean * concentration, (1.0 - mean) * concentration)
    chance = mean
    if metric.correlation > 0.0:
        concentration = 1.0 / metric.correlation - 1.0
        chance = rng.beta(mean * concentration, (1.0 - mean) * concentration)
    return rng.binomial(size, chance) / size


def _cumulative(arms: Sequence[NDArray[np.bool_]], values: NDArray[np.generic]) -> Floats:
    """Return sums over each arm's units up to each look, shape (runs, looks, 2)."""
    sums = [np.where(arm, values, 0).sum(axis=2).cumsum(axis=1) for arm in arms]
    return np.stack(sums, axis=2).astype(np.float64)
