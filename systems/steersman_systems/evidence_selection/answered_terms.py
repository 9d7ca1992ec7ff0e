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
    """Each method is a term of `RewardTerms.finals`; answers that are kept are asked for once.

    Args:
        answerer: of questions from what was picked.
        judge: of an answer's faithfulness; None: whether it stands in what was shown.
    """

    answerer: Answerer
    judge: Measure | None = None

    def match(self, state: State) -> float:
        """Return F1 of the answer with the right one nearest to it, in [0, 1].

        Raises:
            BackendUnavailableError: the model was not asked or not available.
        """
        return answers.f1(self._answered(state).text, state.question.answers)

    def attribution(self, state: State) -> float:
        """Return 1 where the answer stands in a passage that was shown; no gold is looked at.

        Raises:
            BackendUnavailableError: as `match`.
        """
        found = self._answered(state)
        return float(bool(cited(found.text, dict(found.shown))))

    def faithfulness(self, state: State) -> float:
        """Return how far what was shown bears the answer out, in [0, 1].

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
