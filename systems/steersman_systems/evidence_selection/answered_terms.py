"""Reward terms that need an answer: correctness, faithfulness and support.

`containment` and `completeness` (in `reward`) need passages only. These terms call a model for each
new selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import BackendUnavailableError
from steersman.providers.judges.scores import Case
from steersman_systems.evidence_selection import answers
from steersman_systems.evidence_selection.measures import cited

if TYPE_CHECKING:
    from steersman.providers.judges.judge import Measure
    from steersman_systems.evidence_selection.answer_model import Answerer, ModelAnswer
    from steersman_systems.evidence_selection.environment import State


@dataclass(frozen=True, slots=True)
class AnsweredTerms:
    """Terms for `RewardTerms.finals`, one per method; cached answers are requested once.

    Args:
        answerer: answers questions from the picked passages.
        judge: faithfulness of an answer; None: whether the passages contain it.
    """

    answerer: Answerer
    judge: Measure | None = None

    def match(self, state: State) -> float:
        """Return the F1 of the answer with the nearest correct one, in [0, 1].

        Raises:
            BackendUnavailableError: the model was not called or not available.
        """
        return answers.f1(self._answered(state).text, state.question.answers)

    def attribution(self, state: State) -> float:
        """Return 1 if a passage in the prompt contains the answer; does not read gold.

        Raises:
            BackendUnavailableError: as `match`.
        """
        found = self._answered(state)
        return float(bool(cited(found.text, dict(found.shown))))

    def faithfulness(self, state: State) -> float:
        """Return how well the passages support the answer, in [0, 1].

        Raises:
            BackendUnavailableError: as `match`, or the judge gave no verdict.
        """
        if self.judge is None:
            return self.attribution(state)
        found = self._answered(state)
        texts = tuple(text for _, text in found.shown)
        said = self.judge(Case(state.pool.asked, found.text, texts)).value
        if said is None:
            raise _unknown(state, "the judge gave no verdict")
        return said

    def _answered(self, state: State) -> ModelAnswer:
        picked = [state.pool.candidates[place] for place in state.picked]
        found = self.answerer(state.pool.asked, picked)
        if found.missing:
            raise _unknown(state, found.failed)
        return found


def _unknown(state: State, why: str) -> BackendUnavailableError:
    message = f"what a selection for {state.question.id!r} is worth is not known: {why}; "
    return BackendUnavailableError(message + "what was answered is kept, so try again later")
