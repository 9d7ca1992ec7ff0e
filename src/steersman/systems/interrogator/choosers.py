"""Who picks the next question: the heuristic, chance or a learned policy, behind one seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.policies import build
from steersman.rewards import evaluate
from steersman.store import rounded
from steersman.systems.interrogator.questions import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec import DecisionPoint, Reward
    from steersman.systems.interrogator.situation import Situation

    Floats = NDArray[np.float64]

PLATEAU_QUESTIONS, PLATEAU_GAIN = 2, 0.01
"""A phase is left when its last two questions brought less than this each."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One choice with the probability it was drawn with.

    Args:
        action: Name of the question.
        propensity: Its probability, in (0, 1].
        distribution: (K,) probabilities in the order of all questions; 0 where not eligible.
        by: Who chose: ``heuristic``, ``uniform``, ``lin_ts`` and so on.
        x: (d,) vector that a learned policy learns from; ``None`` where there is none.
    """

    action: str
    propensity: float
    distribution: Floats
    by: str
    x: Floats | None = None


class Chooser(Protocol):
    """Picks questions, and may learn."""

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return one of the eligible questions; learns nothing.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Draws the question with exactly one uniform.
        """

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Take in what a question brought.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.
        """


class Heuristic:
    """Asks in declared order, and leaves a phase that has stopped to bring anything.

    The phase is the first of broad, narrow and detail that still has questions and whose last two
    did not both bring less than .01. When all have run dry, the declared order alone counts.

    >>> from steersman.systems.interrogator import load_questions
    >>> questions = load_questions()
    >>> Heuristic().next(questions.names[:0], (), questions.eligible((), {}), questions)
    'field'
    """

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return the next question; learns nothing.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Gives exactly one uniform.

        Returns:
            The question, with the probability of each.
        """
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
        """Return the name of the question to ask.

        Args:
            asked: Names of the questions asked, first to last.
            gains: What each of them added.
            eligible: At least one name, in declared order.
            questions: What can be asked.

        Returns:
            One of the eligible.
        """
        phases = {name: questions[name].phase for name in (*asked, *eligible)}
        for phase in PHASES:
            brought = [g for name, g in zip(asked, gains, strict=True) if phases[name] == phase]
            last = brought[-PLATEAU_QUESTIONS:]
            dry = len(last) == PLATEAU_QUESTIONS and max(last) < PLATEAU_GAIN
            left = [name for name in eligible if phases[name] == phase]
            if left and not dry:
                return left[0]
        return eligible[0]

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Learns nothing.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.
        """


class Uniform:
    """Any eligible question with equal probability: what a log for warm starts is drawn by."""

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return the next question; learns nothing.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Gives exactly one uniform.

        Returns:
            The question, with the probability of each.
        """
        eligible = situation.eligible
        action = eligible[int(rng.random() * len(eligible))]
        distribution = np.array(
            [float(name in eligible) for name in situation.questions.names]
        ) / len(eligible)
        return Drawn(action, 1.0 / len(eligible), distribution, "uniform")

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Learns nothing.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.
        """


class Learned:
    """A policy over encoded contexts that learns at every step, as the ordinary loop does.

    Args:
        policy: Over the names of the questions.
        encoder: Turns contexts into its vectors.
        reward: What outcomes are worth.
        frozen: Whether it learns no more.
    """

    def __init__(
        self, policy: ChoicePolicy, encoder: FeatureMap, reward: Reward, *, frozen: bool = False
    ) -> None:
        self.policy, self.encoder, self.reward = policy, encoder, reward
        self.frozen = frozen

    @classmethod
    def declared(cls, point: DecisionPoint, *, frozen: bool = False) -> Self:
        """Return the policy that a decision point declares, without any experience yet.

        Args:
            point: As `load_point` reads it.
            frozen: Whether it learns nothing from its investigations.

        Returns:
            The chooser.

        Raises:
            InputError: the point has other actions than named choices.
        """
        if point.actions.kind != "choice":
            message = f"{point.decision} has {point.actions.kind} actions; allowed is kind: choice"
            raise InputError(f"{message}; name the questions under actions.names")
        encoder = FeatureMap(point.context)
        floor = point.floor if point.explore == "floor" else 0.0
        policy = build(point.policy, point.actions.names, dim=encoder.dim, floor=floor)
        return cls(policy, encoder, point.reward, frozen=frozen)

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return the next question; learns nothing.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Gives exactly one uniform.

        Returns:
            The question, with the probability of each.
        """
        x = self.encoded(situation)
        choice = self.policy.decide(x, rng=rng, eligible=situation.eligible)
        by = str(self.policy.algorithm)
        return Drawn(choice.action, choice.propensity, choice.distribution, by, x)

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Learn the declared reward, unless frozen.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.

        Raises:
            InputError: outcomes that the declared reward cannot be formed from.
        """
        if self.frozen:
            return
        x = self.encoded(situation) if drawn.x is None else drawn.x
        self.policy.learn(x, drawn.action, worth(self.reward, outcomes))

    def encoded(self, situation: Situation) -> Floats:
        """Return the (d,) vector of a situation, rounded as the service rounds it.

        Args:
            situation: Where an investigation stands.
        """
        return rounded(self.encoder.encode(situation.context()))


def worth(reward: Reward, outcomes: Mapping[str, float]) -> float:
    """Return the declared reward of some outcomes, 0 to 1.

    Args:
        reward: What the decision point declares.
        outcomes: By name.

    Returns:
        The reward; what lies beyond a term's range counts as its end.

    Raises:
        InputError: a required outcome is absent.

    >>> from steersman.spec import Reward
    >>> reward = Reward.model_validate({"terms": {"similarity_gain": {"weight": 1, "high": 0.2}}})
    >>> worth(reward, {"similarity_gain": 0.05})
    0.25
    """
    value = evaluate(reward, outcomes).value
    if value is None:
        message = f"outcomes are {sorted(outcomes)}; allowed are all of {sorted(reward.terms)}"
        raise InputError(f"{message}; send what is missing, or declare what missing means")
    return value


def certain(action: str, situation: Situation, rng: np.random.Generator, *, by: str) -> Drawn:
    """Return a choice without chance; one uniform is taken, so that random streams stay in step.

    Args:
        action: Name of the question.
        situation: Where it is chosen.
        rng: Gives the uniform.
        by: Who chose.

    Returns:
        The choice, of probability 1.
    """
    rng.random()
    distribution = np.array([float(name == action) for name in situation.questions.names])
    return Drawn(action, 1.0, distribution, by)
