"""Unit-level metrics: one value per unit and guardrail for the analysis of live tests.

Decisions of one user are not independent, so each unit counts once, with the mean over its
decisions, after its window has closed. Decisions count for `unit_window_s` from the first one; the
reward of the last one is final `reward_window_s` later. Closed units stay closed; later decisions
are dropped in both arms alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal, NamedTuple

from steersman.errors import InputError
from steersman.rollouts.arm_comparison import MetricEvidence
from steersman.stats import Moments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.rollouts.plan import PlannedGuardrail, RolloutPlan, StageName

Arm = Literal["candidate", "control"]

_STAGES = ("shadow", "canary", "ab", "live")


class Placement(NamedTuple):
    """Arm of a unit, and whether the unit is analysed.

    Attributes:
        arm: serving arm: ``candidate`` or ``control``.
        analysed: whether its decisions belong to the rollout; in shadow all do.
    """

    arm: Arm
    analysed: bool


def position(salt: str, unit: str) -> float:
    """Return the hash position of a unit in [0, 1).

    It is made from the first eight bytes of SHA-256 over salt, a zero byte and unit. Positions are
    uniform over units, equal on every machine, and independent between rollouts with other salts.

    Args:
        salt: text without a zero byte; one per rollout.

    Returns:
        A float in [0, 1).

    Raises:
        InputError: the salt contains a zero byte, which would make the pairs ambiguous.

    Example:
        >>> round(position("r1", "user-7"), 6), round(position("r2", "user-7"), 6)
        (0.845453, 0.017824)
    """
    if "\0" in salt:
        message = (
            f"invalid salt {salt!r:.60}: expected text without a zero byte; use the rollout's salt"
        )
        raise InputError(message)
    digest = sha256(f"{salt}\0{unit}".encode("utf-8", "surrogatepass")).digest()
    # 53 bits fit into a float64; all 64 could round up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def place(h: float, stage: StageName, share: float, holdback: float = 0.0) -> Placement:
    """Return the arm of the unit at position ``h``.

    Args:
        h: result of `position`, in [0, 1).
        share: share of units that the candidate serves, in [0, 0.5]; used in canary and ab.
        holdback: share of units that stay on control at ``live``, in [0, 0.5].

    Raises:
        InputError: a number out of range, or an unknown stage.

    Example:
        >>> [place(h, "canary", 0.05).arm for h in (0.01, 0.5, 0.99)]
        ['candidate', 'control', 'control']
        >>> [place(h, "live", 0.95, 0.05) for h in (0.01, 0.5, 0.99)][1]
        Placement(arm='candidate', analysed=False)
    """
    if stage not in _STAGES:
        message = f"invalid stage {stage!r}: allowed are {', '.join(_STAGES)}; use the plan's stage"
        raise InputError(message)
    if not 0.0 <= h < 1.0:
        message = f"invalid h {h!r}: expected 0 <= h < 1; compute it with position()"
        raise InputError(message)
    if stage == "shadow":
        return Placement("control", analysed=True)
    # At live both analysed parts have the size of the holdback, so that the arms stay equal.
    piece = _half(holdback, "holdback") if stage == "live" else _half(share, "share")
    served = 1.0 - piece if stage == "live" else piece
    return Placement(
        "candidate" if h < served else "control", analysed=h < piece or h >= 1.0 - piece
    )


def _half(share: float, name: str) -> float:
    if not 0.0 <= share <= 0.5:
        message = (
            f"invalid {name} {share!r}: expected 0 to 0.5, because both arms have the same size"
        )
        raise InputError(message)
    return share


_ARMS: tuple[Arm, Arm] = ("candidate", "control")


class AnalysedDecision(NamedTuple):
    """Analysed decision with a closed reward window.

    Attributes:
        unit: unit that stays on one arm.
        arm: assigned arm of the unit, even if another arm answered.
        at: time of the decision in seconds since 1970.
        reward: reward, 0 to 1; None: no reward.
        outcomes: raw outcomes that a guardrail reads, by name.
        failed: whether the arm failed, so that control or the fallback answered.
    """

    unit: str
    arm: Arm
    at: float
    reward: float | None
    outcomes: Mapping[str, float]
    failed: bool = False


def value_of(guardrail: PlannedGuardrail, decision: AnalysedDecision) -> float | None:
    """Return a decision's value for a guardrail.

    Returns:
        Value from 0 to 1; None if missing.

    >>> from steersman.rollouts.plan import PlannedGuardrail
    >>> late = PlannedGuardrail("latency_ms>900", "above", "latency_ms", 900.0)
    >>> value_of(late, AnalysedDecision("user-7", "control", 0.0, None, {"latency_ms": 1200.0}))
    1.0
    """
    if guardrail.kind == "errors":
        return float(decision.failed or decision.outcomes.get("error", 0.0) > 0.0)
    raw = decision.reward if guardrail.kind == "reward" else None
    if guardrail.outcome is not None:
        raw = decision.outcomes.get(guardrail.outcome)
    if raw is None or not math.isfinite(raw):
        return None
    if guardrail.target is not None:
        return float(
            raw > guardrail.target if guardrail.kind == "above" else raw < guardrail.target
        )
    return min(1.0, max(0.0, (raw - guardrail.low) / (guardrail.high - guardrail.low)))


@dataclass(slots=True)
class _OpenUnit:
    """Unit with an open window: sums over its decisions, per guardrail."""

    arm: Arm
    first_at: float
    sums: list[float]
    counts: list[int]


@dataclass(slots=True)
class _RunningMoments:
    """Running mean and sum of squared deviations (Welford)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)

    def moments(self) -> Moments:
        return Moments(self.n, self.mean, self.squares / (self.n - 1) if self.n > 1 else 0.0)


