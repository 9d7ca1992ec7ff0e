"""The stages through which a candidate comes to serve, and what holds it or sends it back."""

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
# Below it, one less the part of a guardrail among several is 1 in floats: a level nobody can hold.
Probability = Annotated[float, Field(ge=1e-9, lt=0.5)]
_LEAST_SHARE = 1e-6  # of which a unit comes along once in years, if ever


class Stage(Declared):
    """One stage of a rollout."""

    name: Literal["shadow", "canary", "ab", "live"]
    """Stages come in this order; any may be left out, and `ab` may have several steps."""
    share: Fraction
    """Share of units that the candidate serves: 0 for shadow, at most 0.1 for canary and 0.5 for
    ab, whose control arms are of equal size; what is left at live is the holdback."""
    min_units: Units = 0
    """Least number of units of each arm that are closed in this stage before it may be left; in
    shadow, of decisions that the candidate was computed for."""
    min_s: Seconds = 86_400.0
    """Least time in seconds before the stage may be left."""

    def _problems(self) -> Iterator[Problem]:
        low, high, why = {
            "shadow": (0.0, 0.0, "a shadow serves nobody"),
            "canary": (0.0, MAX_CANARY, "a canary serves few"),
            "ab": (0.0, 0.5, "the control arm has the same size"),
            "live": (0.5, 1.0, "live serves most, and the rest is the holdback"),
        }[self.name]
        if not low <= self.share <= high or (high > 0 and self.share == 0):
            allowed = "0" if high == 0 else f"{low or 'above 0'} to {high}"
            advice = "set 0 or use canary" if self.name == "shadow" else "change it"
            yield Problem(("share",), why, self.share, allowed, advice)
        elif 0 < self.share < _LEAST_SHARE:
            allowed = f"{_LEAST_SHARE:g} to {high}"
            yield Problem(("share",), "nobody would be served", self.share, allowed, "raise it")
        if self.share == 1 and self.min_units > 0:
            what = "nobody is held back to compare with"
            yield Problem(("min_units",), what, self.min_units, "0", "set 0 or a smaller share")


class Guardrail(Declared):
    """A number between 0 and 1 per decision that must not get worse.

    Either the share of values beyond a target (`above` or `below`), or the mean of the value
    itself, cut to `low` and `high` and brought to 0 to 1 (`better`). Averaged per unit first.
    """

    metric: Literal["reward", "errors"] | None = None
    """What Steersman knows itself: `reward`, or `errors`, the share of decisions that the policy
    could not answer or whose outcome `error` is above 0. Both are watched unless declared."""
    outcome: Identifier | None = None
    """The outcome that is watched; this or `metric`."""
    above: float | None = None
    """A value is bad above this."""
    below: float | None = None
    """A value is bad below this."""
    better: Literal["higher", "lower"] | None = None
    """Watches the mean of the outcome, of which `higher` or `lower` is better."""
    low: float = 0.0
    """With `better` alone: the raw value that counts as 0, and any below it."""
    high: float = 1.0
    """With `better` alone: the raw value that counts as 1, and any above it."""
    margin: Fraction = 0.03
    """How much worse the candidate may be, 0 to 1 on that scale. To be promoted it must be shown to
    be worse by less than this; 0 asks that it be shown better."""
    tolerate: Fraction = 0.0
    """A difference that is accepted as a price, at most `margin`: it breaks the guardrail only when
    it is shown to be worse by more than this."""
    action: Literal["roll_back", "hold"] = "roll_back"
    """What happens when the guardrail is broken: back to control at once, or no further. What may
    only hold needs no margin to be shown."""

    def _problems(self) -> Iterator[Problem]:
        if (self.metric is None) == (self.outcome is None):
            allowed = "exactly one of outcome and metric"
            yield Problem(("outcome",), "what is watched?", self.outcome, allowed, "name one")
        elif self.outcome is not None:
            yield from self._target()
        elif (self.above, self.below, self.better) != (None, None, None):
            advice = "remove above, below and better"
            yield Problem(("metric",), "it has its own target", self.metric, "no target", advice)
        if self.better is None:
            yield from self._range_of_nothing()
        elif not self.low < self.high:
            yield Problem(("high",), "not above low", self.high, f"above {self.low!r}", "raise it")
        elif not isfinite(self.high - self.low):
            what = "high - low is not a finite number"
            yield Problem(("high",), what, self.high, "a range below 1.7e308", "narrow it")
        if self.tolerate > self.margin:
            allowed = f"0 to the margin, {self.margin!r}"
            what = "more than the margin could never be promoted"
            yield Problem(("tolerate",), what, self.tolerate, allowed, "lower it or raise margin")

    def _range_of_nothing(self) -> Iterator[Problem]:
        """Yield that a range is declared which nothing is brought to."""
        for name in ("low", "high"):
            got, default = getattr(self, name), type(self).model_fields[name].default
            if got != default:
                what, advice = f"{name} belongs to better", "remove it, or declare better"
                yield Problem((name,), what, got, f"{default!r} without better", advice)

    def _target(self) -> Iterator[Problem]:
        if sum(target is not None for target in (self.above, self.below, self.better)) != 1:
            yield Problem(
                ("above",),
                "a guardrail has one target",
                self.above,
                "exactly one of above, below and better",
                "declare the one that is bad",
            )


