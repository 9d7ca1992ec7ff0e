"""Choosers of the next question: heuristic, uniform and learned policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import rounded
from steersman.points.policy_factory import build
from steersman.rewards import evaluate
from steersman_systems.interrogator.questions import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint
    from steersman.spec.reward import Reward
    from steersman_systems.interrogator.state import Situation

    Floats = NDArray[np.float64]

PLATEAU_QUESTIONS, PLATEAU_GAIN = 2, 0.01
"""A phase ends if its last two gains are both below this."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Chosen question with its propensity.

    Args:
        action: Name of the question.
        propensity: Probability of the question, in (0, 1].
        distribution: (K,) probabilities of all questions; 0 if not eligible.
        by: Name of the chooser: ``heuristic``, ``uniform``, ``lin_ts`` and so on.
        x: (d,) feature vector for learning; ``None`` if there is none.
    """

    action: str
    propensity: float
    distribution: Floats
    by: str
    x: Floats | None = None


class Chooser(Protocol):
    """Policy that selects questions, and may learn."""

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return one eligible question; learns nothing."""

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learn from the outcomes of a question."""


class Heuristic:
    """Chooser in declared order; it leaves a phase after two questions with small gains.

    The phases are broad, narrow and detail. A phase ends if it has no questions left, or if its
    last two gains are both below .01. After the last phase, the declared order alone counts.

    >>> from steersman_systems.interrogator.questions import load_questions
    >>> questions = load_questions()
    >>> Heuristic().next(questions.names[:0], (), questions.eligible((), {}), questions)
    'field'
    """

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the next question; learns nothing."""
        questions = situation.questions
        action = self.next(situation.asked, situation.gains, situation.eligible, questions)
        return certain(action, situation, rng, by="heuristic")

    def next(
        self,
        asked: tuple[str, ...],
        gains: tuple[float, ...],
        eligible: tuple[str, ...],
        questions: Any,
    ) -> str:
        """Return the name of the next question."""
        phases = {name: questions[name].phase for name in (*asked, *eligible)}
        for phase in PHASES:
            brought = [g for name, g in zip(asked, gains, strict=True) if phases[name] == phase]
            last = brought[-PLATEAU_QUESTIONS:]
            dry = len(last) == PLATEAU_QUESTIONS and max(last) < PLATEAU_GAIN
            left = [name for name in eligible if phases[name] == phase]
            if left and not dry:
                return left[0]
        return eligible[0]

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learns nothing."""


class Uniform:
    """Chooser with equal probabilities; used for logs for warm starts."""

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the next question; learns nothing."""
        eligible = situation.eligible
        action = eligible[int(rng.random() * len(eligible))]
        distribution = np.array(
            [float(name in eligible) for name in situation.questions.names]
        ) / len(eligible)
        return Choice(action, 1.0 / len(eligible), distribution, "uniform")

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learns nothing."""


class Learned:
    """Chooser with a policy over encoded contexts, which learns at every step.

    Args:
        policy: Policy over the names of the questions.
        encoder: Encodes contexts.
        reward: Declared reward.
        frozen: If true, the policy does not learn.
    """

    def __init__(
        self, policy: ChoicePolicy, encoder: FeatureMap, reward: Reward, *, frozen: bool = False
    ) -> None:
        self.policy, self.encoder, self.reward = policy, encoder, reward
        self.frozen = frozen

    @classmethod
    def declared(cls, point: DecisionPoint, *, frozen: bool = False) -> Self:
        """Return the policy that a decision point declares, without experience.

        Raises:
            InputError: The actions are not named choices.
        """
        if point.actions.kind != "choice":
            message = f"{point.decision} has actions of kind {point.actions.kind}; allowed: choice"
            raise InputError(f"{message}; list the questions under actions.names")
        encoder = FeatureMap(point.context)
        floor = point.floor if point.explore == "floor" else 0.0
        policy = build(point.policy, point.actions.names, dim=encoder.dim, floor=floor)
        return cls(policy, encoder, point.reward, frozen=frozen)

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the next question; learns nothing."""
        x = self.encoded(situation)
        choice = self.policy.decide(x, rng=rng, eligible=situation.eligible)
        by = str(self.policy.algorithm)
        return Choice(choice.action, choice.propensity, choice.distribution, by, x)

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learn the declared reward, unless frozen.

        Raises:
            InputError: An outcome of the declared reward is missing.
        """
        if self.frozen:
            return
        x = self.encoded(situation) if drawn.x is None else drawn.x
        self.policy.learn(x, drawn.action, worth(self.reward, outcomes))

    def encoded(self, situation: Situation) -> Floats:
        """Return the (d,) feature vector of a situation, rounded like in the service."""
        return rounded(self.encoder.encode(situation.context()))


def worth(reward: Reward, outcomes: Mapping[str, float]) -> float:
    """Return the declared reward of outcomes, 0 to 1.

    Args:
        outcomes: Outcomes by name.

    Returns:
        The reward; outcomes are clipped to the range of their term.

    Raises:
        InputError: A required outcome is missing.

    >>> from steersman.spec.reward import Reward
    >>> reward = Reward.model_validate({"terms": {"similarity_gain": {"weight": 1, "high": 0.2}}})
    >>> worth(reward, {"similarity_gain": 0.05})
    0.25
    """
    value = evaluate(reward, outcomes).value
    if value is None:
        message = f"outcomes are {sorted(outcomes)}; expected all of {sorted(reward.terms)}"
        raise InputError(f"{message}; send the missing outcomes, or declare `missing` for them")
    return value


def certain(action: str, situation: Situation, rng: np.random.Generator, *, by: str) -> Choice:
    """Return a deterministic choice; it uses one uniform, so that random streams stay in step.

    Returns:
        The choice, with probability 1.
    """
    rng.random()
    distribution = np.array([float(name == action) for name in situation.questions.names])
    return Choice(action, 1.0, distribution, by)
