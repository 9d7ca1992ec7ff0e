"""Answerers: the interface, and the answerer that tries every option of a template."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steersman.errors import InputError
from steersman_systems.interrogator.answer_cache import cache_key, text_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman_systems.interrogator.answer_cache import AnswerCache
    from steersman_systems.interrogator.questions import Template
    from steersman_systems.interrogator.state import Situation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question.

    Args:
        text: The kept option; ``None`` if no option is closer than the hypothesis.
        hypothesis: The text with the answer; unchanged without a kept option.
        similarity: Cosine of that text and the target, −1 to 1.
        answer_similarity: Cosine of the best option's text, kept or not.
        cache_hit: True if the cache had the answer.
        embedder_calls: Number of embedded texts; 0 on a hit.
    """

    text: str | None
    hypothesis: str
    similarity: float
    answer_similarity: float
    cache_hit: bool
    embedder_calls: int


class Answerer(Protocol):
    """Source of answers in an investigation."""

    def open(self, text: str, target: NDArray[Any]) -> Answer:
        """Return the similarity of the opening text, as an answer."""

    def takes(self, template: Template, slots: Mapping[str, str]) -> bool:
        """Return whether it can answer a question; `investigate` asks no other questions."""

    def answer(self, template: Template, situation: Situation) -> Answer:
        """Return the answer to a question."""


class OptionAnswerer:
    """Answerer that appends every option to the hypothesis and keeps the best one if it is closer.

    Vectors are rounded to float16 in both cases, so a cache hit and a miss give equal similarities.

    Args:
        embedder: Embeds the texts.
        cache: Cache of the vectors of all options after one hypothesis.
    """

    def __init__(self, embedder: Embedder, cache: AnswerCache) -> None:
        self._embedder, self._cache = embedder, cache

    def open(self, text: str, target: NDArray[Any]) -> Answer:
        """Return the similarity of the opening text, as an answer.

        Raises:
            InputError: The embedder's vectors do not have the target's dimension, or are not
                finite.
        """
        vectors, hit = embedded([text], text_key(text, self._embedder.name), self._embedder,
                                self._cache)  # fmt: skip
        similarity = float(similarities(vectors, target)[0])
        return Answer(None, text, similarity, similarity, hit, 0 if hit else 1)

    def takes(self, template: Template, slots: Mapping[str, str]) -> bool:
        """Return whether a question has options; ``options: ask`` has none."""
        return bool(template.vocabulary(slots))

    def answer(self, template: Template, situation: Situation) -> Answer:
        """Return the nearest option, if it is nearer than the hypothesis.

        Raises:
            InputError: The template has no options, or the embedder's vectors do not have the
                target's dimension or are not finite.
        """
        options = template.vocabulary(situation.slots)
        if not options:
            message = (
                f"question {template.name!r} has no options here; expected 1 or more; list them "
                "in questions.yaml, or use an LLMAnswerer"
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
    """Return the vectors of texts, from the cache or newly embedded.

    Returns:
        (n, size) float16, and True for a cache hit.

    Raises:
        InputError: The embedder's vectors are not finite.
    """
    wanted = (len(texts), embedder.size)
    found = cache.get(key)
    if found is not None and found.shape == wanted:
        return found, True
    if found is not None:
        _log.warning("the cache holds %s under %s; wanted %s: embedding again", found.shape, key,
                     wanted)  # fmt: skip
    vectors = vectors_of(texts, embedder)
    cache.put(key, vectors)
    return vectors, False


def vectors_of(texts: Sequence[str], embedder: Embedder) -> NDArray[np.float16]:
    """Return the checked vectors of texts, (n, size) float16.

    Raises:
        InputError: The vectors have another shape, or are not finite.
    """
    wanted = (len(texts), embedder.size)
    vectors = np.asarray(embedder.encode(texts), np.float32).astype(np.float16)
    if vectors.shape != wanted or not np.isfinite(vectors).all():
        message = (
            f"{embedder.name} returned vectors of shape {vectors.shape}; expected finite numbers "
            f"of shape {wanted}; check the embedder"
        )
        raise InputError(message)
    return vectors


def similarities(vectors: NDArray[np.float16], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each vector and the target, in float64.

    Args:
        vectors: (n, size) float16, none of them zero.

    Returns:
        (n,) float64; summed without BLAS, so that a value does not depend on the other rows.

    Raises:
        InputError: The dimensions differ, or a vector is zero.

    >>> similarities(np.array([[3, 4], [1, 0]], np.float16), np.array([1.0, 0.0])).tolist()
    [0.6, 1.0]
    """
    wide = vectors.astype(np.float64)
    if wide.shape[1:] != np.shape(target):
        message = (
            f"the target has shape {np.shape(target)}; expected ({wide.shape[1]},), as the "
            "embedder gives; embed the target with the same embedder"
        )
        raise InputError(message)
    lengths = np.sqrt((wide * wide).sum(axis=1))
    if not lengths.all():
        message = "an embedded text has the zero vector; check the embedder"
        raise InputError(message)
    products: NDArray[np.float64] = (wide * target).sum(axis=1) / lengths
    return products
