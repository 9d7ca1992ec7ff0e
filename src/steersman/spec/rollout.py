"""Declaration of a rollout: stages, guardrails, objective and error budget."""

from __future__ import annotations

from itertools import pairwise
from math import floor, isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from steersman.spec.base import Declared, Fraction, Identifier, Positive, Problem, repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

_STAGE_ORDER = ("shadow", "canary", "ab", "live")
MAX_CANARY = 0.1

Units = Annotated[int, Field(ge=0, le=10**9)]
Seconds = Annotated[float, Field(ge=0, le=366 * 86_400)]
# Below it, the confidence level per guardrail rounds to 1 in float64.
Probability = Annotated[float, Field(ge=1e-9, lt=0.5)]
_LEAST_SHARE = 1e-6  # a smaller share gets almost no units


class Stage(Declared):
    """One stage of a rollout."""

    name: Literal["shadow", "canary", "ab", "live"]
    """Name of the stage. Stages follow this order; each may be omitted, and `ab` may repeat."""
    share: Fraction
    """Share of units that the candidate serves: 0 for shadow, at most 0.1 for canary, at most 0.5
    for ab (its control arm has the same size), 0.5 to 1 for live (the rest is the holdback)."""
    min_units: Units = 0
    """Minimum number of closed units per arm before the stage may end. In shadow: minimum number of
    decisions computed by the candidate."""
    min_s: Seconds = 86_400.0
    """Minimum duration of the stage, in seconds."""

    def _problems(self) -> Iterator[Problem]:
        low, high, why = {
            "shadow": (0.0, 0.0, "a shadow stage serves no units"),
            "canary": (0.0, MAX_CANARY, "a canary stage serves few units"),
            "ab": (0.0, 0.5, "the control arm must have the same size"),
            "live": (0.5, 1.0, "a live stage serves most units"),
        }[self.name]
        if not low <= self.share <= high or (high > 0 and self.share == 0):
            allowed = "0" if high == 0 else f"{low or 'above 0'} to {high}"
            advice = "set 0 or use canary" if self.name == "shadow" else "change it"
            yield Problem(("share",), why, self.share, allowed, advice)
        elif 0 < self.share < _LEAST_SHARE:
            allowed = f"{_LEAST_SHARE:g} to {high}"
            yield Problem(("share",), "share is too small", self.share, allowed, "raise it")
        if self.share == 1 and self.min_units > 0:
            what = "no units are held back for comparison"
            yield Problem(
                ("min_units",), what, self.min_units, "0", "set min_units: 0 or a smaller share"
            )


class Guardrail(Declared):
    """A metric between 0 and 1 that the candidate must not make worse.

    It is the share of values beyond a target (`above` or `below`), or the mean of the values,
    clipped to `low` and `high` and scaled to [0, 1] (`better`). Values are averaged per unit first.
    """

    metric: Literal["reward", "errors"] | None = None
    """Built-in metric: `reward`, or `errors`, the share of decisions that used the fallback or have
    an outcome `error` above 0. Both are always monitored; declare one to change its margin."""
    outcome: Identifier | None = None
    """Name of the monitored outcome. Set either this or `metric`."""
    above: float | None = None
    """Upper target: larger values are bad."""
    below: float | None = None
    """Lower target: smaller values are bad."""
    better: Literal["higher", "lower"] | None = None
    """Compare the mean of the outcome; `higher` or `lower` values are better."""
    low: float = 0.0
    """With `better` only: raw value that is scaled to 0. Smaller values are clipped."""
    high: float = 1.0
    """With `better` only: raw value that is scaled to 1. Larger values are clipped."""
    margin: Fraction = 0.03
    """Non-inferiority margin, 0 to 1 on the metric's scale. A promotion requires evidence that the
    candidate is worse by less than this. 0: requires evidence that it is better."""
    tolerate: Fraction = 0.0
    """Accepted loss, at most `margin`. The guardrail breaks only on evidence that the candidate is
    worse by more than this."""
    action: Literal["roll_back", "hold"] = "roll_back"
    """Action when the guardrail breaks. `roll_back`: return to control at once. `hold`: stay at the
    current stage; promotion then requires no evidence for the margin."""

    def _problems(self) -> Iterator[Problem]:
        if (self.metric is None) == (self.outcome is None):
            allowed = "exactly one of outcome and metric"
            yield Problem(
                ("outcome",),
                "a guardrail needs an outcome or a metric",
                self.outcome,
                allowed,
                "name one",
            )
        elif self.outcome is not None:
            yield from self._target()
        elif (self.above, self.below, self.better) != (None, None, None):
            advice = "remove above, below and better"
            yield Problem(
                ("metric",),
                "a built-in metric has its own target",
                self.metric,
                "no target",
                advice,
            )
        if self.better is None:
            yield from self._range_of_nothing()
        elif not self.low < self.high:
            yield Problem(("high",), "not above low", self.high, f"above {self.low!r}", "raise it")
        elif not isfinite(self.high - self.low):
            what = "high - low is not a finite number"
            yield Problem(("high",), what, self.high, "a range below 1.7e308", "narrow it")
        if self.tolerate > self.margin:
            allowed = f"0 to the margin, {self.margin!r}"
            what = "tolerate is above the margin"
            yield Problem(("tolerate",), what, self.tolerate, allowed, "lower it or raise margin")

    def _range_of_nothing(self) -> Iterator[Problem]:

        for name in ("low", "high"):
            got, default = getattr(self, name), type(self).model_fields[name].default
            if got != default:
                what, advice = f"{name} is only used with better", "remove it, or declare better"
                yield Problem((name,), what, got, f"{default!r} without better", advice)

    def _target(self) -> Iterator[Problem]:
        if sum(target is not None for target in (self.above, self.below, self.better)) != 1:
            yield Problem(
                ("above",),
                "a guardrail needs exactly one target",
                self.above,
                "exactly one of above, below and better",
                "declare one target",
            )


