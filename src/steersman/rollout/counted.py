"""What was counted of a rollout: all that a verdict depends on besides plan, step and time."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (msgspec reads it)
from dataclasses import dataclass, field

from steersman.rollout.burn import Counts  # noqa: TC001 (msgspec reads it)
from steersman.rollout.comparing import MetricEvidence  # noqa: TC001 (msgspec reads it)


@dataclass(frozen=True, slots=True)
class OffPolicyEvidence:
    """What the control's log says of the candidate before it serves anybody.

    Attributes:
        value: estimated reward of the candidate; None if evaluation refused.
        low: lower end of its interval.
        high: upper end.
        control: mean reward of what was logged.
        effective_sample_size: of the importance weights.
        max_weight_share: greatest share of one weight.
        reasons: why it is not enough; empty if it is.
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
    """How the candidate did on decisions that it did not make.

    Attributes:
        decisions: that it was asked.
        failures: that it could not answer.
        slow: that took it too long.
    """

    decisions: int = 0
    failures: int = 0
    slow: int = 0


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """What one source of metrics said about errors.

    Attributes:
        name: of the source.
        alive: whether it answered, with numbers of now.
        reason: why it is not alive.
        candidate: errors of the candidate, by stretch; see `stretches`. One that is not there is
            not known, and no rate follows from it.
        control: of the control, where the source knows.
        behind: what it has not counted yet; empty if nothing.
    """

    name: str
    alive: bool = True
    reason: str = ""
    candidate: tuple[Counts, ...] = ()
    control: tuple[Counts, ...] = ()
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict depends on besides the plan, the step and the time.

    Attributes:
        step_started_at: seconds since 1970.
        last_decision_at: of the rollout; None: never.
        arrived: units of candidate and control, closed or not, from canary on.
        closed: those whose windows are over.
        step_closed: those that came in since this step began.
        metrics: one number per closed unit, by the guardrail's name.
        sources: of errors; at least one.
        shadow: while in shadow.
        off_policy: while nobody is served by the candidate.
        doubts: other reasons not to go on, such as a clock that jumped.
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
