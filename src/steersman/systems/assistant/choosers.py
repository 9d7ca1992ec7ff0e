"""Who chooses: learned policies, rules, one fixed choice, or an oracle, behind one small seam.

A chooser sees a decision as `Seen` and answers with a `Drawn`. None but the oracle asks for
``Seen.truth``, which no real system knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.policies import BetaThompson, Fixed, build, warm_start
from steersman.spec import RulesPolicy
from steersman.systems.assistant.cache import LOOKUPS
from steersman.systems.assistant.history import TOOL_FEATURES
from steersman.systems.assistant.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec import DecisionPoint
    from steersman.systems.assistant.points import Points
    from steersman.systems.assistant.world import World

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """One decision, as it is put to a chooser.

    Args:
        context: What is known, by field name.
        eligible: The n names to choose from.
        truth: Works out the (n,) expected rewards of each, all later choices made as this set of
            policies makes them. For the oracle and for checking estimates; nobody else asks.
        features: (n, d) features of each, where the chooser reads them.
    """

    context: Mapping[str, Any]
    eligible: tuple[str, ...]
    truth: Callable[[], Floats]
    features: Floats | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One choice with the probability it was drawn with.

    Args:
        index: Place of the action among the eligible.
        distribution: (n,) probabilities in the order of the eligible.
        scores: (n,) what it was ranked by.
        u: The uniform that drew it.
        x: The vector that a learned policy learns from; ``None`` where there is none.
    """

    index: int
    distribution: Floats
    scores: Floats
    u: float
    x: Floats | str | None = None

    @property
    def propensity(self) -> float:
        """The probability of the action that was drawn."""
        return float(self.distribution[self.index])


class Chooser(Protocol):
    """Chooses at one decision point, and may learn."""

    reads_features: ClassVar[bool]
    """Whether it needs ``Seen.features``, which cost more than most choices."""

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """One action; learns nothing.

        Args:
            seen: The decision.
            rng: Draws the action with exactly one uniform.

        Returns:
            The action with its distribution.
        """

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Take in what an action earned.

        Args:
            seen: The decision.
            drawn: What was drawn at it.
            index: The action whose reward is known; not always the one drawn.
            reward: In [0, 1].
            outcomes: What the reward was made of, for who makes it anew.
        """


@dataclass(frozen=True, slots=True)
class Policies:
    """One chooser for each decision point.

    Args:
        name: What the set is called in reports.
        cache: Chooses the lookup.
        route: Chooses the route.
        tool: Chooses the tool.
    """

    name: str
    cache: Chooser
    route: Chooser
    tool: Chooser


class Learned:
    """A policy over encoded contexts.

    Args:
        policy: Any policy over named actions.
        encoder: Turns contexts into its vectors.
    """

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: ChoicePolicy, encoder: FeatureMap) -> None:
        self.policy, self._encoder = policy, encoder

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        x = self._encoder.encode(seen.context)
        return _drawn(self.policy.decide(x, rng=rng), seen, x=x)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(drawn.x, seen.eligible[index], reward)


class Joint:
    """A policy over the features of each candidate.

    Args:
        policy: A joint policy with an open set of actions.
    """

    reads_features: ClassVar[bool] = True

    def __init__(self, policy: ChoicePolicy) -> None:
        self.policy = policy

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        features = np.asarray(seen.features)
        choice = self.policy.decide(None, rng=rng, eligible=seen.eligible, features=features)
        return _drawn(choice, seen, x=features[seen.eligible.index(choice.action)])

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(np.asarray(seen.features)[index], seen.eligible[index], reward)


class Keyed:
    """A policy with one model per key, such as the intent, and per action.

    Args:
        policy: Over all actions that are ever eligible.
        key: The context field that holds the key.
    """

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: BetaThompson, key: str) -> None:
        self.policy, self._key = policy, key
        self._place = {name: i for i, name in enumerate(policy.actions)}

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        key = seen.context[self._key]
        choice = self.policy.decide(key, rng=rng, eligible=seen.eligible)
        places = [self._place[name] for name in seen.eligible]
        index = seen.eligible.index(choice.action)
        return Drawn(index, choice.distribution[places], choice.scores[places], choice.u, key)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """See `Chooser.learn`."""
        self.policy.learn(seen.context[self._key], seen.eligible[index], reward)


class Unlearned:
    """A policy that reads the context itself and never learns.

    Args:
        policy: Rules, or one fixed action.
    """

    reads_features: ClassVar[bool] = False

    def __init__(self, policy: ChoicePolicy) -> None:
        self.policy = policy

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        return _drawn(self.policy.decide(seen.context, rng=rng), seen)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Learns nothing."""


