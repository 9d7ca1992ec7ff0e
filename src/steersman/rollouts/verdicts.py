"""Verdict: promote, hold, roll back, or not enough data. A pure function of the evidence.

A rollout moves one step only if every check passes. A failed check gives its reason and weight:

- **roll back**: a guardrail that may roll back is broken, or the error budget burns too fast.
- **stop**: the arms cannot be compared, because units or their values are missing in one of them.
  The rollout holds and an incident opens.
- **hold**: a guardrail that may only hold is broken; traffic, a metrics source or a metric has
  failed; off-policy or shadow results are not good enough.
- **wait**: not enough units or time, or the objective is not shown yet: not enough data.

The heaviest weight wins. Unknown values never promote: without units, values, traffic or sources
the verdict is to wait or hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from steersman.errors import InputError
from steersman.rollouts.arm_comparison import compare
from steersman.rollouts.checks import failures, promotion_reason
from steersman.rollouts.evidence import Evidence
from steersman.rollouts.plan import RolloutPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.db.verdicts import VerdictRow
    from steersman.rollouts.arm_comparison import ArmComparison
    from steersman.rollouts.checks import Weight

Verdict = Literal["promote", "hold", "roll_back", "not_enough_data"]


@dataclass(frozen=True)
class Judgement:
    """Verdict with its reasons and inputs.

    Attributes:
        verdict: the verdict.
        reasons: reasons, heaviest first; for ``promote`` what was shown.
        incident: kind of incident to open; None: none.
        compared: comparison of the arms for each guardrail.
        plan: plan of the rollout.
        step: step of the plan, from 0.
        evidence: counted evidence.
        now: time in seconds since 1970.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    incident: str | None
    compared: tuple[ArmComparison, ...]
    plan: RolloutPlan
    step: int
    evidence: Evidence
    now: float

    @property
    def inputs(self) -> dict[str, Any]:
        """Inputs of `rejudge` as JSON values, and ``compared`` for display."""
        evidence = self.evidence
        return {
            "plan": self.plan.to_json(),
            "step": self.step,
            "now": self.now,
            "evidence": {
                **msgspec.to_builtins(evidence),
                "metrics": {
                    name: {"candidate": asdict(metric[0]), "control": asdict(metric[1])}
                    for name, metric in evidence.metrics.items()
                },
            },
            "compared": [each.to_json() for each in self.compared],
        }


_ORDER: tuple[Weight, ...] = ("roll_back", "stop", "hold", "wait")
_VERDICTS: dict[Weight, Verdict] = {
    "roll_back": "roll_back",
    "stop": "hold",
    "hold": "hold",
    "wait": "not_enough_data",
}


def judge(plan: RolloutPlan, step: int, evidence: Evidence, now: float) -> Judgement:
    """Judge a step of a rollout.

    Args:
        step: step of the plan, from 0.
        now: seconds since 1970.

    Raises:
        InputError: invalid step.
    """
    if not 0 <= step < len(plan.stages):
        message = (
            f"invalid step {step!r}: expected 0 to {len(plan.stages) - 1}; use the rollout's step"
        )
        raise InputError(message)
    compared = compare(plan, evidence.metrics)
    findings = list(failures(plan, step, evidence, compared, now))
    findings.sort(key=lambda finding: _ORDER.index(finding.weight))
    verdict: Verdict = "promote" if not findings else _VERDICTS[findings[0].weight]
    reasons = tuple(finding.reason for finding in findings)
    incident = next((finding.incident for finding in findings if finding.incident), None)
    shown = reasons or (promotion_reason(plan, step, compared),)
    return Judgement(verdict, shown, incident, compared, plan, step, evidence, now)


def rejudge(inputs: Mapping[str, Any]) -> Judgement:
    """Recompute a judgement from the inputs stored with a verdict.

    Raises:
        InputError: invalid inputs.
    """
    try:
        plan = RolloutPlan.from_json(inputs["plan"])
        evidence = msgspec.convert(_tupled(inputs["evidence"]), Evidence)
        step, now = int(inputs["step"]), float(inputs["now"])
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        message = f"invalid inputs of a verdict: {error}; use the inputs stored with it"
        raise InputError(message) from error
    return judge(plan, step, evidence, now)


def _tupled(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as lists, the format in which msgspec reads named tuples."""
    metrics = {
        name: [metric["candidate"], metric["control"]]
        for name, metric in evidence["metrics"].items()
    }
    return {**evidence, "metrics": metrics}


def recompute(row: VerdictRow) -> bool:
    """Return whether a verdict and its reasons follow from its inputs."""
    try:
        again = rejudge(row.inputs)
    except InputError:
        return False
    return (again.verdict, list(again.reasons), again.step) == (row.verdict, row.reasons, row.step)
