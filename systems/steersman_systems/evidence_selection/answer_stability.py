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
    """How sure an answerer is of its answer from the passages picked so far.

    Half for an answer that stands in what was shown word for word, half for the same answer with
    one passage fewer. The model is not asked how certain it is: small ones are always
    certain.

    Args:
        answerer: that is asked, once for each number of passages if its answers are kept.
    """

    answerer: Answerer

    def __call__(self, state: State) -> float:
        """Return 0, ½ or 1; 0 where nothing is picked, and where no answer came."""
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
    """A contender whose selections end when the answerer is sure; it learns as it would anyhow.

    Args:
        inner: makes a selector that scores.
        confidence: of the answerer in a state.
        confident: from which on a selection ends, in (0, 1].
    """

    inner: Contender
    confidence: Confidence
    confident: float = 0.9

    @property
    def name(self) -> str:
        """The inner one's, and that it ends when it is sure."""
        return f"{self.inner.name}, until sure"

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the inner one's selector under rules that ask the answerer.

        Raises:
            InputError: what it makes does not select by scores.
        """
        made = self.inner.fitted(pools)
        if not isinstance(made, ScoredSelector):
            raise InputError(f"{made.name} has no scores; use a clone")
        asking = replace(made.environment, confidence=self.confidence, confident=self.confident)
        return replace(made, name=self.name, environment=asking)