class Objective(Declared):
    """Evidence that a candidate needs before it goes live."""

    kind: Literal["superior", "non_inferior"] = "superior"
    """`superior`: its reward is higher. `non_inferior`: its reward is lower by less than the
    margin."""
    margin: Fraction = 0.0
    """With `non_inferior`: accepted loss of reward, above 0."""

    def _problems(self) -> Iterator[Problem]:
        if (self.kind == "non_inferior") != (self.margin > 0):
            allowed = "above 0 with non_inferior, 0 with superior"
            yield Problem(
                ("margin",),
                f"wrong margin for objective {self.kind}",
                self.margin,
                allowed,
                "change it",
            )


class ErrorBudget(Declared):
    """Error budget of the candidate, and limits of its burn rate.

    A burn rate of 1 uses exactly the budget over the period. The largest rate is
    1 / (1 - objective), when every decision fails. Each rate is checked over a long window and over
    a window of a twelfth of it, so that an alarm ends soon after the failures end.
    """

    objective: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """Required share of decisions without errors."""
    period_s: Positive = 30 * 86_400.0
    """Period of the budget in seconds. The long windows are 1/720, 1/120 and 1/10 of it: one hour,
    six hours and three days of 30 days."""
    fast_burn: Annotated[float, Field(ge=1, le=1000)] = 14.4
    """Burn rate over 1/720 of the period that rolls the candidate back, at most 1 / (1 -
    objective). Default: 14.4, or 0.9 / (1 - objective) if that is smaller."""
    medium_burn: Annotated[float, Field(ge=1, le=1000)] = 6.0
    """Burn rate over 1/120 of the period that rolls the candidate back, at most 1 / (1 -
    objective). Default: 6, or 0.6 / (1 - objective) if that is smaller."""
    slow_burn: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Burn rate over 1/10 of the period that holds the rollout, at most 1 / (1 - objective)."""
    min_errors: Annotated[int, Field(ge=1, le=10**6)] = 10
    """Minimum number of errors in the long window before a rate counts."""

    def model_post_init(self, _context: object) -> None:
        """Lower the default burn rates to values that can be reached."""
        own = self._own()
        self.__dict__.update({name: own[name] for name in own.keys() - self.model_fields_set})

    def meaning(self) -> dict[str, float]:
        """Return the original defaults of rates that were not declared, to keep hashes stable."""
        alone = {name: rate for name, rate in self._own().items() if rate == getattr(self, name)}
        return {name: type(self).model_fields[name].default for name in alone}

    def _own(self) -> dict[str, float]:
        """Return the default burn rates for the objective."""
        most = _fastest(self.objective)
        return {
            name: min(type(self).model_fields[name].default, max(1.0, share * most))
            for name, share in _REACHED.items()
        }

    def _problems(self) -> Iterator[Problem]:
        most = _fastest(self.objective)
        for name in ("fast_burn", "medium_burn", "slow_burn"):
            rate = getattr(self, name)
            if rate > most:
                what = f"unreachable with objective {self.objective!r}, even if all decisions fail"
                # Rounded down, so that the suggested value is valid.
                allowed = f"1 to {floor(most * 1000) / 1000:g}, 1 / (1 - objective)"
                yield Problem((name,), what, rate, allowed, "lower it, or raise objective")


# Default rates as shares of the largest burn rate, if the usual defaults cannot be reached.
_REACHED = {"fast_burn": 0.9, "medium_burn": 0.6}


def _fastest(objective: float) -> float:
    """Return the burn rate when every decision fails."""
    return 1.0 / (1.0 - objective)


_STAGES = (
    Stage(name="shadow", share=0.0, min_units=100),
    Stage(name="canary", share=0.05, min_units=200),
    Stage(name="ab", share=0.25, min_units=200),
    Stage(name="ab", share=0.5, min_units=200),
    Stage(name="live", share=0.95),
)
# The default of an earlier version. Logs and snapshots hold its hash.
_STAGES_BEFORE: tuple[tuple[str, float, int], ...] = (
    ("shadow", 0.0, 100),
    ("canary", 0.05, 0),
    ("ab", 0.25, 0),
    ("live", 0.95, 0),
)


class Rollout(Declared):
    """Stages of a rollout, and the conditions that roll it back."""

    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1, max_length=16)] = _STAGES
    """Stages in order, with non-decreasing shares."""
    guardrails: Annotated[tuple[Guardrail, ...], Field(strict=False, max_length=16)] = ()
    """Guardrails in addition to the reward and errors."""
    objective: Objective = Objective()
    """Evidence required before live."""
    canary_margin: Fraction = 0.1
    """Margin of the reward in the canary stage, 0 to 1: the canary must rule out a larger loss."""
    alpha: Probability = 0.05
    """Probability of promoting a candidate that does not meet the objective, over all looks. Also
    the probability of rolling back a candidate that breaks no guardrail."""
    planned_units: Annotated[int, Field(ge=100, le=10**9)] = 2000
    """Units per arm at which the promotion test is most powerful. `steersman rollout plan` computes
    the number for an effect size. A rollout may use more."""
    harm_units: Annotated[int, Field(ge=50, le=10**9)] = 300
    """Units per arm at which the harm test is most powerful."""
    first_look_units: Annotated[int, Field(ge=20, le=10**6)] = 50
    """Minimum units per arm before the first test of means."""
    sample_ratio_alpha: Annotated[float, Field(gt=0, le=0.05)] = 0.001
    """False-alarm probability of the sample-ratio test, which stops a rollout with uneven arms."""
    unit_window_s: Positive | None = None
    """Time after a unit's first decision in which its decisions count, in seconds. null: the window
    of the reward. A unit counts when its last decision has a reward."""
    stale_s: Positive = 3600.0
    """Time without data, in seconds, after which traffic or a metrics source counts as down."""
    error_budget: ErrorBudget = ErrorBudget()
    """Error budget of the candidate."""
    concurrent: bool = False
    """Whether this rollout may be active while another rollout of the skill is active."""

    def meaning(self) -> dict[str, Any]:
        """Return the hashed content. Fields at their defaults keep the form of earlier versions."""
        dumped = self.model_dump(mode="json")
        dumped["error_budget"] |= self.error_budget.meaning()
        if self.stages == _STAGES:
            before = [
                {"name": name, "share": share, "min_units": units}
                for name, share, units in _STAGES_BEFORE
            ]
            return _declared(self, dumped, kept={"guardrails"}) | {"stages": before}
        meaning = _declared(self, dumped, kept={"stages", "guardrails"})
        if [(stage.name, stage.share, stage.min_units) for stage in self.stages] == list(
            _STAGES_BEFORE
        ):
            # Declared explicitly it is not the default, so the hash must differ.
            meaning["declared"] = True
        return meaning

    def _problems(self) -> Iterator[Problem]:
        for step, (before, stage) in enumerate(pairwise(self.stages), 1):
            later = _STAGE_ORDER.index(stage.name) - _STAGE_ORDER.index(before.name)
            if later < 0 or (later == 0 and stage.name != "ab"):
                yield Problem(
                    ("stages", step, "name"),
                    f"wrong order: {stage.name} after {before.name}",
                    stage.name,
                    "shadow, canary, ab, live in this order; only ab may repeat",
                    "reorder the stages",
                )
            if stage.share < before.share:
                yield Problem(
                    ("stages", step, "share"),
                    f"less than the share {before.share!r} of the stage before ({before.name})",
                    stage.share,
                    f"{before.share!r} to 1",
                    "use non-decreasing shares, so that units stay on the candidate",
                )
        for place, name in repeated(_names(self.guardrails)):
            advice = "keep one of the two"
            yield Problem(
                ("guardrails", place), "declared twice", name, "each guardrail once", advice
            )


def _names(guardrails: tuple[Guardrail, ...]) -> list[str]:
    return [guardrail_name(guardrail) for guardrail in guardrails]


def guardrail_name(guardrail: Guardrail) -> str:
    """Return the name of a guardrail.

    Returns:
        The metric, or the outcome with its target.

    >>> guardrail_name(Guardrail(outcome="latency_ms", above=900))
    'latency_ms>900'
    """
    if guardrail.metric is not None:
        return guardrail.metric
    if guardrail.above is not None:
        return f"{guardrail.outcome}>{_digits(guardrail.above)}"
    if guardrail.below is not None:
        return f"{guardrail.outcome}<{_digits(guardrail.below)}"
    # `mean(...)` separates an outcome named `reward` from the metric of that name.
    return f"mean({guardrail.outcome})"


def _digits(number: float) -> str:
    """Return the shortest text that identifies the number."""
    brief = f"{number:g}"
    return brief if float(brief) == number else repr(number).removesuffix(".0")


_KEPT = {
    "Stage": {"name", "share", "min_units"},
    "Guardrail": {"outcome", "above", "below", "margin", "action"},
}


def _declared(part: Declared, dumped: dict[str, Any], kept: set[str]) -> dict[str, Any]:
    """Leave out fields at their defaults, except those that earlier versions wrote."""
    entries: dict[str, Any] = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name not in kept and value == field.default:
            continue
        entries[name] = dumped[name]
        if isinstance(value, tuple):
            entries[name] = [
                _declared(item, inner, _KEPT[type(item).__name__])
                for item, inner in zip(value, dumped[name], strict=True)
            ]
    return entries
