"""Checks of a verdict. Each yields findings with a weight and a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from steersman.rollouts.arm_comparison import missing_differs
from steersman.rollouts.error_budget import burning
from steersman.stats import sequential_sample_ratio_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.rollouts.arm_comparison import ArmComparison
    from steersman.rollouts.evidence import Evidence, OffPolicyEvidence, SourceEvidence
    from steersman.rollouts.plan import PlannedStage, RolloutPlan

Weight = Literal["roll_back", "stop", "hold", "wait"]

_MOST_SLOW = 0.1
"""Maximum share of slow decisions in shadow."""


class Finding(NamedTuple):
    """Reason not to promote.

    Attributes:
        weight: consequence.
        reason: text with the numbers.
        incident: kind of incident to open; None: none.
    """

    weight: Weight
    reason: str
    incident: str | None = None


def failures(
    plan: RolloutPlan,
    step: int,
    evidence: Evidence,
    compared: tuple[ArmComparison, ...],
    now: float,
) -> Iterator[Finding]:
    """Yield every reason not to promote.

    Args:
        step: step of the plan, from 0.
        now: seconds since 1970.
    """
    yield from _alive(plan, plan.stages[step], evidence, now)
    if plan.stages[step].name == "shadow":
        yield from _shadowed(plan, step, evidence)
    else:
        yield from _served(plan, step, evidence, compared)


def _alive(
    plan: RolloutPlan, stage: PlannedStage, evidence: Evidence, now: float
) -> Iterator[Finding]:
    """Check time, traffic and metrics sources, at every stage."""
    for doubt in evidence.doubts:
        yield Finding("hold", doubt)
    passed = now - evidence.step_started_at
    if passed < 0.0:
        yield Finding("hold", f"this step starts {-passed:.0f} s in the future; check the clocks")
    elif passed < stage.min_s:
        yield Finding("wait", f"{passed:.0f} of at least {stage.min_s:.0f} s at {stage.name}")
    last = evidence.last_decision_at
    silent = now - (evidence.step_started_at if last is None else last)
    if silent > plan.stale_s:
        what = f"no decision for {silent:.0f} s, limit {plan.stale_s:.0f} s; check the traffic"
        yield Finding("hold", what)
    elif last is None:
        yield Finding("wait", "no decisions yet")
    if not evidence.sources:
        yield Finding("hold", "no metrics source was queried")
    for source in evidence.sources:
        if not source.alive:
            why = source.reason or "no reason given"
            yield Finding("hold", f"metrics source {source.name} has failed: {why}")
        elif source.behind:
            yield Finding("hold", f"metrics source {source.name} lags: {source.behind}")


def _shadowed(plan: RolloutPlan, step: int, evidence: Evidence) -> Iterator[Finding]:
    """Check the shadow results before the candidate serves."""
    stage = plan.stages[step]
    if step == len(plan.stages) - 1:
        yield Finding(
            "hold",
            "the plan ends in shadow: the candidate served no units, so it cannot be promoted",
        )
    wanted, shadow = max(1, stage.min_units), evidence.shadow
    if shadow is None or shadow.decisions < wanted:
        decisions = 0 if shadow is None else shadow.decisions
        yield Finding("wait", f"{decisions} of at least {wanted} decisions in shadow")
    elif shadow.failures > (1.0 - plan.budget.objective) * shadow.decisions:
        what = f"the candidate failed in {shadow.failures} of {shadow.decisions} shadowed decisions"
        yield Finding("hold", f"{what}; limit {1 - plan.budget.objective:.2%}", "shadow")
    elif shadow.slow > _MOST_SLOW * shadow.decisions:
        what = f"the candidate was slow in {shadow.slow} of {shadow.decisions} shadowed decisions"
        yield Finding("hold", f"{what}; limit {_MOST_SLOW:.0%}", "shadow")
    yield from off_policy_findings(plan, evidence.off_policy)


def off_policy_findings(plan: RolloutPlan, seen: OffPolicyEvidence | None) -> Iterator[Finding]:
    """Yield the findings of off-policy evaluation; None: still running."""
    if seen is None:
        yield Finding("wait", "off-policy evaluation is still running")
        return
    for reason in seen.reasons:
        yield Finding("hold", f"off-policy: {reason}")
    if seen.reasons:
        return
    if seen.value is None or seen.low is None or seen.high is None or seen.control is None:
        yield Finding("hold", "off-policy: no estimate for the candidate")
        return
    if seen.effective_sample_size < plan.min_effective_sample_size:
        what = f"off-policy: effective sample size {seen.effective_sample_size:.0f}"
        yield Finding("hold", f"{what}; at least {plan.min_effective_sample_size:.0f} needed")
    if seen.max_weight_share > plan.max_weight_share:
        what = f"off-policy: largest importance weight is {seen.max_weight_share:.1%} of the sum"
        yield Finding("hold", f"{what}; limit {plan.max_weight_share:.1%}")
    if plan.min_value is not None and seen.low < plan.min_value:
        what = f"off-policy: lower bound of the candidate's mean reward {seen.low:.4f}"
        yield Finding("hold", f"{what}; at least {plan.min_value:g} needed")
    if seen.high < seen.control:
        what = f"off-policy: upper bound of the candidate's mean reward {seen.high:.4f}"
        yield Finding("hold", f"{what}, below the logged mean reward {seen.control:.4f}")


def _served(
    plan: RolloutPlan, step: int, evidence: Evidence, compared: tuple[ArmComparison, ...]
) -> Iterator[Finding]:
    """Check both arms from canary on."""
    yield from _comparable(plan, evidence)
    yield from _unharmed(plan, compared)
    for source in evidence.sources:
        yield from _within_budget(plan, source)
    stage = plan.stages[step]
    for arm, units in zip(("candidate", "control"), evidence.step_closed, strict=True):
        if units < stage.min_units:
            what = f"{units} of at least {stage.min_units} closed units of {arm} at {stage.name}"
            yield Finding("wait", what)
    yield from _known(plan, evidence, compared)
    reward = compared[0].canary_low
    if stage.name == "canary" and reward is not None and reward <= -plan.canary_margin:
        what = f"canary: cannot yet rule out that {compared[0].name} is worse by {-reward:.4f}"
        yield Finding("wait", f"{what}; margin {plan.canary_margin:g}; needs more data")
    if plan.needs_objective(step):
        yield from _objective(plan, compared)


def _comparable(plan: RolloutPlan, evidence: Evidence) -> Iterator[Finding]:
    """Check that both arms have equal sizes and equal shares of missing values."""
    split = sequential_sample_ratio_test(evidence.arrived, level=1.0 - plan.sample_ratio_alpha)
    if split.mismatch:
        candidate, control = evidence.arrived
        what = f"uneven split: {candidate} units on the candidate, {control} on control"
        yield Finding("stop", f"{what} (p {split.p_value:.1g}); units are lost", "sample_ratio")
    for name, metric in evidence.metrics.items():
        if missing_differs(plan, metric, evidence.closed):
            shares = [
                f"{1 - moments.n / closed:.1%}"
                for moments, closed in zip(metric, evidence.closed, strict=True)
            ]
            what = f"{name} is missing for {shares[0]} of the candidate's units and {shares[1]} of"
            yield Finding(
                "stop", f"{what} control's; the arms cannot be compared", "missing_values"
            )


def _unharmed(plan: RolloutPlan, compared: tuple[ArmComparison, ...]) -> Iterator[Finding]:
    """Check that no guardrail is broken."""
    for guardrail, seen in zip(plan.guardrails, compared, strict=True):
        if seen.harm_high is None or seen.harm_high >= -guardrail.tolerate:
            continue
        what = f"{seen.name} is worse by at least {-seen.harm_high:.4f}: {seen.candidate:.4f} "
        what += f"against {seen.control:.4f}, with at least {seen.units} units per arm"
        yield Finding(guardrail.worse, what, "guardrail")


def _within_budget(plan: RolloutPlan, source: SourceEvidence) -> Iterator[Finding]:
    """Check the candidate's error budget; errors of both arms only hold."""
    control = {burn.window for burn in burning(plan.budget, source.control)}
    for burn in burning(plan.budget, source.candidate):
        what = f"the candidate burns the error budget {burn.long_rate:.1f} times too fast over "
        what += f"{burn.window.long_s:.0f} s ({burn.bad:.0f} errors according to {source.name})"
        # If both arms burn the budget, the candidate is not the cause, so the rollout only holds.
        both = burn.window in control
        if both or burn.window.worse == "hold":
            yield Finding("hold", what + ("; control does too" if both else ""))
        else:
            yield Finding("roll_back", what, "error_budget")


