"""Chooser of the question with the option nearest to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.interrogator.answers import similarities
from steersman_systems.interrogator.choosers import certain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman_systems.interrogator.choosers import Choice
    from steersman_systems.interrogator.questions import Template
    from steersman_systems.interrogator.state import Situation


class Nearest:
    """Chooser of the eligible question whose option, alone in its phrase, is nearest to the target.

    Args:
        embedder: Embeds each option once.

    Attributes:
        embedder_calls: Texts embedded for choosing, in addition to those of the answers.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[tuple[str, ...], NDArray[np.float16]] = {}
        self.embedder_calls = 0

    def choose(self, situation: Situation, rng: np.random.Generator) -> Choice:
        """Return the nearest question; ties go to the first in declared order."""
        return certain(self.ranked(situation)[0], situation, rng, by="nearest")

    def ranked(self, situation: Situation) -> list[str]:
        """Return the eligible questions, the one with the nearest option first."""
        near = [self._near(name, situation) for name in situation.eligible]
        order = np.argsort(-np.array(near), kind="stable")
        return [situation.eligible[i] for i in order]

    def learn(self, situation: Situation, drawn: Choice, outcomes: Mapping[str, float]) -> None:
        """Learns nothing."""

    def _near(self, name: str, situation: Situation) -> float:
        template = situation.questions[name]
        vectors = self._vectors(template, situation.slots)
        if len(vectors) == 0:  # only a language model can answer it
            return -1.0
        return float(similarities(vectors, situation.target).max())

    def _vectors(self, template: Template, slots: Mapping[str, str]) -> NDArray[np.float16]:
        texts = tuple(template.extend("", option, slots) for option in template.vocabulary(slots))
        if texts not in self._known:
            self._known[texts] = np.asarray(self._embedder.encode(texts), np.float16)
            self.embedder_calls += len(texts)
        return self._known[texts]
