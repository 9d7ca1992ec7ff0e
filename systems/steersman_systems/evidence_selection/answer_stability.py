"""Early stop when the answering model is confident."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman_systems.evidence_selection.answers import normalised
from steersman_systems.evidence_selection.measures import cited
from steersman_systems.evidence_selection.selectors import ScoredSelector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman_systems.evidence_selection.answer_model import Answerer
    from steersman_systems.evidence_selection.environment import Confidence, Selector, State
    from steersman_systems.evidence_selection.evaluate import Contender
    from steersman_systems.evidence_selection.pool import Pool


@dataclass(frozen=True, slots=True)
class AnswerStability:
    """Confidence of an answerer in its answer from the picked passages.

    It adds ½ if the answer is in the passages word for word, and ½ if the answer is the same with
    one passage fewer. It does not ask the model, because small models are always certain.

    Args:
        answerer: called once per number of passages if its answers are cached.
    """

    answerer: Answerer

    def __call__(self, state: State) -> float:
        """Return 0, ½ or 1; 0 without picks or without an answer."""
        picked = [state.pool.candidates[place] for place in state.picked]
        now = self.answerer(state.pool.asked, picked)
        if not now.text:
            return 0.0
        stands = bool(cited(now.text, dict(now.shown)))
        before = self.answerer(state.pool.asked, picked[:-1])
        same = bool(before.text) and normalised(before.text) == normalised(now.text)
        return 0.5 * stands + 0.5 * same


@dataclass(frozen=True, slots=True)
class StopWhenStable:
    """Contender that stops when the answerer is confident; its training does not change.

    Args:
        inner: contender whose selector uses scores.
        confidence: confidence of the answerer in a state.
        confident: confidence at which a selection ends, in (0, 1].
    """

    inner: Contender
    confidence: Confidence
    confident: float = 0.9

    @property
    def name(self) -> str:
        """Name of the inner contender, with its stopping rule."""
        return f"{self.inner.name}, until sure"

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the inner selector with confidence stopping.

        Raises:
            InputError: the inner selector does not use scores.
        """
        made = self.inner.fitted(pools)
        if not isinstance(made, ScoredSelector):
            raise InputError(f"{made.name} has no scores; use a clone")
        asking = replace(made.environment, confidence=self.confidence, confident=self.confident)
        return replace(made, name=self.name, environment=asking)
