"""Declarations of policies, with their parameters and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from steersman.errors import SpecError
from steersman.spec.base import ActionName, Declared, Fraction, Identifier, Positive, Problem
from steersman.spec.expressions import compile_rule
from steersman.spec.rule_kinds import never_works

if TYPE_CHECKING:
    from collections.abc import Iterator


def _target_tag(value: object) -> str:
    return "#parts" if isinstance(value, dict) else "#name"


Configuration = Annotated[
    dict[Identifier, str | bool | int | float], Field(min_length=1), Tag("#parts")
]
Target = Annotated[Annotated[ActionName, Tag("#name")] | Configuration, Discriminator(_target_tag)]
"""Action name, or a value for every part of a mixed action."""


class Rule(Declared):
    """A condition and its action."""

    when: str
    """Condition on the context, for example `confidence < 0.2 and intent in ["faq", "chat"]`."""
    action: Target
    """Action when the condition holds."""

    @field_validator("when")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            compile_rule(text)
        except SpecError as error:
            said, _, advice = str(error).rpartition("; ")
            what, _, allowed = said.rpartition("; allowed")
            raise _wrong(what, allowed.lstrip(": "), advice) from None
        never = never_works(text)
        if never:
            raise _wrong(*never)
        return text


def _wrong(what: str, allowed: str, advice: str) -> PydanticCustomError:
    details = {"what": what, "allowed": allowed, "advice": advice}
    return PydanticCustomError("declared", "{what}; allowed {allowed}; {advice}", details)


Rules = Annotated[tuple[Rule, ...], Field(strict=False, max_length=100)]


class RuleList(Declared):
    """Ordered rules: the first rule that holds chooses the action."""

    rules: Rules = ()
    """Conditions and actions, checked in order."""
    otherwise: Target
    """Action when no rule holds. For mixed actions: a value for each part. In a fallback over open
    candidates: `first` is the first eligible candidate."""


Forget = Annotated[float, Field(gt=0, le=1)]
Ridge = Annotated[float, Field(ge=1e-9, le=1e9)]
PriorCount = Annotated[float, Field(ge=1e-3, le=1e6)]
Variance = Annotated[float, Field(ge=1e-9, le=1e9)]
Alpha = Annotated[float, Field(ge=0, le=1e6)]
Seed = Annotated[int, Field(ge=0, le=2**63)]
LARGEST_VARIANCE_RATIO = 1e12
"""Largest ratio of prior variance to noise variance that float64 can represent."""


class _WithVariances(Declared):
    """Policy with a Gaussian prior and Gaussian noise."""

    def _problems(self) -> Iterator[Problem]:
        prior, noise = getattr(self, "prior_var", 0.0), getattr(self, "noise_var", 0.0)
        if prior > LARGEST_VARIANCE_RATIO * noise:
            yield Problem(
                ("prior_var",),
                f"more than {LARGEST_VARIANCE_RATIO:g} times noise_var ({noise:g})",
                prior,
                f"up to {LARGEST_VARIANCE_RATIO * noise:g}",
                "raise noise_var or lower prior_var",
            )


class LinUCBPolicy(Declared):
    """LinUCB: ridge regression per action with a bonus for uncertainty."""

    algorithm: Literal["lin_ucb"]
    """Name of the algorithm."""
    alpha: Alpha = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Ridge penalty; a larger value shrinks the coefficients more."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class BoundedLinUCBPolicy(Declared):
    """LinUCB with upper bounds clipped at the largest possible reward, so that it explores less."""

    algorithm: Literal["bounded_lin_ucb"]
    """Name of the algorithm."""
    alpha: Alpha = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Ridge penalty; a larger value shrinks the coefficients more."""
    ceiling: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """Largest possible reward. Declared rewards are at most 1."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class KernelUCBPolicy(Declared):
    """Bounded LinUCB on the context and its random Fourier features, for nonlinear rewards."""

    algorithm: Literal["kernel_ucb"]
    """Name of the algorithm."""
    alpha: Alpha = 0.5
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 0.3
    """Ridge penalty; a larger value shrinks the coefficients more."""
    ceiling: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """Largest possible reward. Declared rewards are at most 1."""
    random_features: Annotated[int, Field(ge=1, le=4096)] = 256
    """Number of random Fourier features. A decision costs (dim + this)² operations per action."""
    lengthscale: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """Length scale of the kernel: distance between contexts over which rewards change. The norm of
    a context is 1 to 2."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""
    seed: Seed = 0
    """Seed of the random features."""


