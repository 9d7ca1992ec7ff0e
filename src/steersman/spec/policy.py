"""The policies a decision point can name, with their parameters and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.base import Declared, Fraction, Identifier, Positive, Problem
from steersman.spec.rules import RuleList, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

Forget = Annotated[float, Field(gt=0, le=1)]
Ridge = Annotated[float, Field(ge=1e-9, le=1e9)]
PriorCount = Annotated[float, Field(ge=1e-3, le=1e6)]
Variance = Annotated[float, Field(ge=1e-9, le=1e9)]
Alpha = Annotated[float, Field(ge=0, le=1e6)]
Seed = Annotated[int, Field(ge=0, le=2**63)]
LARGEST_VARIANCE_RATIO = 1e12
"""Of a coefficient's variance beforehand to that of a reward: all that float64 can hold."""


class _WithVariances(Declared):
    """A policy with a Gaussian prior, and Gaussian noise around what it expects."""

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
    """Ridge regression per action, and a bonus for what is uncertain."""

    algorithm: Literal["lin_ucb"]
    """Which policy this is."""
    alpha: Alpha = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Strength of the pull of every coefficient towards zero."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class BoundedLinUCBPolicy(Declared):
    """LinUCB whose bounds are cut at the largest possible reward, so that it explores less."""

    algorithm: Literal["bounded_lin_ucb"]
    """Which policy this is."""
    alpha: Alpha = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Strength of the pull of every coefficient towards zero."""
    ceiling: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """The largest reward that can occur; every declared reward is at most 1."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class KernelUCBPolicy(Declared):
    """Bounded LinUCB on the context and on random waves of it, so that it also learns curves."""

    algorithm: Literal["kernel_ucb"]
    """Which policy this is."""
    alpha: Alpha = 0.5
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 0.3
    """Strength of the pull of every coefficient towards zero."""
    ceiling: Annotated[float, Field(ge=-1e9, le=1e9)] = 1.0
    """The largest reward that can occur; every declared reward is at most 1."""
    random_features: Annotated[int, Field(ge=1, le=4096)] = 256
    """Number of waves; a decision costs (dim + this)² per action."""
    lengthscale: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    """Distance between contexts over which rewards change; a context's norm is 1 to 2."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""
    seed: Seed = 0
    """Seed of the waves."""


class LinTSPolicy(_WithVariances):
    """Bayesian linear regression per action; each action is drawn as often as it may be best."""

    algorithm: Literal["lin_ts"]
    """Which policy this is."""
    prior_var: Variance = 1.0
    """Variance of a coefficient before anything is seen."""
    noise_var: Variance = 0.1
    """Variance of a reward around its mean."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class BetaThompsonPolicy(Declared):
    """A Beta distribution of the success of each action, apart for each value of a key."""

    algorithm: Literal["beta_thompson"]
    """Which policy this is."""
    prior: Annotated[
        tuple[PriorCount, PriorCount],
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
    """What `decay` never takes epsilon below; an epsilon below it stays."""
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


class JointLinTSPolicy(_WithVariances):
    """One Bayesian regression over per-action features; seeded posterior draws are the choice."""

    algorithm: Literal["joint_lin_ts"]
    """Which policy this is."""
    prior_var: Variance = 1.0
    """Variance of a coefficient before anything is seen."""
    noise_var: Variance = 0.1
    """Variance of a reward around its mean."""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Posterior draws per decision; their frequencies are the distribution."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""
    seed: Seed = 0
    """Seed of the draws."""


class FactoredTSPolicy(_WithVariances):
    """One Bayesian regression over the parts of mixed actions; seeded draws are the choice.

    What one value of a part does is learned wherever it stands, so a configuration that was never
    tried is judged by its parts.
    """

    algorithm: Literal["factored_ts"]
    """Which policy this is."""
    contextual: bool = False
    """Whether what a part does may depend on the context."""
    pairs: bool = True
    """Whether what a part does may depend on every other part."""
    prior_var: Variance = 0.01
    """Variance of what one part does before anything is seen; of a pair it is a third of that, of
    the level of all together 25 times."""
    noise_var: Variance = 0.1
    """Variance of a reward around its mean."""
    draws: Annotated[int, Field(ge=1, le=1_000)] = 64
    """Posterior draws per decision; their frequencies are the distribution."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""
    seed: Seed = 0
    """Seed of the draws."""


Weights = dict[Identifier, Annotated[float, Field(ge=-1e9, le=1e9)]]
Leading = Annotated[int, Field(ge=1, le=1_000)]
Temperature = Annotated[float, Field(ge=0, le=100)]


class SequenceLinearPolicy(_WithVariances):
    """One Bayesian regression: what each pick, and stopping, adds to the reward of a selection."""

    algorithm: Literal["sequence_linear"]
    """Which policy this is."""
    start: Weights = Field(default_factory=dict)
    """What a unit of a column is worth before anything is seen, in units of the reward."""
    leading: Leading = 8
    """How many candidates may be drawn at each step, the best by what they are worth; times
    the point's `max_steps` 2,000 or fewer."""
    temperature: Temperature = 0.05
    """Of the softmax over what actions are worth, 1e-6 or more; or 0, which takes the best."""
    prior_var: Variance = 1.0
    """Variance of what a unit of a column is worth before anything is seen."""
    noise_var: Variance = 0.1
    """Variance of a reward around its mean."""
    forget: Forget = 1.0
    """Share of the evidence kept per time bucket; 1 forgets nothing."""


class SequenceTreesPolicy(Declared):
    """Boosted trees over every action's columns; they come with a published snapshot."""

    algorithm: Literal["sequence_trees"]
    """Which policy this is."""
    start: Weights = Field(default_factory=dict)
    """Weight of each column in the score, to which the trees add."""
    leading: Leading = 8
    """How many candidates may be drawn at each step, the best by score; times
    the point's `max_steps` 2,000 or fewer."""
    temperature: Temperature = 1.0
    """Of the softmax over scores, 1e-6 or more; or 0, which takes the best."""


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
