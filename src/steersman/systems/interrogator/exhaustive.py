"""The reference: every eligible question tried at each step, the best kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.systems.interrogator.choosers import certain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.systems.interrogator.answers import Answerer
    from steersman.systems.interrogator.choosers import Drawn
    from steersman.systems.interrogator.situation import Situation


class Exhaustive:
    """Asks the eligible question whose answer comes nearest to the target, having tried them all.

    Greedy, hence no bound for a whole investigation; a step of about fifty questions costs some 500
    texts.

    Args:
        answerer: Tries the questions; the one that answers the investigation, so that the question
            chosen is a cache hit there. One that cannot answer a template raises.

    Attributes:
        embedder_calls: Texts embedded for choosing; they count beside those of the answers.

    No doctest: it needs an answerer; ``tests/systems/interrogator/test_choosers.py`` shows it.
    """

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self.embedder_calls = 0

    def choose(self, situation: Situation, rng: np.random.Generator) -> Drawn:
        """Return the best question; of equally good ones the first in declared order.

        Args:
            situation: Where the investigation stands; something is eligible.
            rng: Gives exactly one uniform.

        Returns:
            The question, with the probability of each.
        """
        tried = [
            self._answerer.answer(situation.questions[name], situation)
            for name in situation.eligible
        ]
        self.embedder_calls += sum(answer.embedder_calls for answer in tried)
        best = int(np.argmax([answer.answer_similarity for answer in tried]))
        return certain(situation.eligible[best], situation, rng, by="exhaustive")

    def learn(self, situation: Situation, drawn: Drawn, outcomes: Mapping[str, float]) -> None:
        """Learns nothing.

        Args:
            situation: As it was chosen in.
            drawn: The choice.
            outcomes: ``similarity_gain`` and ``cache_miss``.
        """
