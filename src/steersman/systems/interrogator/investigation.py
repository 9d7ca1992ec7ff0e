"""One investigation, question by question: one session of the ordinary loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steersman.errors import ActionError, InputError
from steersman.systems.interrogator.situation import Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from steersman.systems.interrogator.answers import Answer, Answerer
    from steersman.systems.interrogator.choosers import Chooser, Drawn
    from steersman.systems.interrogator.questions import Questions
    from steersman.systems.interrogator.targets import Target

LIMIT = 10
"""Questions that one investigation may ask, unless told otherwise."""
STOP_AT = 0.90
"""Cosine at which the target counts as found, unless told otherwise."""
MISS_COST = 0.05
"""What a cache miss costs, in cosine."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One question and what came of it.

    Args:
        situation: What was known when it was chosen.
        drawn: The choice.
        answer: What was answered.
    """

    situation: Situation
    drawn: Drawn
    answer: Answer

    @property
    def gain(self) -> float:
        """Return by how much the similarity rose, ≥ 0."""
        return self.answer.similarity - self.situation.similarity

    @property
    def outcomes(self) -> Mapping[str, float]:
        """Return the outcomes that the decision point's reward is made of."""
        return {"similarity_gain": self.gain, "cache_miss": 0.0 if self.answer.cache_hit else 1.0}

    @property
    def reward(self) -> float:
        """Return the gain less .05 for a cache miss, unscaled."""
        return self.gain - (0.0 if self.answer.cache_hit else MISS_COST)


@dataclass(frozen=True, slots=True, eq=False)
class Investigation:
    """All questions that were put to one target.

    Args:
        target: What was looked for.
        opening: What the opening text was worth.
        steps: First to last.
        stop_at: Similarity at which it was to stop.
    """

    target: Target
    opening: Answer
    steps: tuple[Step, ...]
    stop_at: float

    @property
    def similarity(self) -> float:
        """Return the similarity reached."""
        return self._last.similarity

    @property
    def hypothesis(self) -> str:
        """Return the text reached."""
        return self._last.hypothesis

    @property
    def solved(self) -> bool:
        """Return whether it reached ``stop_at``."""
        return self.similarity >= self.stop_at

    @property
    def cache_hits(self) -> int:
        """Return how many questions the cache answered."""
        return sum(step.answer.cache_hit for step in self.steps)

    @property
    def embedder_calls(self) -> int:
        """Return how many texts were embedded, the opening included."""
        return self.opening.embedder_calls + sum(step.answer.embedder_calls for step in self.steps)

    def steps_to(self, similarity: float) -> int | None:
        """Return after how many questions a similarity was reached.

        Args:
            similarity: A cosine, −1 to 1.

        Returns:
            0 when the opening was enough; ``None`` when it was never reached.
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
    """Return the investigation of a target; the chooser learns from each step as it is made.

    It ends when the similarity is ``stop_at`` or more, after ``limit`` questions, or when none is
    left that is eligible: its slot is filled, and the answerer takes it. Nothing but the answerer
    touches the world, and nothing but ``rng`` is random.

    Args:
        target: What is looked for; `Target.of_vector` makes one of any embedding.
        questions: What can be asked.
        chooser: Picks each question.
        answerer: Answers it.
        rng: Draws the choices; one uniform a question.
        limit: Most questions, ≥ 1.
        stop_at: In (−1, 1].
        on_step: Told of each question once it was answered and learned from.

    Returns:
        All steps, with what was known at each.

    Raises:
        InputError: a target of another dimension than the embedder's, or a limit or ``stop_at``
            out of range.
        ActionError: the chooser picked what is not eligible.
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
            message = f"{drawn.action!r} was chosen; allowed are {', '.join(situation.eligible)}"
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
