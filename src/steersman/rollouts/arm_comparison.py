"""Comparison of both arms for each guardrail, with always-valid confidence intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steersman.stats import Interval, Moments, two_arm_confidence_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.rollouts.plan import PlannedGuardrail, RolloutPlan, Worse


class MetricEvidence(NamedTuple):
    """Values of one guardrail, one per closed unit that has any.

    Attributes:
        candidate: moments of the candidate's units.
        control: moments of the control's units.
    """

    candidate: Moments
    control: Moments


class ArmComparison(NamedTuple):
    """Comparison of both arms for one guardrail.

    ``low`` and ``high`` bound candidate minus control, each separately, at the guardrail's alpha:
    they show harm. ``gain_low`` and ``canary_low`` bound how much *better* the candidate is
    (negative: worse) at the plan's alpha, tuned for promotion and for the canary.

    Attributes:
        name: name of the guardrail.
        better: good direction.
        margin: accepted loss for a promotion.
        worse: consequence of a broken guardrail.
        units: units of the smaller arm.
        candidate: mean over the candidate's units; None without units.
        control: mean over the control's units; None without units.
        low: lower bound of candidate minus control; None before the first look.
        high: upper bound of candidate minus control.
        harm_high: upper bound of how much better the candidate is; below 0 it is worse.
        gain_low: lower bound of how much better the candidate is, for promotion.
        canary_low: the same bound, tuned for few units.
    """

    name: str
    better: Literal["higher", "lower"]
    margin: float
    worse: Worse
    units: int
    candidate: float | None
    control: float | None
    low: float | None = None
    high: float | None = None
    harm_high: float | None = None
    gain_low: float | None = None
    canary_low: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for display."""
        return self._asdict()


def compare(plan: RolloutPlan, metrics: Mapping[str, MetricEvidence]) -> tuple[ArmComparison, ...]:
    """Compare both arms for each guardrail of a plan."""
    nothing = MetricEvidence(Moments(0, 0.0, 0.0), Moments(0, 0.0, 0.0))
    return tuple(
        _compare(plan, guardrail, metrics.get(guardrail.name, nothing))
        for guardrail in plan.guardrails
    )


def steadied(moments: Moments) -> Moments:
    """Return moments with the variance after adding one 0 and one 1.

    Thirty decisions without an error do not prove an error rate of 0. The two added values make
    the variance of n zeros about 1 / n, like the rule of three. They hardly change the variance of
    varied values.

    Args:
        moments: moments of values from 0 to 1.

    Example:
        >>> steadied(Moments(98, 0.0, 0.0)).variance
        0.0099

    Source:
        Agresti and Caffo (2000), Simple and effective confidence intervals for proportions and
        differences of proportions result from adding two successes and two failures; here only
        for the variance.
    """
    n, mean = moments.n, moments.mean
    squares = max(n - 1, 0) * moments.variance + n * mean * mean
    varied = (squares + 1.0) / (n + 2) - ((n * mean + 1.0) / (n + 2)) ** 2
    return Moments(n, mean, max(varied, moments.variance))


def missing_differs(plan: RolloutPlan, metric: MetricEvidence, closed: tuple[int, int]) -> bool:
    """Return whether one arm's units lack a value more often than the other's.

    Then the units with a value are not comparable, and their intervals are invalid.
    """
    if min(closed) < plan.first_look_units:
        return False
    shares = []
    for moments, units in zip(metric, closed, strict=True):
        without = 1.0 - moments.n / units
        shares.append(steadied(Moments(units, without, without * (1.0 - without))))
    level = 1.0 - plan.sample_ratio_alpha / len(plan.guardrails)
    star = 2 * plan.harm_units
    low, high = two_arm_confidence_sequence(shares[0], shares[1], level=level, n_star=star)
    return not low <= 0.0 <= high


def _compare(
    plan: RolloutPlan, guardrail: PlannedGuardrail, metric: MetricEvidence
) -> ArmComparison:
    candidate, control = metric
    known = ArmComparison(
        guardrail.name,
        guardrail.better,
        guardrail.margin,
        guardrail.worse,
        min(candidate.n, control.n),
        candidate.mean if candidate.n else None,
        control.mean if control.n else None,
    )
    if known.units < plan.first_look_units:
        return known
    arms = steadied(candidate), steadied(control)
    harm, planned = 2 * plan.harm_units, 2 * plan.planned_units

    def bounds(alpha: float, n_star: int) -> Interval:
        return two_arm_confidence_sequence(*arms, level=1.0 - alpha, n_star=n_star, one_sided=True)

    low, high = bounds(guardrail.alpha, harm)
    gain, canary = bounds(plan.alpha, planned), bounds(plan.alpha, harm)
    higher = guardrail.better == "higher"
    return known._replace(
        low=low,
        high=high,
        harm_high=high if higher else -low,
        gain_low=gain.low if higher else -gain.high,
        canary_low=canary.low if higher else -canary.high,
    )