def _known(
    plan: RolloutPlan, evidence: Evidence, compared: tuple[ArmComparison, ...]
) -> Iterator[Finding]:
    """Check that every guardrail has values for both arms."""
    for seen in compared:
        if seen.units >= plan.first_look_units:
            continue
        if min(evidence.closed) >= 2 * plan.first_look_units and seen.units == 0:
            yield Finding(
                "hold", f"{seen.name} has no values; check that the application reports it"
            )
        else:
            what = f"{seen.name} has values for {seen.units} units of one arm"
            yield Finding("wait", f"{what}; at least {plan.first_look_units} needed")


def _objective(plan: RolloutPlan, compared: tuple[ArmComparison, ...]) -> Iterator[Finding]:
    """Check what must be shown before the candidate takes over.

    Each bound uses the plan's full alpha without a correction, because a false promotion must pass
    every bound (intersection-union test).
    """
    loss = plan.objective_margin if plan.objective == "non_inferior" else 0.0
    reward = compared[0]
    if reward.gain_low is not None and reward.gain_low <= -loss:
        wanted = f"less than {loss:g} worse" if loss else "better"
        what = f"cannot yet show that {reward.name} is {wanted}: lower bound {reward.gain_low:+.4f}"
        yield Finding("wait", f"{what} after {reward.units} units per arm; needs more data")
    for seen in compared[1:]:
        if (
            seen.worse == "roll_back"
            and seen.gain_low is not None
            and seen.gain_low <= -seen.margin
        ):
            what = f"cannot yet rule out that {seen.name} is worse by {-seen.gain_low:.4f}; "
            yield Finding("wait", f"{what}margin {seen.margin:g}; needs more data")


def promotion_reason(plan: RolloutPlan, step: int, compared: tuple[ArmComparison, ...]) -> str:
    """Return the reason of a promotion."""
    stage = plan.stages[step]
    if stage.name == "shadow":
        return "shadow checks passed"
    reward = compared[0]
    said = f"no guardrail is broken at {stage.name} after {reward.units} units per arm"
    if plan.needs_objective(step):
        said += f", and {reward.name} is better by at least {reward.gain_low:+.4f}"
    return said
