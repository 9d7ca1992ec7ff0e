"""The checks of a verdict. Each yields what is wrong, how much that weighs, and whom to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from steersman.rollout.burn import burning
from steersman.rollout.comparing import missing_differs
from steersman.stats import sequential_sample_ratio_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.rollout.comparing import Compared
    from steersman.rollout.counted import Evidence, OffPolicyEvidence, SourceEvidence
    from steersman.rollout.plan import PlannedStage, RolloutPlan

Weight = Literal["roll_back", "stop", "hold", "wait"]

_MOST_SLOW = 0.1
"""Share of shadowed decisions that may take longer than they should."""


class Finding(NamedTuple):
    """A reason not to go on.

    Attributes:
        weight: what it leads to.
        reason: for people, with the numbers.
        incident: the kind of trouble that people are to be told of; None for none.
    """

    weight: Weight
    reason: str
    incident: str | None = None


def failures(
    plan: RolloutPlan, step: int, evidence: Evidence, compared: tuple[Compared, ...], now: float
) -> Iterator[Finding]:
    """Yield every reason not to go on from a step.

    Args:
        plan: of the rollout.
        step: place in its stages.
        evidence: what was counted.
        compared: what is known about each guardrail.
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
    """Check time, traffic and sources: what must be true at every stage."""
    for doubt in evidence.doubts:
        yield Finding("hold", doubt)
    passed = now - evidence.step_started_at
    if passed < 0.0:
        yield Finding("hold", f"this step began {-passed:.0f} s in the future: check the clocks")
    elif passed < stage.min_s:
        yield Finding("wait", f"{passed:.0f} of {stage.min_s:.0f} s at {stage.name}")
    last = evidence.last_decision_at
    silent = now - (evidence.step_started_at if last is None else last)
    if silent > plan.stale_s:
        what = f"no decision for {silent:.0f} s, more than {plan.stale_s:.0f}: is there traffic?"
        yield Finding("hold", what)
    elif last is None:
        yield Finding("wait", "no decision yet")
    if not evidence.sources:
        yield Finding("hold", "no source of metrics was asked")
    for source in evidence.sources:
        if not source.alive:
            why = source.reason or "it does not say why"
            yield Finding("hold", f"metrics source {source.name} is dead: {why}")
        elif source.behind:
            yield Finding("hold", f"metrics source {source.name} is behind: {source.behind}")


def _shadowed(plan: RolloutPlan, step: int, evidence: Evidence) -> Iterator[Finding]:
    """Check what was seen before anybody is served."""
    stage = plan.stages[step]
    if step == len(plan.stages) - 1:
        yield Finding("hold", "the plan ends in shadow: nobody was served, so nothing is promoted")
    wanted, shadow = max(1, stage.min_units), evidence.shadow
    if shadow is None or shadow.decisions < wanted:
        decisions = 0 if shadow is None else shadow.decisions
        yield Finding("wait", f"{decisions} of {wanted} decisions in shadow")
    elif shadow.failures > (1.0 - plan.budget.objective) * shadow.decisions:
        what = f"the candidate failed in {shadow.failures} of {shadow.decisions} shadowed decisions"
        yield Finding("hold", f"{what}, more than {1 - plan.budget.objective:.2%}", "shadow")
    elif shadow.slow > _MOST_SLOW * shadow.decisions:
        what = f"the candidate was slow in {shadow.slow} of {shadow.decisions} shadowed decisions"
        yield Finding("hold", f"{what}, more than {_MOST_SLOW:.0%}", "shadow")
    yield from what_the_log_says(plan, evidence.off_policy)


def what_the_log_says(plan: RolloutPlan, seen: OffPolicyEvidence | None) -> Iterator[Finding]:
    """Yield what off-policy evidence has against a candidate: numbers, not only its own reasons.

    Args:
        plan: of the rollout.
        seen: the evidence; None: the log was not asked yet.
    """
    if seen is None:
        yield Finding("wait", "the log has not been asked about the candidate yet")
        return
    for reason in seen.reasons:
        yield Finding("hold", f"off-policy: {reason}")
    if seen.reasons:
        return
    if seen.value is None or seen.low is None or seen.high is None or seen.control is None:
        yield Finding("hold", "off-policy: the log gives no value for the candidate")
        return
    if seen.effective_sample_size < plan.min_effective_sample_size:
        what = f"off-policy: effective sample size {seen.effective_sample_size:.0f}"
        yield Finding("hold", f"{what}, below {plan.min_effective_sample_size:.0f}")
    if seen.max_weight_share > plan.max_weight_share:
        what = f"off-policy: one weight has {seen.max_weight_share:.1%} of the sum"
        yield Finding("hold", f"{what}, above {plan.max_weight_share:.1%}")
    if plan.min_value is not None and seen.low < plan.min_value:
        what = f"off-policy: the candidate's value may be as low as {seen.low:.4f}"
        yield Finding("hold", f"{what}, below {plan.min_value:g}")
    if seen.high < seen.control:
        what = f"off-policy: the candidate's value is at most {seen.high:.4f}"
        yield Finding("hold", f"{what}, and the log earned {seen.control:.4f}")


