"""Choosers of the assistant: learned policies, rules, fixed choices and an oracle.

A chooser gets a `ChooserInput` and returns a `Choice`. Only the oracle reads its ``truth``, which
no real system knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.policy_factory import build, warm_start
from steersman.policies import BetaThompson, Fixed
from steersman.spec.policy import RulesPolicy
from steersman_systems.assistant.cache import LOOKUPS
from steersman_systems.assistant.history import TOOL_FEATURES
from steersman_systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint
    from steersman_systems.assistant.points import Points
    from steersman_systems.assistant.world import World

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChooserInput:
    """Input of a chooser.

    Args:
        context: Context by field name.
        eligible: The n eligible actions.
        truth: Returns the (n,) expected rewards, with later choices made by this set of policies.
            Only for the oracle and for checking estimates.
        features: (n, d) features of the actions, if the chooser reads them.
    """

    context: Mapping[str, Any]
    eligible: tuple[str, ...]
    truth: Callable[[], Floats]
    features: Floats | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Output of a chooser: one action with its probability.

    Args:
        index: Index of the action among the eligible.
        distribution: (n,) probabilities of the eligible actions.
        scores: (n,) scores of the eligible actions.
        u: Uniform random number that drew the action.
        x: Feature vector for learning; ``None`` if there is none.
    """

    index: int
    distribution: Floats
    scores: Floats
    u: float
    x: Floats | str | None = None

    @property
    def propensity(self) -> float:
        """Probability of the drawn action."""
        return float(self.distribution[self.index])


class Chooser(Protocol):
    """Policy of one decision point; it may learn."""

    reads_features: ClassVar[bool]
    """True if it needs ``ChooserInput.features``, which are expensive to compute."""

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """Return one action; learns nothing."""

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Learn from the reward of an action.

        Args:
            reward: Reward in [0, 1].
            outcomes: Outcomes behind the reward.
        """


@dataclass(frozen=True, slots=True)
class Policies:
    """Policy set: one chooser for each decision point.

    Args:
        name: Name of the set in reports.
        cache: Chooses the lookup.
        route: Chooses the route.
        tool: Chooses the tool.
    """

    name: str
    cache: Chooser
    route: Chooser
    tool: Chooser


class LearnedChooser:
    """Chooser with a policy over encoded contexts."""

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: ChoicePolicy, encoder: FeatureMap) -> None:
        self.policy, self._encoder = policy, encoder

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        x = self._encoder.encode(seen.context)
        return _drawn(self.policy.decide(x, rng=rng), seen, x=x)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(drawn.x, seen.eligible[index], reward)


class Joint:
    """Chooser with a joint policy over the features of each candidate."""

    reads_features: ClassVar[bool] = True

    def __init__(self, policy: ChoicePolicy) -> None:
        self.policy = policy

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        features = np.asarray(seen.features)
        choice = self.policy.decide(None, rng=rng, eligible=seen.eligible, features=features)
        return _drawn(choice, seen, x=features[seen.eligible.index(choice.action)])

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(np.asarray(seen.features)[index], seen.eligible[index], reward)


class KeyedChooser:
    """Chooser with one model per key, such as the intent, and per action.

    Args:
        policy: Policy over all actions that can be eligible.
        key: Context field with the key.
    """

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: BetaThompson, key: str) -> None:
        self.policy, self._key = policy, key
        self._place = {name: i for i, name in enumerate(policy.actions)}

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        key = seen.context[self._key]
        choice = self.policy.decide(key, rng=rng, eligible=seen.eligible)
        places = [self._place[name] for name in seen.eligible]
        index = seen.eligible.index(choice.action)
        return Choice(index, choice.distribution[places], choice.scores[places], choice.u, key)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(seen.context[self._key], seen.eligible[index], reward)


class StaticChooser:
    """Chooser that does not learn: rules, or one fixed action."""

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: ChoicePolicy) -> None:
        self.policy = policy

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        return _drawn(self.policy.decide(seen.context, rng=rng), seen)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Learns nothing."""


