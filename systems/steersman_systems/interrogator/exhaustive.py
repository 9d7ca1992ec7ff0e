"""Exhaustive search: tries every eligible question at each step and keeps the best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman_systems.interrogator.choosers import certain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman_systems.interrogator.answers import Answerer
    from steersman_systems.interrogator.choosers import Choice
    from steersman_systems.interrogator.neighbours import Nearest
    from steersman_systems.interrogator.state import Situation


class Exhaustive:
    """Chooser of the question with the answer nearest to the target, after trying all.

    The search is greedy, so it is not an upper bound for a whole investigation. A step of about
    fifty questions embeds about 500 texts. A shortlist tries only the questions with the nearest
    options: it costs less, and may miss a better question.

    Args:
        answerer: Tries the questions. Use the answerer of the investigation, so that the chosen
            question is a cache hit. It must be able to answer all templates.
        nearest: Ranks the questions for the shortlist; ``None`` to try all.
        shortlist: Number of questions to try at each step, ≥ 1; needs ``nearest``.

    Raises:
        InputError: A shortlist below 1.
    """

    def __init__(
        self, answerer: Answerer, *, nearest: Nearest | None = None, shortlist: int = 8
    ) -> None:
        if shortlist < 1:
            message = (
                f"shortlist is {shortlist}; allowed: 1 or more; without nearest, all questions are"
            )
            raise InputError(f"{message} tried")
        self._answerer, self._nearest, self._shortlist = answerer, nearest, shortlist
        self._tried = 0

    @property
    def embedder_calls(self) -> int:
        """Number of texts embedded for choosing."""
        return self._tried + (0 if self._nearest is None else self._nearest.embedder_calls)

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the best question; ties go to the first in declared order."""
        names = list(situation.eligible)
        if self._nearest is not None:
            listed = self._nearest.ranked(situation)[: self._shortlist]
            names = [name for name in names if name in listed]
        tried = [self._answerer.answer(situation.questions[name], situation) for name in names]
        self._tried += sum(answer.embedder_calls for answer in tried)
        best = int(np.argmax([answer.answer_similarity for answer in tried]))
        return certain(names[best], situation, rng, by="exhaustive")

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learns nothing."""