class First:
    """Always the first of the eligible: the default tool."""

    reads_features: ClassVar[bool] = False

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        return _certain(0, np.zeros(len(seen.eligible)), rng)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Learns nothing."""


class Oracle:
    """Always what earns most, by the truth that nobody knows: the ceiling."""

    reads_features: ClassVar[bool] = False

    def choose(self, seen: Seen, rng: np.random.Generator) -> Drawn:
        """See `Chooser.choose`."""
        truth = seen.truth()
        return _certain(int(np.argmax(truth)), truth, rng)

    def learn(
        self, seen: Seen, drawn: Drawn, index: int, reward: float, outcomes: Mapping[str, float]
    ) -> None:
        """Learns nothing."""


PRIOR_REWARD, PRIOR_REQUESTS = 0.8, 10
"""Before any experience every choice is taken for this good, as if seen this often.

A linear model starts from zero for everything it did not try. Rewards here lie around .8, so
without this an arm tried once looks far better than all others.
"""


def learned(points: Points) -> Policies:
    """The declared policies, without any experience yet.

    Args:
        points: The decision points that declare them.

    Returns:
        A new set.
    """
    tool = build(points.tool.policy, (), dim=len(TOOL_FEATURES), floor=_floor(points.tool))
    return Policies("learned", _encoded(points.cache), _encoded(points.route), Joint(tool))


def beta_tools(points: Points, world: World) -> Policies:
    """As `learned`, with the simpler rival for tools: Thompson sampling per (intent, tool).

    Args:
        points: The decision points.
        world: Its catalogue names the tools.

    Returns:
        A new set.
    """
    names = [tool.name for tool in world.catalogue.tools]
    tool = Keyed(BetaThompson(names, floor=_floor(points.tool)), "intent")
    return Policies("beta_tools", _encoded(points.cache), _encoded(points.route), tool)


def rules(points: Points) -> Policies:
    """The declared fallbacks: a cache miss, routes by rules, the default tool.

    Args:
        points: The decision points that declare them.

    Returns:
        A new set.
    """
    cache, route = _fallback(points.cache), _fallback(points.route)
    return Policies("rules", cache, route, First())


def fixed(lookup: str, route: str) -> Policies:
    """One lookup and one route for every request, and the default tool.

    Args:
        lookup: One of `cache.LOOKUPS`.
        route: One of `routes.ROUTES`.

    Returns:
        A new set, named after both.

    Raises:
        ActionError: Another lookup or route.

    >>> fixed("l1", "planner").name
    'l1/planner'
    """
    return Policies(
        f"{lookup}/{route}",
        Unlearned(Fixed(LOOKUPS, lookup)),
        Unlearned(Fixed(ROUTES, route)),
        First(),
    )


def oracle() -> Policies:
    """The best choice at every point, by the truth that nobody knows.

    Returns:
        A new set.

    >>> seen = Seen({}, ("a", "b"), lambda: np.array([0.2, 0.7]))
    >>> oracle().tool.choose(seen, np.random.default_rng(0)).index
    1
    """
    return Policies("oracle", Oracle(), Oracle(), Oracle())


def _encoded(point: DecisionPoint) -> Learned:
    encoder = FeatureMap(point.context)
    policy = build(point.policy, _names(point), dim=encoder.dim, floor=_floor(point))
    bias = np.zeros((PRIOR_REQUESTS, encoder.dim))
    bias[:, 0] = 1.0
    for name in policy.actions:
        rewards = [PRIOR_REWARD] * len(bias)
        warm_start(policy, bias, [name] * len(bias), rewards, trust=1.0)
    return Learned(policy, encoder)


def _fallback(point: DecisionPoint) -> Unlearned:
    declared = RulesPolicy(algorithm="rules", **point.fallback.model_dump())
    return Unlearned(build(declared, _names(point), dim=0, floor=0.0))


def _names(point: DecisionPoint) -> tuple[str, ...]:
    if point.actions.kind != "choice":
        message = f"{point.decision} has {point.actions.kind} actions; the assistant needs choice"
        raise InputError(message)
    return tuple(point.actions.names)


def _floor(point: DecisionPoint) -> float:
    return point.floor if point.explore == "floor" else 0.0


def _drawn(choice: Any, seen: Seen, x: Floats | None = None) -> Drawn:
    index = seen.eligible.index(choice.action)
    return Drawn(index, choice.distribution, choice.scores, choice.u, x)


def _certain(index: int, scores: Floats, rng: np.random.Generator) -> Drawn:
    distribution = np.zeros(len(scores))
    distribution[index] = 1.0
    # One uniform, as everyone takes, so that streams of random numbers stay in step.
    return Drawn(index, distribution, scores, rng.random())