class Objective(Declared):
    """What a candidate must have shown before it goes live."""

    kind: Literal["superior", "non_inferior"] = "superior"
    """`superior`: its reward is better. `non_inferior`: it is worse by less than the margin."""
    margin: Fraction = 0.0
    """With `non_inferior`: the loss of reward that would be accepted, above 0."""

    def _problems(self) -> Iterator[Problem]:
        if (self.kind == "non_inferior") != (self.margin > 0):
            allowed = "above 0 with non_inferior, 0 with superior"
            yield Problem(("margin",), f"objective {self.kind}", self.margin, allowed, "change it")


class ErrorBudget(Declared):
    """How many decisions may fail, and how fast the budget may burn.

    A burn rate of 1 uses up exactly the budget over the period; where every decision fails it is
    1 / (1 - objective), and no more. Each rate is watched over a long window and, so that it ends
    when the trouble ends, over a twelfth of it.
    """

    objective: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """Share of decisions that must be free of errors."""
    period_s: Positive = 30 * 86_400.0
    """Period of the budget in seconds; the windows are fractions of it: 1/720, 1/120 and 1/10,
    which are an hour, six hours and three days of thirty."""
    fast_burn: Annotated[float, Field(ge=1, le=1000)] = 14.4
    """Burn rate over 1/720 of the period at which the candidate is rolled back, up to
    1 / (1 - objective); not given: 14.4, or 0.9 of that where it is less."""
    medium_burn: Annotated[float, Field(ge=1, le=1000)] = 6.0
    """Burn rate over 1/120 of the period at which the candidate is rolled back, up to
    1 / (1 - objective); not given: 6, or 0.6 of that where it is less."""
    slow_burn: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Burn rate over 1/10 of the period at which the rollout holds, up to 1 / (1 - objective)."""
    min_errors: Annotated[int, Field(ge=1, le=10**6)] = 10
    """Errors in the long window below which no rate is believed."""

    def model_post_init(self, _context: object) -> None:
        """Lower what was not declared to what can be reached, so that it can act.

        Args:
            _context: what a validation was given, and nothing here.
        """
        own = self._own()
        self.__dict__.update({name: own[name] for name in own.keys() - self.model_fields_set})

    def meaning(self) -> dict[str, float]:
        """Return rates that are as they would be by themselves, as they were always hashed."""
        alone = {name: rate for name, rate in self._own().items() if rate == getattr(self, name)}
        return {name: type(self).model_fields[name].default for name in alone}

    def _own(self) -> dict[str, float]:
        """Return the rates that roll back where none are declared."""
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
                what = (
                    f"never reached, even if all decisions fail, with objective {self.objective!r}"
                )
                # Rounded down: what is advised is taken.
                allowed = f"1 to {floor(most * 1000) / 1000:g}, 1 / (1 - objective)"
                yield Problem((name,), what, rate, allowed, "lower it, or raise objective")


# Of the fastest burn rate there is: what rolls back by itself where the usual rates are beyond it.
_REACHED = {"fast_burn": 0.9, "medium_burn": 0.6}


def _fastest(objective: float) -> float:
    """Return the burn rate where every decision fails."""
    return 1.0 / (1.0 - objective)


_STAGES = (
    Stage(name="shadow", share=0.0, min_units=100),
    Stage(name="canary", share=0.05, min_units=200),
    Stage(name="ab", share=0.25, min_units=200),
    Stage(name="ab", share=0.5, min_units=200),
    Stage(name="live", share=0.95),
)
# What the default was before there was more to declare. Its hash stands in logs and snapshots.
_STAGES_BEFORE: tuple[tuple[str, float, int], ...] = (
    ("shadow", 0.0, 100),
    ("canary", 0.05, 0),
    ("ab", 0.25, 0),
    ("live", 0.95, 0),
)


class Rollout(Declared):
    """The stages a candidate goes through, and what sends it back."""

    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1, max_length=16)] = _STAGES
    """Stages in order, their shares never falling."""
    guardrails: Annotated[tuple[Guardrail, ...], Field(strict=False, max_length=16)] = ()
    """What is watched meanwhile, besides the reward and errors."""
    objective: Objective = Objective()
    """What must have been shown before live."""
    canary_margin: Fraction = 0.1
    """How much worse the reward may be for all that the canary shows, 0 to 1."""
    alpha: Probability = 0.05
    """Chance of promoting a candidate that does not meet the objective, over all looks; and the
    same again of rolling back one that breaks no guardrail."""
    planned_units: Annotated[int, Field(ge=100, le=10**9)] = 2000
    """Units per arm at which promotion is easiest to show; `steersman rollout plan` says how many
    an effect takes. More are possible."""
    harm_units: Annotated[int, Field(ge=50, le=10**9)] = 300
    """Units per arm at which harm is easiest to show: early."""
    first_look_units: Annotated[int, Field(ge=20, le=10**6)] = 50
    """Units of each arm before the first conclusion from means."""
    sample_ratio_alpha: Annotated[float, Field(gt=0, le=0.05)] = 0.001
    """Chance of stopping for arms of unequal size when they were split as planned."""
    unit_window_s: Positive | None = None
    """How long after a unit's first decision its decisions count, in seconds; null: as long as the
    window of the reward. A unit's number enters when the last of them has its reward."""
    stale_s: Positive = 3600.0
    """Traffic or a metrics source is taken for dead when nothing came for so many seconds."""
    error_budget: ErrorBudget = ErrorBudget()
    """How many decisions of the candidate may fail."""
    concurrent: bool = False
    """Whether it may run while another decision point of the skill has a rollout."""

    def meaning(self) -> dict[str, Any]:
        """Return what is hashed of it: what was not declared is as it was before it could be."""
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
            # Written out it is no longer the default: another meaning, so another hash.
            meaning["declared"] = True
        return meaning

    def _problems(self) -> Iterator[Problem]:
        for step, (before, stage) in enumerate(pairwise(self.stages), 1):
            later = _STAGE_ORDER.index(stage.name) - _STAGE_ORDER.index(before.name)
            if later < 0 or (later == 0 and stage.name != "ab"):
                yield Problem(
                    ("stages", step, "name"),
                    f"{stage.name} after {before.name}",
                    stage.name,
                    "shadow, canary, ab, live in this order, each once but ab",
                    "reorder the stages",
                )
            if stage.share < before.share:
                yield Problem(
                    ("stages", step, "share"),
                    f"less than the {before.share!r} of {before.name} before it",
                    stage.share,
                    f"{before.share!r} to 1",
                    "let shares rise, so that no unit goes back",
                )
        for place, name in repeated(_names(self.guardrails)):
            advice = "keep one of the two"
            yield Problem(("guardrails", place), "watched twice", name, "each once", advice)


