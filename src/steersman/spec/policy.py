"""Declarations of policies, with their parameters and defaults.

Most built-in algorithms have a model here. Any other algorithm of the registry
(`steersman.points.algorithms`) gets one from the keywords of its class's constructor.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_type_hints

from pydantic import (
    Discriminator,
    Field,
    Tag,
    create_model,
    field_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError, core_schema

from steersman.errors import InputError, SpecError
from steersman.spec.base import ActionName, Declared, Fraction, Identifier, Positive, Problem
from steersman.spec.expressions import compile_rule
from steersman.spec.rule_kinds import never_works

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FunctionType

    from pydantic import GetCoreSchemaHandler

    from steersman.policies import ChoicePolicy
    from steersman.policies.base import Reads


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


class PolicyParameters(Declared):
    """Policy of a decision point: its algorithm and parameters."""

    algorithm: str
    """Name of the algorithm."""

    @cached_property
    def policy_class(self) -> type[ChoicePolicy]:
        """Class of the algorithm; its attributes say what it supports."""
        return policy_class(self.algorithm)

    @cached_property
    def reads(self) -> Reads:
        """What the policy reads of a request; see `ChoicePolicy`."""
        ignored = getattr(self, "contextual", True) is False
        return "nothing" if ignored else self.policy_class.reads


Forget = Annotated[float, Field(gt=0, le=1)]
Ridge = Annotated[float, Field(ge=1e-9, le=1e9)]
PriorCount = Annotated[float, Field(ge=1e-3, le=1e6)]
Variance = Annotated[float, Field(ge=1e-9, le=1e9)]
Alpha = Annotated[float, Field(ge=0, le=1e6)]
Seed = Annotated[int, Field(ge=0, le=2**63)]
LARGEST_VARIANCE_RATIO = 1e12
"""Largest ratio of prior variance to noise variance that float64 can represent."""


class _WithVariances(PolicyParameters):
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


class LinUCBPolicy(PolicyParameters):
    """LinUCB: ridge regression per action with a bonus for uncertainty."""

    algorithm: Literal["lin_ucb"]
    """Name of the algorithm."""
    alpha: Alpha = 1.0
    """Weight of the uncertainty bonus, in standard errors."""
    ridge: Ridge = 1.0
    """Ridge penalty; a larger value shrinks the coefficients more."""
    forget: Forget = 1.0
    """Share of past data that is kept per time bucket. 1: keep all."""


class BoundedLinUCBPolicy(PolicyParameters):
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


class KernelUCBPolicy(PolicyParameters):
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


class BetaThompsonPolicy(PolicyParameters):
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


class EpsilonGreedyPolicy(PolicyParameters):
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


class FixedPolicy(PolicyParameters):
    """Fixed policy: always the same action."""

    algorithm: Literal["fixed"]
    """Name of the algorithm."""
    action: Target
    """Action that is always chosen."""


class RulesPolicy(PolicyParameters, RuleList):
    """Rules policy: the first rule that holds chooses the action."""

    algorithm: Literal["rules"]
    """Name of the algorithm."""


class JointSquareCBPolicy(PolicyParameters):
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


class SequenceTreesPolicy(PolicyParameters):
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


_Modelled = (
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
    | SequenceTreesPolicy
)
MODELS: dict[str, type[PolicyParameters]] = {
    get_args(model.model_fields["algorithm"].annotation)[0]: model for model in get_args(_Modelled)
}
"""Models of this module by algorithm."""
# What a decision point gives to a policy besides its parameters.
_GIVEN = {"actions", "dim", "floor", "parts", "scales", "barred"}
_GIVEN |= {"features", "vector", "max_steps", "stop"}


def _registry() -> Any:
    """Return the registry of algorithms, which is on a floor above and imported when needed."""
    return import_module("steersman.points.algorithms")


def policy_class(algorithm: str) -> type[ChoicePolicy]:
    """Return the policy class of an algorithm.

    Raises:
        InputError: unknown name, or an installed policy that cannot be loaded.
    """
    return cast("type[ChoicePolicy]", _registry().policy_class(algorithm))


def algorithm_names() -> tuple[str, ...]:
    """Return the names of all algorithms."""
    return cast("tuple[str, ...]", _registry().algorithm_names())


def loadable() -> Iterable[type[ChoicePolicy]]:
    """Return the classes of all algorithms that can be loaded."""
    return cast("Iterable[type[ChoicePolicy]]", _registry().loadable())


@cache
def parameters_of(algorithm: str) -> type[PolicyParameters]:
    """Return the parameter model of an algorithm.

    Raises:
        InputError: unknown name, or an installed policy that cannot be loaded, or whose
            constructor has a parameter that cannot be declared.
    """
    if algorithm in MODELS:
        return MODELS[algorithm]
    found = policy_class(algorithm)
    fields: dict[str, Any] = {"algorithm": (Literal[algorithm], ...)}
    about = (inspect.getdoc(found) or "").partition("\n\n")[0]
    try:
        fields |= _fields(found)
        return create_model(
            f"{found.__name__}Policy", __base__=PolicyParameters, __doc__=about, **fields
        )
    except Exception as error:  # whatever the annotations of others raise
        raise InputError(
            f"{found.__module__}.{found.__name__} has a parameter that cannot be declared: "
            f"{error!r}; annotate each keyword of its constructor with a type that pydantic checks"
        ) from error


def models_beyond(*, installed: bool) -> dict[str, type[PolicyParameters]]:
    """Return the models that are made from constructors, of the algorithms that can be loaded."""
    names = algorithm_names() if installed else _registry().BUILT_IN
    models = {}
    for name in names:
        if name not in MODELS:
            with suppress(InputError):  # reported to those who declare it
                models[name] = parameters_of(name)
    return models


def _fields(found: type[ChoicePolicy]) -> dict[str, Any]:
    """Return type and default of every parameter: the keywords of a constructor."""
    made = cast("FunctionType", found.__init__)
    taken = inspect.signature(made).parameters
    own = [one for name, one in taken.items() if one.kind is one.KEYWORD_ONLY]
    names = [one.name for one in own if one.name not in _GIVEN]

    def few() -> None:
        """Have the annotations to resolve: others may name what only type checkers import."""

    few.__annotations__ = {name: made.__annotations__[name] for name in names}
    hints = get_type_hints(few, globalns=made.__globals__, include_extras=True)
    empty = inspect.Parameter.empty
    defaults = {name: taken[name].default for name in names}
    fields: dict[str, Any] = {
        name: (hints[name], ... if default is empty else default)
        for name, default in defaults.items()
    }
    if found.reads == "key":
        fields["key"] = (Identifier | None, None)
    if "dim" in taken and taken["dim"].default is None:
        fields["contextual"] = (bool, False)
    return fields


class _ByAlgorithm:
    """Validates a policy by the model of its algorithm."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        modelled = handler.generate_schema(Annotated[_Modelled, Field(discriminator="algorithm")])
        return core_schema.no_info_wrap_validator_function(
            _of_registry, modelled, serialization=core_schema.simple_ser_schema("any")
        )


def _of_registry(value: Any, modelled: core_schema.ValidatorFunctionWrapHandler) -> Any:
    own = isinstance(value, PolicyParameters)
    name = value.algorithm if own else value.get("algorithm") if isinstance(value, dict) else None
    if name is None or name in (*MODELS,):
        return modelled(value)
    if name not in algorithm_names():
        expected = ", ".join(map(repr, algorithm_names()))
        details = {"discriminator": "'algorithm'", "tag": str(name), "expected_tags": expected}
        raise PydanticKnownError("union_tag_invalid", details)
    try:
        model = parameters_of(name)
    except InputError as error:
        what, allowed = str(error).split("; ")[0], "an algorithm that can be loaded"
        raise _wrong(what, allowed, "correct or uninstall its distribution") from None
    return model.model_validate(value)


Policy = Annotated[PolicyParameters, _ByAlgorithm()]
"""Policy of any algorithm of the registry."""
