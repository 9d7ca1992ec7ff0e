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

from collections.abc import Mapping  # noqa: TC003 (msgspec reads it)
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from steersman.errors import InputError
from steersman.rollout.burn import Counts, burning
from steersman.rollout.comparing import (
    Compared,
    MetricEvidence,
    compare,
    missing_differs,
)
from steersman.rollout.plan import RolloutPlan
from steersman.stats import sequential_sample_ratio_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.rollout.plan import PlannedStage

Verdict = Literal["promote", "hold", "roll_back", "not_enough_data"]
_Weight = Literal["roll_back", "stop", "hold", "wait"]

_MOST_SLOW = 0.1
"""Share of shadowed decisions that may take longer than they should."""


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
        candidate: errors of the candidate, by stretch; see `stretches`.
        control: of the control, where the source knows.
    """

    name: str
    alive: bool = True
    reason: str = ""
    candidate: tuple[Counts, ...] = ()
    control: tuple[Counts, ...] = ()


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


class _Finding(NamedTuple):
    weight: _Weight
    reason: str
    incident: str | None = None


_ORDER: tuple[_Weight, ...] = ("roll_back", "stop", "hold", "wait")
_VERDICTS: dict[_Weight, Verdict] = {
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

    No doctest: evidence is long; ``tests/rollout/test_judging.py`` shows it.
    """
    if not 0 <= step < len(plan.stages):
        message = f"step is {step!r}; allowed is 0 to {len(plan.stages) - 1}; take the rollout's"
        raise InputError(message)
    compared = compare(plan, evidence.metrics)
    stage = plan.stages[step]
    findings = [*_alive(plan, stage, evidence, now)]
    if stage.name == "shadow":
        findings += [*_shadowed(plan, step, evidence)]
    else:
        findings += [*_served(plan, step, evidence, compared)]
    findings.sort(key=lambda finding: _ORDER.index(finding.weight))
    verdict: Verdict = "promote" if not findings else _VERDICTS[findings[0].weight]
    reasons = tuple(finding.reason for finding in findings)
    incident = next((finding.incident for finding in findings if finding.incident), None)
    shown = reasons or (_shown(plan, step, compared),)
    return Judgement(verdict, shown, incident, compared, plan, step, evidence, now)


def rejudge(inputs: Mapping[str, Any]) -> Judgement:
    """Return the judgement again from the inputs that were stored with a verdict.

    Args:
        inputs: as `Judgement.inputs` gave them, or as JSON brought them back.

    Returns:
        A judgement with the same verdict and the same reasons.

    Raises:
        InputError: they are no inputs of a verdict.

    No doctest: evidence is long; ``tests/rollout/test_judging.py`` shows it.
    """
    try:
        plan = RolloutPlan.from_json(inputs["plan"])
        evidence = msgspec.convert(_tupled(inputs["evidence"]), Evidence)
        step, now = int(inputs["step"]), float(inputs["now"])
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        message = f"these are no inputs of a verdict: {error}; take what was stored with it"
        raise InputError(message) from error
    return judge(plan, step, evidence, now)