def _names(guardrails: tuple[Guardrail, ...]) -> list[str]:
    return [guardrail_name(guardrail) for guardrail in guardrails]


def guardrail_name(guardrail: Guardrail) -> str:
    """Return what a guardrail is called.

    Args:
        guardrail: as it was declared.

    Returns:
        Its metric, or its outcome with its target, to all digits that it has.

    >>> guardrail_name(Guardrail(outcome="latency_ms", above=900))
    'latency_ms>900'
    """
    if guardrail.metric is not None:
        return guardrail.metric
    if guardrail.above is not None:
        return f"{guardrail.outcome}>{_digits(guardrail.above)}"
    if guardrail.below is not None:
        return f"{guardrail.outcome}<{_digits(guardrail.below)}"
    # An outcome may be called `reward`: its mean is told from the metric of that name.
    return f"mean({guardrail.outcome})"


def _digits(number: float) -> str:
    """Return a number as briefly as it can be told from every other."""
    brief = f"{number:g}"
    return brief if float(brief) == number else repr(number).removesuffix(".0")


_KEPT = {
    "Stage": {"name", "share", "min_units"},
    "Guardrail": {"outcome", "above", "below", "margin", "action"},
}


def _declared(part: Declared, dumped: dict[str, Any], kept: set[str]) -> dict[str, Any]:
    """Leave out fields at their defaults, except those that were always written."""
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
