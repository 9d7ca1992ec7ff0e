"""Who answers: the seam, and the answerer that tries every option of a template."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import InputError
from steersman.systems.interrogator.answer_cache import cache_key, text_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.retrieval import Embedder
    from steersman.systems.interrogator.answer_cache import AnswerCache
    from steersman.systems.interrogator.questions import Template
    from steersman.systems.interrogator.situation import Situation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question brought.

    Args:
        text: The option that was kept; ``None`` when none came closer than the hypothesis did.
        hypothesis: The text afterwards; unchanged when nothing was kept.
        similarity: Of that text and the target, −1 to 1.
        answer_similarity: Of the best option's text, kept or not.
        cache_hit: Whether the cache had the answer.
        embedder_calls: Texts that were embedded for it; 0 on a hit.
    """

    text: str | None
    hypothesis: str
    similarity: float
    answer_similarity: float
    cache_hit: bool
    embedder_calls: int


class Answerer(Protocol):
    """Answers the questions of an investigation."""

    def open(self, text: str, target: NDArray[Any]) -> Answer:
        """Return what the opening text is worth, before anything is asked.

        Args:
            text: The opening.
            target: (size,) unit vector.
        """

    def takes(self, template: Template, slots: Mapping[str, str]) -> bool:
        """Return whether a question can be answered; `investigate` lets no other be chosen.

        Args:
            template: The question.
            slots: What is filled, by slot.
        """

    def answer(self, template: Template, situation: Situation) -> Answer:
        """Return the answer to a question.

        Args:
            template: One of the eligible.
            situation: Where the investigation stands.
        """


class OptionAnswerer:
    """Appends every option to the hypothesis, and keeps the most similar if it comes closer.

    Vectors pass through float16 whether they were found or computed, so a hit and a miss give the
    same similarities to the bit.

    Args:
        embedder: Embeds the texts.
        cache: Keeps the vectors of all options after one hypothesis.
    """

    def __init__(self, embedder: Embedder, cache: AnswerCache) -> None:
        self._embedder, self._cache = embedder, cache

    def open(self, text: str, target: NDArray[Any]) -> Answer:
        """Return what the opening text is worth, before anything is asked.

        Args:
            text: The opening.
            target: (size,) unit vector.

        Returns:
            No answer yet, but a first similarity.

        Raises:
            InputError: The embedder's vectors are not of the target's dimension, or not finite.
        """
        vectors, hit = embedded([text], text_key(text, self._embedder.name), self._embedder,
                                self._cache)  # fmt: skip
        similarity = float(similarities(vectors, target)[0])
        return Answer(None, text, similarity, similarity, hit, 0 if hit else 1)

    def takes(self, template: Template, slots: Mapping[str, str]) -> bool:
        """Return whether a question has options; those with ``options: ask`` have none.

        Args:
            template: The question.
            slots: What is filled, by slot.
        """
        return bool(template.vocabulary(slots))

    def answer(self, template: Template, situation: Situation) -> Answer:
        """Return the option that comes nearest, if it comes nearer than the hypothesis.

        Args:
            template: One of the eligible, with options.
            situation: Where the investigation stands.

        Returns:
            The answer.

        Raises:
            InputError: The template has no options, or the embedder's vectors are not of the
                target's dimension, or not finite.
        """
        options = template.vocabulary(situation.slots)
        if not options:
            message = (
                f"question {template.name!r} has no options here; allowed are 1 or more; list some "
                "in questions.yaml, or let an LLMAnswerer answer"
            )
            raise InputError(message)
        before = situation.hypothesis
        texts = [template.extend(before, option, situation.slots) for option in options]
        key = cache_key(template, before, self._embedder.name, situation.slots)
        vectors, hit = embedded(texts, key, self._embedder, self._cache)
        found = similarities(vectors, situation.target)
        best = int(found.argmax())
        calls, near = 0 if hit else len(texts), float(found[best])
        if near > situation.similarity:
            return Answer(options[best], texts[best], near, near, hit, calls)
        return Answer(None, before, situation.similarity, near, hit, calls)


def embedded(
    texts: Sequence[str], key: str, embedder: Embedder, cache: AnswerCache
) -> tuple[NDArray[np.float16], bool]:
    """Return the vectors of texts, from the cache or computed and then kept.

    Args:
        texts: n texts.
        key: Where they are kept.
        embedder: Embeds them when they are not there.
        cache: Keeps them.

    Returns:
        (n, size) float16, and whether the cache had them.

    Raises:
        InputError: The embedder's vectors are not finite.
    """
    wanted = (len(texts), embedder.size)
    found = cache.get(key)
    if found is not None and found.shape == wanted:
        return found, True
    if found is not None:
        _log.warning("the cache holds %s under %s; wanted %s: embedded anew", found.shape, key,
                     wanted)  # fmt: skip
    vectors = vectors_of(texts, embedder)
    cache.put(key, vectors)
    return vectors, False


def vectors_of(texts: Sequence[str], embedder: Embedder) -> NDArray[np.float16]:
    """Return the vectors of texts, computed and checked.

    Args:
        texts: n texts.
        embedder: Embeds them.

    Returns:
        (n, size) float16.

    Raises:
        InputError: They are of another shape, or not finite.
    """
    wanted = (len(texts), embedder.size)
    vectors = np.asarray(embedder.encode(texts), np.float32).astype(np.float16)
    if vectors.shape != wanted or not np.isfinite(vectors).all():
        message = (
            f"{embedder.name} gave vectors of shape {vectors.shape}; allowed are finite numbers of "
            f"shape {wanted}; check the embedder"
        )
        raise InputError(message)
    return vectors


def similarities(vectors: NDArray[np.float16], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each vector and the target, in float64.

    Args:
        vectors: (n, size) float16, none of them zero.
        target: (size,) unit vector.

    Returns:
        (n,) float64; summed without BLAS, so that a row's value does not depend on its neighbours.

    Raises:
        InputError: The dimensions differ, or a vector is zero.

    >>> similarities(np.array([[3, 4], [1, 0]], np.float16), np.array([1.0, 0.0])).tolist()
    [0.6, 1.0]
    """
    wide = vectors.astype(np.float64)
    if wide.shape[1:] != np.shape(target):
        message = (
            f"the target has shape {np.shape(target)}; allowed is ({wide.shape[1]},), as the "
            "embedder gives; embed the target with the same embedder"
        )
        raise InputError(message)
    lengths = np.sqrt((wide * wide).sum(axis=1))
    if not lengths.all():
        message = "an embedded text has the zero vector; allowed is any other; check the embedder"
        raise InputError(message)
    products: NDArray[np.float64] = (wide * target).sum(axis=1) / lengths
    return products