class LinTSPolicy(_WithVariances):
    """Linear Thompson sampling: Bayesian linear regression per action."""

    algorithm: Literal["lin_ts"]
    """Name of the algorithm."""
    prior_var: Variance = 1.0
    """Prior variance of a coefficient."""
    noise_var: Variance = 0.1
    """Noise variance of the reward."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class BetaThompsonPolicy(Declared):
    """Beta Thompson sampling: a Beta distribution of success per action and key value."""

    algorithm: Literal["beta_thompson"]
    """Name of the algorithm."""
    prior: Annotated[
        tuple[PriorCount, PriorCount],
        Field(strict=False),
    ] = (1.0, 1.0)
    """Prior counts of successes and failures."""
    key: Identifier | None = None
    """Category field of the context; each value has its own distributions. null: one distribution
    per action."""


class EpsilonGreedyPolicy(Declared):
    """Epsilon-greedy: the best action so far, and any action with a decreasing probability."""

    algorithm: Literal["epsilon_greedy"]
    """Name of the algorithm."""
    epsilon: Fraction = 0.1
    """Initial exploration probability."""
    decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor applied to epsilon after each learned reward."""
    min_epsilon: Fraction = 0.01
    """Lower limit of epsilon under `decay`. A smaller initial epsilon stays unchanged."""
    contextual: bool = False
    """Whether rewards are estimated from the context (ridge regression) or as plain means."""


class FixedPolicy(Declared):
    """Fixed policy: always the same action."""

    algorithm: Literal["fixed"]
    """Name of the algorithm."""
    action: Target
    """Action that is always chosen."""


class RulesPolicy(RuleList):
    """Rules policy: the first rule that holds chooses the action."""

    algorithm: Literal["rules"]
    """Name of the algorithm."""


class JointSquareCBPolicy(Declared):
    """SquareCB with one regression over action features (inverse gap weighting)."""

    algorithm: Literal["joint_squarecb"]
    """Name of the algorithm."""
    gamma: Positive = 100.0
    """Exploitation strength of inverse gap weighting; a larger value explores less."""
    ridge: Ridge = 1.0
    """Ridge penalty; a larger value shrinks the coefficients more."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class JointLinTSPolicy(_WithVariances):
    """Linear Thompson sampling with one Bayesian regression over action features."""

    algorithm: Literal["joint_lin_ts"]
    """Name of the algorithm."""
    prior_var: Variance = 1.0
    """Prior variance of a coefficient."""
    noise_var: Variance = 0.1
    """Noise variance of the reward."""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Number of posterior draws per decision. Their frequencies are the action probabilities."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""
    seed: Seed = 0
    """Seed of the posterior draws."""


class FactoredTSPolicy(_WithVariances):
    """Thompson sampling with one Bayesian regression over the parts of mixed actions.

    Configurations share the effects of their part values, so the policy can score a configuration
    that was never tried.
    """

    algorithm: Literal["factored_ts"]
    """Name of the algorithm."""
    contextual: bool = False
    """Whether the effect of a part may depend on the context."""
    pairs: bool = True
    """Whether the effect of a part may depend on each other part (pairwise interactions)."""
    prior_var: Variance = 0.01
    """Prior variance of the effect of one part. A pair has a third of it; the intercept has 25
    times it."""
    noise_var: Variance = 0.1
    """Noise variance of the reward."""
    draws: Annotated[int, Field(ge=1, le=1_000)] = 64
    """Number of posterior draws per decision. Their frequencies are the action probabilities."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""
    seed: Seed = 0
    """Seed of the posterior draws."""


Weights = dict[Identifier, Annotated[float, Field(ge=-1e9, le=1e9)]]
Leading = Annotated[int, Field(ge=1, le=1_000)]
Temperature = Annotated[float, Field(ge=0, le=100)]


class SequenceLinearPolicy(_WithVariances):
    """Bayesian regression for the reward that each pick, and stopping, adds to a selection."""

    algorithm: Literal["sequence_linear"]
    """Name of the algorithm."""
    start: Weights = Field(default_factory=dict)
    """Prior mean of the weight of each column, in reward per unit of the column."""
    leading: Leading = 8
    """Number of best-scored candidates from which each step draws. The product with `max_steps` is
    at most 2,000."""
    temperature: Temperature = 0.05
    """Temperature of the softmax over scores, at least 1e-6. 0: take the best action."""
    prior_var: Variance = 1.0
    """Prior variance of the weight of a column."""
    noise_var: Variance = 0.1
    """Noise variance of the reward."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class SequenceTreesPolicy(Declared):
    """Boosted trees over the columns of each action, loaded from a published snapshot."""

    algorithm: Literal["sequence_trees"]
    """Name of the algorithm."""
    start: Weights = Field(default_factory=dict)
    """Weight of each column in the base score. The trees add to this score."""
    leading: Leading = 8
    """Number of best-scored candidates from which each step draws. The product with `max_steps` is
    at most 2,000."""
    temperature: Temperature = 1.0
    """Temperature of the softmax over scores, at least 1e-6. 0: take the best action."""


Policy = Annotated[
    LinUCBPolicy
    | BoundedLinUCBPolicy
    | KernelUCBPolicy
    | LinTSPolicy
    | BetaThompsonPolicy
    | EpsilonGreedyPolicy
    | FixedPolicy
    | RulesPolicy
    | JointSquareCBPolicy
    | JointLinTSPolicy
    | FactoredTSPolicy
    | SequenceLinearPolicy
    | SequenceTreesPolicy,
    Field(discriminator="algorithm"),
]
