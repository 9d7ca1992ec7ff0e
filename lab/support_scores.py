"""Support of statements by texts: proxy scores without a language model.

They do not measure faithfulness and pass no gate of it. Their agreement is measured by
``python -m benchmarks.quality``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from lab.negation import denial_of
from steersman.errors import InputError
from steersman_systems.rag_tuner.ranking_metrics import recall_at

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from lab.entailment import Entailment
    from steersman.retrieval.dense import Embedder

NEAREST = 6
"""Sentences per text to read: those closest to the statement."""
NEARBY = 0.2
"""Drop of closeness, from the closest sentence, at which a sentence's weight is 1/e."""
CLOSENESS = 8.0
"""Weight of closeness against the two contradiction scores. Chosen with `NEARBY` on 301 training
pairs of SciFact; neighbouring values are as good (AUC .79 to .80)."""
THRESHOLD = 6.3
"""Score that separates support best on the same pairs; it maps to .5."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9(])")
_SHORTEST = 20
_LEAST = 1e-6


class EntailmentSupport:
    """Support of statements by texts, from a model that only detects contradictions.

    A sentence supports S if it contradicts the denial of S (`denial_of`) and does not contradict S.
    The sentences closest in meaning to S are scored, weighted by closeness. The highest closeness
    is added, because unrelated text is not support.

    Args:
        entailment: any model with the label ``contradiction``.
        embedder: embedder with unit vectors; the constants were chosen with `MiniLM`.
        threshold: score that maps to .5; choose it on your texts.

    Raises:
        InputError: the threshold is not a number.

    Source: single sentences as in Laban, Schnabel, Bennett & Hearst, SummaC (2022). The use of the
    denial is our addition, without a support label; `benchmarks.quality` has the figures.
    """

    name = "entailment_support"

    def __init__(
        self, entailment: Entailment, embedder: Embedder, *, threshold: float = THRESHOLD
    ) -> None:
        if not np.isfinite(threshold):
            raise InputError(f"threshold is {threshold!r}; it must be a number")
        self._entailment = entailment
        self._embedder = embedder
        self.threshold = threshold

    def scores(self, statement: str, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the support of a statement by each text.

        Returns:
            (texts,) in [0, 1]; above .5 is support. They rank well but are not probabilities.

        Raises:
            InputError: the statement or a text is empty.
            DataError: the model did not return logits.
        """
        if not statement.strip() or not all(text.strip() for text in texts):
            raise InputError("a statement or a text is empty; remove it")
        values = np.array([self._score(statement, text) for text in texts], np.float64)
        return np.asarray(1.0 / (1.0 + np.exp(self.threshold - values)), np.float64)

    def share(self, statements: Sequence[str], texts: Sequence[str]) -> float:
        """Return the share of statements that at least one text supports.

        Returns:
            In [0, 1]; 0 without a text.

        Raises:
            InputError: no statement, or an empty one.
            DataError: as `scores`.
        """
        if not statements:
            raise InputError("an answer without statements has no share; exclude it")
        if not texts:
            return 0.0
        borne = [float(self.scores(one, texts).max()) > 0.5 for one in statements]
        return sum(borne) / len(borne)

    def _score(self, statement: str, text: str) -> float:
        sentences = sentences_of(text)
        vectors = self._embedder.encode([statement, *sentences])
        close = vectors[1:] @ vectors[0]
        order = np.argsort(-close, kind="stable")[:NEAREST]
        near = [sentences[place] for place in order]
        denied = _logit(self._entailment.contradiction(near, [denial_of(statement)] * len(near)))
        said = _logit(self._entailment.contradiction(near, [statement] * len(near)))
        counted = np.exp((close[order] - close[order[0]]) / NEARBY)
        return float(np.average(denied - said, weights=counted) + CLOSENESS * close[order[0]])


def gold_recall(found: Sequence[Hashable], gains: Mapping[Any, float]) -> float:
    """Return the share of relevant passages that were retrieved.

    Whether an answer used them is unknown.

    Args:
        gains: gain by id; ids with a gain above 0 are relevant.

    Returns:
        In [0, 1].

    Raises:
        InputError: a duplicate id, or no relevant passage.

    >>> gold_recall(["a", "b"], {"a": 1, "z": 1})
    0.5
    """
    return recall_at(found, gains, max(len(found), 1))


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text that are long enough; else the whole text.

    >>> sentences_of("Pumps hum when they are cold. No. Valves stick when they are old.")
    ['Pumps hum when they are cold.', 'Valves stick when they are old.']
    """
    return [one for one in _SENTENCE.split(text) if len(one) > _SHORTEST] or [text]


def _logit(shares: NDArray[np.float32]) -> NDArray[np.float64]:
    inside = np.clip(np.asarray(shares, np.float64), _LEAST, 1 - _LEAST)
    return np.asarray(np.log(inside / (1 - inside)), np.float64)