def _served(
    plan: RolloutPlan, step: int, evidence: Evidence, compared: tuple[Compared, ...]
) -> Iterator[Finding]:
    """Check both arms from canary on."""
    yield from _comparable(plan, evidence)
    yield from _unharmed(plan, compared)
    for source in evidence.sources:
        yield from _within_budget(plan, source)
    stage = plan.stages[step]
    for arm, units in zip(("candidate", "control"), evidence.step_closed, strict=True):
        if units < stage.min_units:
            what = f"{units} of {stage.min_units} units of {arm} closed at {stage.name}"
            yield Finding("wait", what)
    yield from _known(plan, evidence, compared)
    reward = compared[0].canary_low
    if stage.name == "canary" and reward is not None and reward <= -plan.canary_margin:
        what = f"the canary's {compared[0].name} may be worse by {-reward:.4f}"
        yield Finding("wait", f"{what}; less than {plan.canary_margin:g} must be shown")
    if plan.needs_objective(step):
        yield from _objective(plan, compared)


def _comparable(plan: RolloutPlan, evidence: Evidence) -> Iterator[Finding]:
    """Check that both arms are of the same size and lack numbers equally often."""
    split = sequential_sample_ratio_test(evidence.arrived, level=1.0 - plan.sample_ratio_alpha)
    if split.mismatch:
        candidate, control = evidence.arrived
        what = f"{candidate} units on the candidate and {control} on control are no even split"
        yield Finding("stop", f"{what} (p {split.p_value:.1g}): units get lost", "sample_ratio")
    for name, metric in evidence.metrics.items():
        if missing_differs(plan, metric, evidence.closed):
            shares = [
                f"{1 - moments.n / closed:.1%}"
                for moments, closed in zip(metric, evidence.closed, strict=True)
            ]
            what = f"{name} is missing in {shares[0]} of the candidate's units and {shares[1]} of"
            yield Finding("stop", f"{what} control's: they cannot be compared", "missing_values")


def _unharmed(plan: RolloutPlan, compared: tuple[Compared, ...]) -> Iterator[Finding]:
    """Check that no guardrail is shown to be broken."""
    for guardrail, seen in zip(plan.guardrails, compared, strict=True):
        if seen.harm_high is None or seen.harm_high >= -guardrail.tolerate:
            continue
        what = f"{seen.name} is worse by at least {-seen.harm_high:.4f}: {seen.candidate:.4f} "
        what += f"against {seen.control:.4f}, {seen.units} units of each arm or more"
        yield Finding(guardrail.worse, what, "guardrail")


def _within_budget(plan: RolloutPlan, source: SourceEvidence) -> Iterator[Finding]:
    """Check that the candidate does not burn the error budget, or not alone."""
    control = {burn.window for burn in burning(plan.budget, source.control)}
    for burn in burning(plan.budget, source.candidate):
        what = f"the candidate burns the error budget {burn.long_rate:.1f} times too fast over "
        what += f"{burn.window.long_s:.0f} s ({burn.bad:.0f} errors, says {source.name})"
        # What both arms suffer is not the candidate's doing; but nothing goes on meanwhile.
        both = burn.window in control
        if both or burn.window.worse == "hold":
            yield Finding("hold", what + (", and so does control" if both else ""))
        else:
            yield Finding("roll_back", what, "error_budget")


def _known(
    plan: RolloutPlan, evidence: Evidence, compared: tuple[Compared, ...]
) -> Iterator[Finding]:
    """Check that every guardrail has values of both arms."""
    for seen in compared:
        if seen.units >= plan.first_look_units:
            continue
        if min(evidence.closed) >= 2 * plan.first_look_units and seen.units == 0:
            yield Finding("hold", f"{seen.name} has no values: does anybody report it?")
        else:
            what = f"{seen.name} has values of {seen.units} units of an arm"
            yield Finding("wait", f"{what}; {plan.first_look_units} are needed")


def _objective(plan: RolloutPlan, compared: tuple[Compared, ...]) -> Iterator[Finding]:
    """Check what must be shown before the candidate takes over.

    Each bound is at the plan's full alpha: to be promoted falsely, a candidate must pass all of
    them, so the chance is that of the one where it is bad, and nothing is split.
    """
    loss = plan.objective_margin if plan.objective == "non_inferior" else 0.0
    reward = compared[0]
    if reward.gain_low is not None and reward.gain_low <= -loss:
        wanted = f"less than {loss:g} worse" if loss else "better"
        what = f"{reward.name} is not shown to be {wanted} yet: at least {reward.gain_low:+.4f}"
        yield Finding("wait", f"{what} after {reward.units} units of each arm")
    for seen in compared[1:]:
        if (
            seen.worse == "roll_back"
            and seen.gain_low is not None
            and seen.gain_low <= -seen.margin
        ):
            what = f"{seen.name} may be worse by {-seen.gain_low:.4f}; less than its margin "
            yield Finding("wait", f"{what}{seen.margin:g} must be shown")


def what_was_shown(plan: RolloutPlan, step: int, compared: tuple[Compared, ...]) -> str:
    """Return what a promotion rests on.

    Args:
        plan: of the rollout.
        step: place in its stages.
        compared: what is known about each guardrail.
    """
    stage = plan.stages[step]
    if stage.name == "shadow":
        return "the log and the shadow hold nothing against the candidate"
    reward = compared[0]
    said = f"after {reward.units} units of each arm no guardrail is broken at {stage.name}"
    if plan.needs_objective(step):
        said += f", and {reward.name} is better by at least {reward.gain_low:+.4f}"
    return said