def _tupled(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as msgspec reads named tuples: as lists."""
    metrics = {
        name: [metric["candidate"], metric["control"]]
        for name, metric in evidence["metrics"].items()
    }
    return {**evidence, "metrics": metrics}


def _alive(
    plan: RolloutPlan, stage: PlannedStage, evidence: Evidence, now: float
) -> Iterator[_Finding]:
    """Check time, traffic and sources: what must be true at every stage."""
    for doubt in evidence.doubts:
        yield _Finding("hold", doubt)
    passed = now - evidence.step_started_at
    if passed < 0.0:
        yield _Finding("hold", f"this step began {-passed:.0f} s in the future: check the clocks")
    elif passed < stage.min_s:
        yield _Finding("wait", f"{passed:.0f} of {stage.min_s:.0f} s at {stage.name}")
    last = evidence.last_decision_at
    silent = now - (evidence.step_started_at if last is None else last)
    if silent > plan.stale_s:
        what = f"no decision for {silent:.0f} s, more than {plan.stale_s:.0f}: is there traffic?"
        yield _Finding("hold", what)
    elif last is None:
        yield _Finding("wait", "no decision yet")
    if not evidence.sources:
        yield _Finding("hold", "no source of metrics was asked")
    for source in evidence.sources:
        if not source.alive:
            why = source.reason or "it does not say why"
            yield _Finding("hold", f"metrics source {source.name} is dead: {why}")


def _shadowed(plan: RolloutPlan, step: int, evidence: Evidence) -> Iterator[_Finding]:
    """Check what was seen before anybody is served."""
    stage, shadow = plan.stages[step], evidence.shadow or ShadowEvidence()
    if step == len(plan.stages) - 1:
        yield _Finding("hold", "the plan ends in shadow: nobody was served, so nothing is promoted")
    if shadow.decisions < max(1, stage.min_units):
        wanted = max(1, stage.min_units)
        yield _Finding("wait", f"{shadow.decisions} of {wanted} decisions in shadow")
    elif shadow.failures > (1.0 - plan.budget.objective) * shadow.decisions:
        what = f"the candidate failed in {shadow.failures} of {shadow.decisions} shadowed decisions"
        yield _Finding("hold", f"{what}, more than {1 - plan.budget.objective:.2%}", "shadow")
    elif shadow.slow > _MOST_SLOW * shadow.decisions:
        what = f"the candidate was slow in {shadow.slow} of {shadow.decisions} shadowed decisions"
        yield _Finding("hold", f"{what}, more than {_MOST_SLOW:.0%}", "shadow")
    yield from _logged(plan, evidence.off_policy)


def _logged(plan: RolloutPlan, seen: OffPolicyEvidence | None) -> Iterator[_Finding]:
    """Check off-policy evidence: its numbers, and not only what was said of them."""
    if seen is None:
        yield _Finding("wait", "the log has not been asked about the candidate yet")
        return
    for reason in seen.reasons:
        yield _Finding("hold", f"off-policy: {reason}")
    if seen.reasons:
        return
    if seen.value is None or seen.low is None or seen.high is None or seen.control is None:
        yield _Finding("hold", "off-policy: the log gives no value for the candidate")
        return
    if seen.effective_sample_size < plan.min_effective_sample_size:
        what = f"off-policy: effective sample size {seen.effective_sample_size:.0f}"
        yield _Finding("hold", f"{what}, below {plan.min_effective_sample_size:.0f}")
    if seen.max_weight_share > plan.max_weight_share:
        what = f"off-policy: one weight has {seen.max_weight_share:.1%} of the sum"
        yield _Finding("hold", f"{what}, above {plan.max_weight_share:.1%}")
    if plan.min_value is not None and seen.low < plan.min_value:
        what = f"off-policy: the candidate's value may be as low as {seen.low:.4f}"
        yield _Finding("hold", f"{what}, below {plan.min_value:g}")
    if seen.high < seen.control:
        what = f"off-policy: the candidate's value is at most {seen.high:.4f}"
        yield _Finding("hold", f"{what}, and the log earned {seen.control:.4f}")


def _served(
    plan: RolloutPlan, step: int, evidence: Evidence, compared: tuple[Compared, ...]
) -> Iterator[_Finding]:
    """Check both arms from canary on."""
    yield from _comparable(plan, evidence)
    yield from _unharmed(plan, compared)
    for source in evidence.sources:
        yield from _within_budget(plan, source)
    stage = plan.stages[step]
    for arm, units in zip(("candidate", "control"), evidence.step_closed, strict=True):
        if units < stage.min_units:
            what = f"{units} of {stage.min_units} units of {arm} closed at {stage.name}"
            yield _Finding("wait", what)
    yield from _known(plan, evidence, compared)
    reward = compared[0].canary_low
    if stage.name == "canary" and reward is not None and reward <= -plan.canary_margin:
        what = f"the canary's {compared[0].name} may be worse by {-reward:.4f}"
        yield _Finding("wait", f"{what}; less than {plan.canary_margin:g} must be shown")
    if plan.needs_objective(step):
        yield from _objective(plan, compared)


def _comparable(plan: RolloutPlan, evidence: Evidence) -> Iterator[_Finding]:
    """Check that both arms are of the same size and lack numbers equally often."""
    split = sequential_sample_ratio_test(evidence.arrived, level=1.0 - plan.sample_ratio_alpha)
    if split.mismatch:
        candidate, control = evidence.arrived
        what = f"{candidate} units on the candidate and {control} on control are no even split"
        yield _Finding("stop", f"{what} (p {split.p_value:.1g}): units get lost", "sample_ratio")
    for name, metric in evidence.metrics.items():
        if missing_differs(plan, metric, evidence.closed):
            shares = [
                f"{1 - moments.n / closed:.1%}"
                for moments, closed in zip(metric, evidence.closed, strict=True)
            ]
            what = f"{name} is missing in {shares[0]} of the candidate's units and {shares[1]} of"
            yield _Finding("stop", f"{what} control's: they cannot be compared", "missing_values")


def _unharmed(plan: RolloutPlan, compared: tuple[Compared, ...]) -> Iterator[_Finding]:
    """Check that no guardrail is shown to be broken."""
    for guardrail, seen in zip(plan.guardrails, compared, strict=True):
        if seen.harm_high is None or seen.harm_high >= -guardrail.tolerate:
            continue
        what = f"{seen.name} is worse by at least {-seen.harm_high:.4f}: {seen.candidate:.4f} "
        what += f"against {seen.control:.4f}, {seen.units} units of each arm or more"
        yield _Finding(guardrail.worse, what, "guardrail")


def _within_budget(plan: RolloutPlan, source: SourceEvidence) -> Iterator[_Finding]:
    """Check that the candidate does not burn the error budget, or not alone."""
    control = {burn.window for burn in burning(plan.budget, source.control)}
    for burn in burning(plan.budget, source.candidate):
        what = f"the candidate burns the error budget {burn.long_rate:.1f} times too fast over "
        what += f"{burn.window.long_s:.0f} s ({burn.bad:.0f} errors, says {source.name})"
        # What both arms suffer is not the candidate's doing; but nothing goes on meanwhile.
        both = burn.window in control
        if both or burn.window.worse == "hold":
            yield _Finding("hold", what + (", and so does control" if both else ""))
        else:
            yield _Finding("roll_back", what, "error_budget")


def _known(
    plan: RolloutPlan, evidence: Evidence, compared: tuple[Compared, ...]
) -> Iterator[_Finding]:
    """Check that every guardrail has values of both arms."""
    for seen in compared:
        if seen.units >= plan.first_look_units:
            continue
        if min(evidence.closed) >= 2 * plan.first_look_units and seen.units == 0:
            yield _Finding("hold", f"{seen.name} has no values: does anybody report it?")
        else:
            what = f"{seen.name} has values of {seen.units} units of an arm"
            yield _Finding("wait", f"{what}; {plan.first_look_units} are needed")


def _objective(plan: RolloutPlan, compared: tuple[Compared, ...]) -> Iterator[_Finding]:
    """Check what must be shown before the candidate takes over.

    Each bound is at the plan's full alpha: to be promoted falsely, a candidate must pass all of
    them, so the chance is that of the one where it is bad, and nothing is split.
    """
    loss = plan.objective_margin if plan.objective == "non_inferior" else 0.0
    reward = compared[0]
    if reward.gain_low is not None and reward.gain_low <= -loss:
        wanted = f"less than {loss:g} worse" if loss else "better"
        what = f"{reward.name} is not shown to be {wanted} yet: at least {reward.gain_low:+.4f}"
        yield _Finding("wait", f"{what} after {reward.units} units of each arm")
    for seen in compared[1:]:
        if (
            seen.worse == "roll_back"
            and seen.gain_low is not None
            and seen.gain_low <= -seen.margin
        ):
            what = f"{seen.name} may be worse by {-seen.gain_low:.4f}; less than its margin "
            yield _Finding("wait", f"{what}{seen.margin:g} must be shown")


def _shown(plan: RolloutPlan, step: int, compared: tuple[Compared, ...]) -> str:
    """Return what a promotion rests on."""
    stage = plan.stages[step]
    if stage.name == "shadow":
        return "the log and the shadow hold nothing against the candidate"
    reward = compared[0]
    said = f"after {reward.units} units of each arm no guardrail is broken at {stage.name}"
    if plan.needs_objective(step):
        said += f", and {reward.name} is better by at least {reward.gain_low:+.4f}"
    return said
