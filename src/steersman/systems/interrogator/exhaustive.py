"""The reference: every eligible question tried at each step, the best kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.systems.interrogator.choosers import certain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.systems.interrogator.answers import Answerer
    from steersman.systems.interrogator.choosers import Drawn
    from steersman.systems.interrogator.nearest import Nearest
    from steersman.systems.interrogator.situation import Situation


class Exhaustive:
    """Asks the eligible question whose answer comes nearest to the target, having tried them all.

    Greedy, hence no bound for a whole investigation; a step of about fifty questions costs some 500
    texts. With a shortlist it tries only the questions whose options alone are nearest, at a
    fraction of that, and may miss a better one.

    Args:
        answerer: Tries the questions; the one that answers the investigation, so that the question
            chosen is a cache hit there. One that cannot answer a template raises.
        nearest: Ranks the questions for the shortlist; ``None`` to try them all.
        shortlist: Questions tried at each step, ≥ 1, where ``nearest`` is given.

    Raises:
        InputError: a shortlist below 1.
    """

    def __init__(
        self, answerer: Answerer, *, nearest: Nearest | None = None, shortlist: int = 8
    ) -> None:
        if shortlist < 1:
            message = f"shortlist is {shortlist}; allowed is 1 or more; without nearest all are"
            raise InputError(f"{message} tried")
        self._answerer, self._nearest, self._shortlist = answerer, nearest, shortlist
        self._tried = 0

    @property
    def embedder_calls(self) -> int:
        """Return how many texts were embedded for choosing."""
        return self._tried + (0 if self._nearest is None else self._nearest.embedder_calls)

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return the best question; of equally good ones the first in declared order.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Gives exactly one uniform.

        Returns:
            The question, with the probability of each.
        """
        names = list(situation.eligible)
        if self._nearest is not None:
            listed = self._nearest.ranked(situation)[: self._shortlist]
            names = [name for name in names if name in listed]
        tried = [self._answerer.answer(situation.questions[name], situation) for name in names]
        self._tried += sum(answer.embedder_calls for answer in tried)
        best = int(np.argmax([answer.answer_similarity for answer in tried]))
        return certain(names[best], situation, rng, by="exhaustive")

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Learns nothing.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.
        """
