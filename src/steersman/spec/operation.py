"""How a decision point is run: learning, gates, rollout stages, guardrails and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.base import Declared, Fraction, Identifier, Positive, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_STAGE_ORDER = ("shadow", "canary", "ab", "live")


class Learning(Declared):
    """Whether the serving policy learns from what it serves."""

    mode: Literal["online", "frozen"] = "online"
    """`online`: every reward updates the policy. `frozen`: only a new snapshot changes it."""
    bucket_s: Positive = 86_400.0
    """Length of a time bucket in seconds: policies that forget do so once per bucket."""


class Gates(Declared):
    """What off-policy evidence must show before a candidate may be promoted."""

    min_effective_sample_size: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    """Least effective sample size of the importance weights."""
    max_weight_share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Greatest share of the sum that one importance weight may have."""
    min_value: Fraction | None = None
    """Least lower bound of the candidate's reward; null for none."""


class Stage(Declared):
    """One stage of a rollout."""

    name: Literal["shadow", "canary", "ab", "live"]
    """Stages come in this order; any may be left out."""
    share: Fraction
    """Share of units that the candidate serves; 0 for shadow."""
    min_units: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Least number of units before the stage may be left."""

    def _problems(self) -> Iterator[Problem]:
        if self.name == "shadow" and self.share != 0:
            yield Problem(
                ("share",), "a shadow serves nobody", self.share, "0", "set 0 or use canary"
            )


class Guardrail(Declared):
    """An outcome whose share beyond a target must not get worse."""

    outcome: Identifier
    """The outcome that is watched."""
    above: float | None = None
    """A value is bad above this."""
    below: float | None = None
    """A value is bad below this."""
    margin: Fraction = 0.0
    """By how much the candidate's share of bad values may exceed the control's."""
    action: Literal["roll_back", "hold"] = "roll_back"
    """What happens when it does."""

    def _problems(self) -> Iterator[Problem]:
        if (self.above is None) == (self.below is None):
            yield Problem(
                ("above",),
                "a guardrail has one target",
                self.above,
                "exactly one of above and below",
                "declare the one that is bad",
            )


class Rollout(Declared):
    """The stages a candidate goes through, and what sends it back."""

    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1)] = (
        Stage(name="shadow", share=0.0, min_units=100),
        Stage(name="canary", share=0.05),
        Stage(name="ab", share=0.25),
        Stage(name="live", share=0.95),
    )
    """Stages in order, their shares never falling."""
    guardrails: Annotated[tuple[Guardrail, ...], Field(strict=False, max_length=16)] = ()
    """What is watched meanwhile."""

    def _problems(self) -> Iterator[Problem]:
        for place, (before, stage) in enumerate(zip(self.stages, self.stages[1:], strict=False), 1):
            if _STAGE_ORDER.index(stage.name) <= _STAGE_ORDER.index(before.name):
                yield Problem(
                    ("stages", place, "name"),
                    f"{stage.name} after {before.name}",
                    stage.name,
                    "shadow, canary, ab, live in this order, each once",
                    "reorder the stages",
                )
            if stage.share < before.share:
                yield Problem(
                    ("stages", place, "share"),
                    f"less than the {before.share!r} of {before.name} before it",
                    stage.share,
                    f"{before.share!r} to 1",
                    "let shares rise, so that no unit goes back",
                )


class Budgets(Declared):
    """What a decision may take."""

    cost_usd_per_day: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Most that exploration and its outcomes may cost a day, in USD; null for no limit."""
    deadline_ms: Positive = 50.0
    """Time after which the drawn action is served whether it is logged yet or not."""
