"""Result of a trial of a candidate, and its gates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from steersman.rollouts.pipeline.reports import Gate

if TYPE_CHECKING:
    from steersman.rollouts.pipeline.config import Evaluation
    from steersman.spec.operation import Gates


@dataclass(frozen=True, slots=True)
class Trained:
    """A candidate as it would be published.

    Attributes:
        version: next version number.
        change: kind of change: patch, minor or major.
        algorithm: of its policy.
        line: live snapshot whose log it learned from.
        seq: last update of that log.
        samples: number of learned rewards; None: the policy does not count them.
        lost: updates that it could not learn under its own declaration.
    """

    version: str
    change: str
    algorithm: str
    line: str
    seq: int
    samples: int | None = None
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Off-policy evaluation of a candidate on held-out decisions.

    Attributes:
        decisions: number of held-out decisions; the candidate has learned none of them.
        against: what it is compared with.
        value: estimated mean reward; None: no estimate.
        low: lower end of the interval of the value.
        high: upper end of the interval of the value.
        least: lower end with room for rare failures that were not seen, for the gate ``min_value``:
            `steersman.rollouts.candidate_evidence.least_value`.
        standard_error: of the value.
        effective_sample_size: of the importance weights.
        max_weight_share: largest share of one weight in their sum.
        difference: value minus the value of the other; None: no estimate.
        difference_low: lower end of the interval of the difference.
        difference_high: upper end of the interval of the difference.
        level: of both intervals.
        reasons: why there is no estimate; empty if there is one.
    """

    decisions: int
    against: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    standard_error: float | None = None
    effective_sample_size: float = 0.0
    max_weight_share: float = 1.0
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    level: float = 0.95
    reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "reasons": list(self.reasons)}


@dataclass(frozen=True, slots=True)
class Trial:
    """Training and evaluation of a candidate."""

    trained: Trained
    judgement: Judgement


def gates_of(asked: Evaluation, declared: Gates, found: Judgement) -> tuple[Gate, ...]:
    """Return the gates of a candidate; the configuration overrides the point's `declared` gates."""
    least = asked.min_effective_sample_size or declared.min_effective_sample_size
    share = asked.max_weight_share or declared.max_weight_share
    value = asked.min_value if asked.min_policy_value is None else asked.min_policy_value
    value = declared.min_value if value is None else value
    size = found.effective_sample_size
    gates = [
        Gate("min_effective_sample_size", size, least, "least", "effective sample size"),
        Gate("max_weight_share", found.max_weight_share, share, "most", "largest weight share"),
        Gate(
            "max_standard_error",
            found.standard_error,
            asked.max_standard_error,
            "most",
            "standard error of the value",
        ),
        Gate(
            "max_loss",
            None if found.difference_high is None else max(0.0, -found.difference_high),
            asked.max_loss,
            "most",
            f"shown loss against {found.against}",
        ),
    ]
    if value is not None:
        gates.insert(2, Gate("min_value", found.least, value, "least", "lower bound of the value"))
    return tuple(gates)
