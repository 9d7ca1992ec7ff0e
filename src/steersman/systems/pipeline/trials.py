"""What is known of a candidate that was tried, and the gates that it is held against."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from steersman.systems.pipeline.reports import Gate

if TYPE_CHECKING:
    from steersman.spec import Gates
    from steersman.systems.pipeline.config import Evaluation


@dataclass(frozen=True, slots=True)
class Trained:
    """A candidate as it would be published.

    Attributes:
        version: that it would get.
        change: what kind of step that is: patch, minor or major.
        algorithm: of its policy.
        line: the snapshot that serves, from whose log it learned,
        seq: and the last update of it.
        samples: rewards that it learned; None where its policy does not count them.
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
    """What held-out decisions say of a candidate.

    Attributes:
        decisions: that it was judged on; it has learned none of them.
        against: what it was compared with.
        value: off-policy estimate of its reward; None where the log cannot tell.
        low: lower end of the interval of the value.
        high: upper end.
        least: the lower end with room for failures too rare to have been seen, as ``min_value``
            wants it: `steersman.rollout.evidence.least_value`.
        standard_error: of the value.
        effective_sample_size: of the importance weights.
        max_weight_share: of one weight in their sum.
        difference: value less that of the other; None where the log cannot tell.
        difference_low: lower end of its interval.
        difference_high: upper end.
        level: of both intervals.
        reasons: why the log cannot tell; empty where it can.
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
    """A candidate that was tried.

    Attributes:
        trained: what was learned.
        judgement: what it is worth.
    """

    trained: Trained
    judgement: Judgement


def gates_of(asked: Evaluation, declared: Gates, found: Judgement) -> tuple[Gate, ...]:
    """Return the gates with what was measured.

    Args:
        asked: the configuration.
        declared: what the point declares where the configuration says nothing.
        found: what was measured.

    Returns:
        In a fixed order; a number that is not known passes no gate.
    """
    least = asked.min_effective_sample_size or declared.min_effective_sample_size
    share = asked.max_weight_share or declared.max_weight_share
    value = asked.min_value if asked.min_policy_value is None else asked.min_policy_value
    value = declared.min_value if value is None else value
    size = found.effective_sample_size
    gates = [
        Gate("min_effective_sample_size", size, least, "least", "effective sample size"),
        Gate("max_weight_share", found.max_weight_share, share, "most", "largest weight's share"),
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
            f"loss shown against {found.against}",
        ),
    ]
    if value is not None:
        gates.insert(2, Gate("min_value", found.least, value, "least", "least value"))
    return tuple(gates)