class First:
    """Chooser of the first eligible action: the default tool."""

    reads_features: ClassVar[bool] = False

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        return _certain(0, np.zeros(len(seen.eligible)), rng)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Learns nothing."""


class Oracle:
    """Chooser of the action with the highest true reward: an upper bound."""

    reads_features: ClassVar[bool] = False

    def choose(self, seen: ChooserInput, rng: np.random.Generator) -> Choice:
        """See `Chooser.choose`."""
        truth = seen.truth()
        return _certain(int(np.argmax(truth)), truth, rng)

    def learn(
        self,
        seen: ChooserInput,
        drawn: Choice,
        index: int,
        reward: float,
        outcomes: Mapping[str, float],
    ) -> None:
        """Learns nothing."""


PRIOR_REWARD, PRIOR_REQUESTS = 0.8, 10
"""Prior of every action: this mean reward, with the weight of this many requests.

A linear model starts at zero for each untried action. Rewards here are about .8, so without a prior
an action tried once looks far better than all others.
"""


def learned(points: Points) -> Policies:
    """Return the declared policies, without experience."""
    tool = build(points.tool.policy, (), dim=len(TOOL_FEATURES), floor=_floor(points.tool))
    return Policies("learned", _encoded(points.cache), _encoded(points.route), Joint(tool))


def beta_tools(points: Points, world: World) -> Policies:
    """Return `learned` with Beta Thompson sampling per (intent, tool) as the tool policy."""
    names = [tool.name for tool in world.catalogue.tools]
    tool = KeyedChooser(BetaThompson(names, floor=_floor(points.tool)), "intent")
    return Policies("beta_tools", _encoded(points.cache), _encoded(points.route), tool)


def rules(points: Points) -> Policies:
    """Return the declared fallbacks: no cache lookup, routes by rules, the default tool."""
    cache, route = _fallback(points.cache), _fallback(points.route)
    return Policies("rules", cache, route, First())


def fixed(lookup: str, route: str) -> Policies:
    """Return one lookup and one route for every request, with the default tool.

    Raises:
        ActionError: Unknown lookup or route.

    >>> fixed("l1", "planner").name
    'l1/planner'
    """
    return Policies(
        f"{lookup}/{route}",
        StaticChooser(Fixed(LOOKUPS, lookup)),
        StaticChooser(Fixed(ROUTES, route)),
        First(),
    )


def oracle() -> Policies:
    """Return the policy set with the highest true reward at every point: an upper bound.

    >>> seen = ChooserInput({}, ("a", "b"), lambda: np.array([0.2, 0.7]))
    >>> oracle().tool.choose(seen, np.random.default_rng(0)).index
    1
    """
    return Policies("oracle", Oracle(), Oracle(), Oracle())


def _encoded(point: DecisionPoint) -> LearnedChooser:
    encoder = FeatureMap(point.context)
    policy = build(point.policy, _names(point), dim=encoder.dim, floor=_floor(point))
    bias = np.zeros((PRIOR_REQUESTS, encoder.dim))
    bias[:, 0] = 1.0
    for name in policy.actions:
        rewards = [PRIOR_REWARD] * len(bias)
        warm_start(policy, bias, [name] * len(bias), rewards, trust=1.0)
    return LearnedChooser(policy, encoder)


def _fallback(point: DecisionPoint) -> StaticChooser:
    declared = RulesPolicy(algorithm="rules", **point.fallback.model_dump())
    return StaticChooser(build(declared, _names(point), dim=0, floor=0.0))


def _names(point: DecisionPoint) -> tuple[str, ...]:
    if point.actions.kind != "choice":
        message = f"{point.decision} has actions of kind {point.actions.kind}; allowed: choice"
        raise InputError(message)
    return tuple(point.actions.names)


def _floor(point: DecisionPoint) -> float:
    return point.floor if point.explore == "floor" else 0.0


def _drawn(choice: Any, seen: ChooserInput, x: Floats | None = None) -> Choice:
    index = seen.eligible.index(choice.action)
    return Choice(index, choice.distribution, choice.scores, choice.u, x)


def _certain(index: int, scores: Floats, rng: np.random.Generator) -> Choice:
    distribution = np.zeros(len(scores))
    distribution[index] = 1.0
    # Every chooser takes one uniform, so that the random numbers of all sets stay in step.
    return Choice(index, distribution, scores, rng.random())
