"""The verdict: promote, hold, roll back, or not enough data. A pure function of what was counted.

A rollout goes one step on when, and only when, every check says yes. A check that fails says why
and how much it weighs:

- **roll back**: a guardrail that may roll back is shown to be broken, or the error budget burns.
- **stop**: the arms cannot be compared, since units or their numbers are missing in one of them.
  The rollout holds, and people are told, as nothing that follows can be believed.
- **hold**: something is broken that may only hold; the traffic, a source of metrics or a metric is
  dead; what was seen off-policy or in the shadow is not good enough.
- **wait**: not enough units or time yet, or the objective is not shown yet: not enough data.

The heaviest wins. Whatever is not known never promotes: no units, no values, no traffic and no
source are reasons to wait or hold, never to go on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from steersman.errors import InputError
from steersman.rollout.checks import failures, what_was_shown
from steersman.rollout.comparing import compare
from steersman.rollout.counted import Evidence
from steersman.rollout.plan import RolloutPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.rollout.checks import Weight
    from steersman.rollout.comparing import Compared

Verdict = Literal["promote", "hold", "roll_back", "not_enough_data"]


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and all that it was reached from.

    Attributes:
        verdict: what should be done.
        reasons: why, the weightiest first; with ``promote`` what was shown.
        incident: what kind of trouble people should be told of; None for none.
        compared: what is known about each guardrail.
        plan: of the rollout.
        step: place in its stages.
        evidence: what was counted.
        now: when, in seconds since 1970.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    incident: str | None
    compared: tuple[Compared, ...]
    plan: RolloutPlan
    step: int
    evidence: Evidence
    now: float

    @property
    def inputs(self) -> dict[str, Any]:
        """All that `rejudge` needs, as JSON values; and, to be read by people, ``compared``."""
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
    """Return what should be done with a rollout.

    Args:
        plan: fixed at the start.
        step: place in its stages, from 0.
        evidence: what was counted.
        now: seconds since 1970.

    Returns:
        The verdict: ``promote`` means one step on, or, on the last step, the end.

    Raises:
        InputError: there is no such step.
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
    shown = reasons or (what_was_shown(plan, step, compared),)
    return Judgement(verdict, shown, incident, compared, plan, step, evidence, now)


def rejudge(inputs: Mapping[str, Any]) -> Judgement:
    """Return the judgement again from the inputs that were stored with a verdict.

    Args:
        inputs: as `Judgement.inputs` gave them, or as JSON brought them back.

    Returns:
        A judgement with the same verdict and the same reasons.

    Raises:
        InputError: they are no inputs of a verdict.
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
    """Return metrics as msgspec reads named tuples: as lists."""
    metrics = {
        name: [metric["candidate"], metric["control"]]
        for name, metric in evidence["metrics"].items()
    }
    return {**evidence, "metrics": metrics}
