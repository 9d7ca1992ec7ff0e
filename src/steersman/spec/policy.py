"""The policies a decision point can name, with their parameters and defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from steersman.errors import SpecError
from steersman.spec.base import ActionName, Declared, Fraction, Identifier, Positive
from steersman.spec.expressions import compile_rule

Forget = Annotated[float, Field(gt=0, le=1)]
Ridge = Annotated[float, Field(ge=1e-9, le=1e9)]
NonNegative = Annotated[float, Field(ge=0, le=1e9)]


def _target_tag(value: object) -> str:
    return "#parts" if isinstance(value, dict) else "#name"


Configuration = Annotated[
    dict[Identifier, str | bool | int | float], Field(min_length=1), Tag("#parts")
]
Target = Annotated[Annotated[ActionName, Tag("#name")] | Configuration, Discriminator(_target_tag)]
"""A named action, or a value for every part of a mixed one."""


class Rule(Declared):
    """An action and the condition under which it is taken."""

    when: str
    """A condition on the context, such as `confidence < 0.2 and intent in ["faq", "chat"]`."""
    action: Target
    """The action taken when the condition holds."""

    @field_validator("when")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            compile_rule(text)
        except SpecError as error:
            what, _, allowed = str(error).partition("; allowed: ")
            details = {"what": what, "allowed": allowed, "advice": "correct the condition"}
            message = "{what}; allowed {allowed}; {advice}"
            raise PydanticCustomError("declared", message, details) from None
        return text


Rules = Annotated[tuple[Rule, ...], Field(strict=False, max_length=100)]


class RuleList(Declared):
    """Rules in order, the first that holds wins, and what is done when none does."""

    rules: Rules = ()
    """Conditions and actions, tried in order."""
    otherwise: Target
    """The action when no rule holds: a name; `first` for the first eligible of open candidates; a
    value for each part where actions are mixed."""


class LinUCBPolicy(Declared):
    """Ridge regression per action, and a bonus for what is uncertain."""

    algorithm: Literal["lin_ucb"]
    """Which policy this is."""
    alpha: NonNegative = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Strength of the pull of every coefficient towards zero."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class LinTSPolicy(Declared):
    """Bayesian linear regression per action; each action is drawn as often as it may be best."""

    algorithm: Literal["lin_ts"]
    """Which policy this is."""
    prior_var: Positive = 1.0
    """Variance of a coefficient before anything is seen."""
    noise_var: Positive = 0.1
    """Variance of a reward around its mean."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class BetaThompsonPolicy(Declared):
    """A Beta distribution of the success of each action, apart for each value of a key."""

    algorithm: Literal["beta_thompson"]
    """Which policy this is."""
    prior: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1e6)], Annotated[float, Field(gt=0, le=1e6)]],
        Field(strict=False),
    ] = (1.0, 1.0)
    """Successes and failures counted before anything is seen."""
    key: Identifier | None = None
    """The category field that tells cases apart; null keeps one distribution per action."""


class EpsilonGreedyPolicy(Declared):
    """The best action so far, and with a falling probability any other."""

    algorithm: Literal["epsilon_greedy"]
    """Which policy this is."""
    epsilon: Fraction = 0.1
    """Probability of exploring at the start."""
    decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on epsilon per learned reward."""
    min_epsilon: Fraction = 0.01
    """What epsilon never falls below."""
    contextual: bool = False
    """Whether the best action depends on the context (ridge regression) or not (means)."""


class FixedPolicy(Declared):
    """Always the same action."""

    algorithm: Literal["fixed"]
    """Which policy this is."""
    action: Target
    """The action."""


class RulesPolicy(RuleList):
    """The first rule that holds decides."""

    algorithm: Literal["rules"]
    """Which policy this is."""


class JointSquareCBPolicy(Declared):
    """One regression over per-action features; probability falls with the gap to the best."""

    algorithm: Literal["joint_squarecb"]
    """Which policy this is."""
    gamma: Positive = 100.0
    """How sharply the probability falls with the gap; larger explores less."""
    ridge: Ridge = 1.0
    """Strength of the pull of every coefficient towards zero."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class JointLinTSPolicy(Declared):
    """One Bayesian regression over per-action features; seeded posterior draws are the choice."""

    algorithm: Literal["joint_lin_ts"]
    """Which policy this is."""
    prior_var: Positive = 1.0
    """Variance of a coefficient before anything is seen."""
    noise_var: Positive = 0.1
    """Variance of a reward around its mean."""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Posterior draws per decision; their frequencies are the distribution."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


Policy = Annotated[
    LinUCBPolicy
    | LinTSPolicy
    | BetaThompsonPolicy
    | EpsilonGreedyPolicy
    | FixedPolicy
    | RulesPolicy
    | JointSquareCBPolicy
    | JointLinTSPolicy,
    Field(discriminator="algorithm"),
]
