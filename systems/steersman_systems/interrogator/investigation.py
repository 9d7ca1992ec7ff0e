"""Investigation of a target, question by question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steersman.errors import ActionError, InputError
from steersman_systems.interrogator.state import Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from steersman_systems.interrogator.answers import Answer, Answerer
    from steersman_systems.interrogator.choosers import Choice, Chooser
    from steersman_systems.interrogator.questions import Questions
    from steersman_systems.interrogator.targets import Target

LIMIT = 10
"""Default maximum number of questions in an investigation."""
STOP_AT = 0.90
"""Default cosine at which the target counts as found."""
MISS_COST = 0.05
"""Cost of a cache miss, in cosine."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One question with its answer.

    Args:
        situation: State at the choice.
        drawn: The choice.
        answer: The answer.
    """

    situation: Situation
    drawn: Choice
    answer: Answer

    @property
    def gain(self) -> float:
        """Gain in similarity, ≥ 0."""
        return self.answer.similarity - self.situation.similarity

    @property
    def outcomes(self) -> Mapping[str, float]:
        """Outcomes for the reward of the decision point."""
        return {"similarity_gain": self.gain, "cache_miss": 0.0 if self.answer.cache_hit else 1.0}

    @property
    def reward(self) -> float:
        """Gain minus .05 for a cache miss, unscaled."""
        return self.gain - (0.0 if self.answer.cache_hit else MISS_COST)


@dataclass(frozen=True, slots=True, eq=False)
class Investigation:
    """All questions about one target.

    Args:
        target: The target.
        opening: Similarity of the opening text.
        steps: Steps in order.
        stop_at: Similarity at which it stops.
    """

    target: Target
    opening: Answer
    steps: tuple[Step, ...]
    stop_at: float

    @property
    def similarity(self) -> float:
        """Final similarity."""
        return self._last.similarity

    @property
    def hypothesis(self) -> str:
        """Final text."""
        return self._last.hypothesis

    @property
    def solved(self) -> bool:
        """True if the similarity reached ``stop_at``."""
        return self.similarity >= self.stop_at

    @property
    def cache_hits(self) -> int:
        """Number of questions answered from the cache."""
        return sum(step.answer.cache_hit for step in self.steps)

    @property
    def embedder_calls(self) -> int:
        """Number of embedded texts, with the opening."""
        return self.opening.embedder_calls + sum(step.answer.embedder_calls for step in self.steps)

    def steps_to(self, similarity: float) -> int | None:
        """Return the number of questions until a similarity was reached.

        Args:
            similarity: A cosine, −1 to 1.

        Returns:
            0 if the opening was enough; ``None`` if it was never reached.
        """
        reached = (self.opening, *(step.answer for step in self.steps))
        return next((n for n, one in enumerate(reached) if one.similarity >= similarity), None)

    @property
    def _last(self) -> Answer:
        return self.steps[-1].answer if self.steps else self.opening


def investigate(
    target: Target,
    *,
    questions: Questions,
    chooser: Chooser,
    answerer: Answerer,
    rng: np.random.Generator,
    limit: int = LIMIT,
    stop_at: float = STOP_AT,
    on_step: Callable[[Step], None] | None = None,
) -> Investigation:
    """Investigate a target; the chooser learns from each step.

    The investigation ends if the similarity is at least ``stop_at``, after ``limit`` questions, or
    if no eligible question is left. A question is eligible if its slot is filled and the answerer
    takes it.

    Args:
        limit: Maximum number of questions, ≥ 1.
        stop_at: Similarity in (−1, 1] at which it stops.

    Raises:
        InputError: The target does not have the embedder's dimension, or ``limit`` or ``stop_at``
            is out of range.
        ActionError: The chooser selected a question that is not eligible.
    """
    if limit < 1 or not -1.0 < stop_at <= 1.0:
        message = f"limit {limit}, stop_at {stop_at}; allowed: limit 1 or more, stop_at in (-1, 1]"
        raise InputError(message)
    opening = answerer.open(questions.opening, target.vector)
    situation = _answerable(Situation.at_start(questions, target.vector, opening), answerer)
    steps: list[Step] = []
    while situation.similarity < stop_at and situation.step < limit and situation.eligible:
        drawn = chooser.choose(situation, rng)
        if drawn.action not in situation.eligible:
            message = f"{drawn.action!r} was chosen; eligible: {', '.join(situation.eligible)}"
            raise ActionError(message)
        answer = answerer.answer(questions[drawn.action], situation)
        steps.append(Step(situation, drawn, answer))
        chooser.learn(situation, drawn, steps[-1].outcomes)
        if on_step is not None:
            on_step(steps[-1])
        situation = _answerable(situation.after(drawn.action, answer), answerer)
    return Investigation(target, opening, tuple(steps), stop_at)


def _answerable(situation: Situation, answerer: Answerer) -> Situation:
    """Return the situation without the questions that the answerer cannot answer."""
    questions, slots = situation.questions, situation.slots
    left = [name for name in situation.eligible if answerer.takes(questions[name], slots)]
    return replace(situation, eligible=tuple(left))
