"""Counted evidence of a rollout: all inputs of a verdict besides plan, step and time."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (msgspec reads it)
from dataclasses import dataclass, field

from steersman.rollouts.arm_comparison import MetricEvidence  # noqa: TC001 (msgspec reads it)
from steersman.rollouts.error_budget import Counts  # noqa: TC001 (msgspec reads it)


@dataclass(frozen=True, slots=True)
class OffPolicyEvidence:
    """Off-policy evaluation of the candidate on control's log, before it serves.

    Attributes:
        value: estimated mean reward of the candidate; None: no estimate.
        low: lower bound of its confidence interval.
        high: upper bound of its confidence interval.
        control: logged mean reward.
        effective_sample_size: effective sample size of the importance weights.
        max_weight_share: share of the largest weight.
        reasons: why it is not enough; empty: enough.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    control: float | None = None
    effective_sample_size: float = 0.0
    max_weight_share: float = 1.0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShadowEvidence:
    """Results of the candidate on decisions that it did not serve.

    Attributes:
        decisions: number of decisions.
        failures: number of failures.
        slow: number of slow answers.
    """

    decisions: int = 0
    failures: int = 0
    slow: int = 0


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """Error counts of one metrics source.

    Attributes:
        name: name of the source.
        alive: whether it answered with current numbers.
        reason: why it is not alive.
        candidate: errors of the candidate by window; see `stretches`. A missing window has no rate.
        control: errors of the control, if the source knows them.
        behind: why its counts are incomplete; empty: complete.
    """

    name: str
    alive: bool = True
    reason: str = ""
    candidate: tuple[Counts, ...] = ()
    control: tuple[Counts, ...] = ()
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All inputs of a verdict besides plan, step and time.

    Attributes:
        step_started_at: start of the step in seconds since 1970.
        last_decision_at: last decision of the rollout; None: no decision.
        arrived: units of candidate and control, open and closed, from canary on.
        closed: units with closed windows.
        step_closed: closed units that arrived in this step.
        metrics: values per closed unit by the guardrail's name.
        sources: error counts, at least one.
        shadow: shadow results, in shadow only.
        off_policy: off-policy evaluation, before the candidate serves.
        doubts: other reasons to hold, such as a clock jump.
    """

    step_started_at: float
    last_decision_at: float | None = None
    arrived: tuple[int, int] = (0, 0)
    closed: tuple[int, int] = (0, 0)
    step_closed: tuple[int, int] = (0, 0)
    metrics: Mapping[str, MetricEvidence] = field(default_factory=dict)
    sources: tuple[SourceEvidence, ...] = ()
    shadow: ShadowEvidence | None = None
    off_policy: OffPolicyEvidence | None = None
    doubts: tuple[str, ...] = ()
