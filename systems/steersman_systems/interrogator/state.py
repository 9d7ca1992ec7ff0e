"""State of an investigation: the input of a chooser."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman_systems.interrogator.answers import Answer
    from steersman_systems.interrogator.questions import Questions

    Floats = NDArray[Any]

LAST = 3
"""Number of last questions in the context."""


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """State of an investigation before a question is chosen.

    Args:
        questions: All questions.
        target: (size,) float64 unit vector of the target.
        hypothesis: Text so far.
        similarity: Cosine of its embedding and the target, −1 to 1.
        change: Gain of the last question, ≥ 0; 0 before the first.
        answer_similarity: Similarity of the best option of the last question, kept or not; before
            the first question, that of the opening.
        asked: Names of the asked questions, in order.
        gains: Gain of each asked question.
        slots: Filled slots by name.
        step: Number of asked questions.
        eligible: Eligible names, in declared order.
    """

    questions: Questions
    target: Floats
    hypothesis: str
    similarity: float
    change: float = 0.0
    answer_similarity: float = 0.0
    asked: tuple[str, ...] = ()
    gains: tuple[float, ...] = ()
    slots: Mapping[str, str] = field(default_factory=dict)
    step: int = 0
    eligible: tuple[str, ...] = ()

    @classmethod
    def at_start(cls, questions: Questions, target: Floats, opening: Answer) -> Situation:
        """Return the state before the first question."""
        return cls(
            questions=questions,
            target=target,
            hypothesis=opening.hypothesis,
            similarity=opening.similarity,
            answer_similarity=opening.answer_similarity,
            eligible=questions.eligible((), {}),
        )

    def after(self, asked: str, answer: Answer) -> Situation:
        """Return the state after an answer; this one is unchanged."""
        names = (*self.asked, asked)
        fills = self.questions[asked].fills
        filled = fills is not None and answer.text is not None
        slots = {**self.slots, str(fills): str(answer.text)} if filled else self.slots
        change = answer.similarity - self.similarity
        return replace(
            self,
            hypothesis=answer.hypothesis,
            similarity=answer.similarity,
            change=change,
            answer_similarity=answer.answer_similarity,
            asked=names,
            gains=(*self.gains, change),
            slots=slots,
            step=len(names),
            eligible=self.questions.eligible(names, slots),
        )

    def context(self) -> dict[str, Any]:
        """Return the context of the decision point, by field name."""
        return context_of(
            self.target,
            similarity=self.similarity,
            change=self.change,
            answer_similarity=self.answer_similarity,
            asked=self.asked,
        )


def context_of(
    target: Floats,
    *,
    similarity: float,
    change: float,
    answer_similarity: float,
    asked: tuple[str, ...],
) -> dict[str, Any]:
    """Return the context of a live or logged step."""
    return {
        "target": target,
        "similarity": similarity,
        "similarity_change": change,
        "answer_similarity": answer_similarity,
        "step": len(asked),
        "last": " ".join(asked[-LAST:]),
    }
