"""Where an investigation stands: all that a chooser may know when it picks the next question."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.systems.interrogator.answers import Answer
    from steersman.systems.interrogator.questions import Questions

    Floats = NDArray[Any]

LAST = 3
"""How many of the last questions the context names."""


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """One step of an investigation, before the question is chosen.

    Args:
        questions: What can be asked.
        target: (size,) float64 unit vector that is investigated.
        hypothesis: The text so far.
        similarity: Cosine of its embedding and the target, −1 to 1.
        change: What the last question added to it, ≥ 0; 0 before the first.
        answer_similarity: Of the best option of the last question, kept or not; that of the opening
            before the first.
        asked: Names of the questions asked, first to last.
        gains: What each of them added.
        slots: What is filled, by slot.
        step: Number of questions asked.
        eligible: Names that can be asked now, in declared order.
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
        """Return the situation before the first question.

        Args:
            questions: What can be asked.
            target: (size,) unit vector.
            opening: What the answerer says of the opening text.
        """
        return cls(
            questions=questions,
            target=target,
            hypothesis=opening.hypothesis,
            similarity=opening.similarity,
            answer_similarity=opening.answer_similarity,
            eligible=questions.eligible((), {}),
        )

    def after(self, asked: str, answer: Answer) -> Situation:
        """Return the situation that an answer leads to; this one is unchanged.

        Args:
            asked: Name of the question.
            answer: Its answer here.
        """
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
        """Return the values of the decision point's context, by field name."""
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
    """Return the context that these facts make, whether seen or read from a log.

    Args:
        target: (size,) unit vector.
        similarity: As in `Situation`.
        change: As in `Situation`.
        answer_similarity: As in `Situation`.
        asked: Names of the questions asked, first to last.
    """
    return {
        "target": target,
        "similarity": similarity,
        "similarity_change": change,
        "answer_similarity": answer_similarity,
        "step": len(asked),
        "last": " ".join(asked[-LAST:]),
    }