@dataclass(slots=True)
class _ArmUnits:
    """Units of one arm."""

    arrived: int = 0
    first_at: list[float] = field(default_factory=list)  # of closed units, sorted
    values: list[_RunningMoments] = field(default_factory=list)

    def enter(self, unit: _OpenUnit) -> None:
        insort(self.first_at, unit.first_at)
        for running, total, count in zip(self.values, unit.sums, unit.counts, strict=True):
            if count:
                running.add(total / count)


class Units:
    """Units of a rollout, from canary on, over all steps.

    Args:
        plan: plan of the rollout.

    >>> from steersman.rollouts.plan import PlannedGuardrail, PlannedStage, RolloutPlan
    >>> stages = (PlannedStage("canary", 0.05, 1, 0.0),)
    >>> reward = PlannedGuardrail("reward", "reward", better="higher")
    >>> plan = RolloutPlan("r1", stages, (reward,), unit_window_s=60.0, reward_window_s=30.0)
    >>> units = Units(plan)
    >>> for at, earned in ((0.0, 1.0), (50.0, 0.0), (61.0, 0.0)):
    ...     units.add(AnalysedDecision("user-7", "control", at, earned, {}))
    >>> units.close(89.9), units.close(90.0), units.metrics()["reward"].control.mean
    (0, 1, 0.5)
    """

    def __init__(self, plan: RolloutPlan) -> None:
        self._plan = plan
        self._guardrails = plan.guardrails
        self._open: dict[str, _OpenUnit] = {}
        self._next: list[tuple[float, str]] = []  # heap of open units; stale entries are skipped
        self._closed: set[str] = set()
        self._sides = {
            arm: _ArmUnits(values=[_RunningMoments() for _ in plan.guardrails]) for arm in _ARMS
        }

    def add(self, decision: AnalysedDecision) -> None:
        """Add a decision, unless its unit is closed or its window is over.

        Raises:
            InputError: unknown arm, non-finite time, or a unit on both arms.
        """
        if decision.arm not in self._sides or not math.isfinite(decision.at):
            message = f"invalid arm {decision.arm!r} or time {decision.at!r}: expected one of "
            message += f"{_ARMS} and a finite time"
            raise InputError(message)
        if decision.unit in self._closed:
            return
        unit = self._open.get(decision.unit)
        if unit is None:
            zeros = [0.0] * len(self._guardrails), [0] * len(self._guardrails)
            unit = _OpenUnit(decision.arm, decision.at, *zeros)
            self._open[decision.unit] = unit
            self._sides[decision.arm].arrived += 1
            heappush(self._next, (decision.at, decision.unit))
        if unit.arm != decision.arm:
            message = f"unit {decision.unit!r:.60} is on both arms; use one salt per rollout"
            raise InputError(message)
        if decision.at < unit.first_at:
            unit.first_at = decision.at
            heappush(self._next, (decision.at, decision.unit))
        if decision.at < unit.first_at + self._plan.unit_window_s:
            self._count(unit, decision)

    def close(self, now: float) -> int:
        """Close all units whose windows are over.

        Args:
            now: seconds since 1970. Decisions up to then must have been added.
        """
        latest = now - self._plan.closing_s
        count = 0
        # In a fixed order, so that reading the same decisions again gives bit-identical sums.
        while self._next and self._next[0][0] <= latest:
            first_at, name = heappop(self._next)
            unit = self._open.get(name)
            if unit is not None and unit.first_at == first_at:
                del self._open[name]
                self._closed.add(name)
                self._sides[unit.arm].enter(unit)
                count += 1
        return count

    @property
    def arrived(self) -> tuple[int, int]:
        """Units of candidate and control with a decision, open and closed."""
        return self._sides["candidate"].arrived, self._sides["control"].arrived

    @property
    def closed(self) -> tuple[int, int]:
        """Closed units of candidate and control."""
        return self.closed_since(-math.inf)

    def closed_since(self, started_at: float) -> tuple[int, int]:
        """Return the closed units of candidate and control that arrived after a time.

        Args:
            started_at: time in seconds since 1970, such as the start of the step.
        """
        candidate, control = (
            len(self._sides[arm].first_at) - bisect_left(self._sides[arm].first_at, started_at)
            for arm in _ARMS
        )
        return candidate, control

    def metrics(self) -> dict[str, MetricEvidence]:
        """Return number, mean and variance of both arms' units by the guardrail's name."""
        return {
            guardrail.name: MetricEvidence(
                self._sides["candidate"].values[place].moments(),
                self._sides["control"].values[place].moments(),
            )
            for place, guardrail in enumerate(self._guardrails)
        }

    def _count(self, unit: _OpenUnit, decision: AnalysedDecision) -> None:
        for place, guardrail in enumerate(self._guardrails):
            value = value_of(guardrail, decision)
            if value is not None:
                unit.sums[place] += value
                unit.counts[place] += 1
