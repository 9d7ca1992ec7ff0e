"""Answerer that asks a language model and keeps the most similar answer.

The model does not get the target: it proposes, and the embedder selects. So proposals depend on
question and hypothesis only, and are cached like the options of a vocabulary.
"""

from __future__ import annotations

import hashlib
import logging
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import BackendAnswerError, BackendError, InputError
from steersman_systems.interrogator.answer_cache import cache_key, text_key
from steersman_systems.interrogator.answers import Answer, embedded, similarities, vectors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.providers.backend import Backend
    from steersman.retrieval.dense import Embedder
    from steersman_systems.interrogator.answer_cache import AnswerCache
    from steersman_systems.interrogator.answers import Answerer
    from steersman_systems.interrogator.questions import Template
    from steersman_systems.interrogator.state import Situation

MOST_CHARACTERS = 60
MOST_BYTES = 4 * MOST_CHARACTERS
_MOST_HYPOTHESIS = 2_000
_TOKENS_EACH = 16
_BULLET = re.compile(r"^\s*(?:[-*•–—·>#]+|\(?(?:\d{1,3}|[A-Za-z])[.):](?=\s|$))\s*")
_QUOTES = " \t\"'`*_“”‘’«»"
_log = logging.getLogger(__name__)


class LLMAnswerer:
    """Answerer that asks a backend for short answers and keeps the most similar one.

    The cache key has template, hypothesis, embedder, backend and prompt. A cache hit calls neither
    the backend nor the embedder. If the backend gives no usable answer, ``otherwise`` answers; this
    is counted and logged, and not cached. If ``otherwise`` cannot answer either, the question has
    no gain.

    Args:
        backend: Language model that proposes answers.
        embedder: Embeds the texts.
        cache: Cache of answers and vectors.
        otherwise: Fallback answerer; ``None``: raise the backend's error.
        most: Maximum number of answers, 1 to 64.
        timeout_s: Timeout of the backend per question in seconds, above 0.

    Attributes:
        asked: Number of requests to the backend.
        fallbacks: Questions without an answer of the backend, by the name of the error.

    Raises:
        InputError: ``most`` is out of range.
    """

    def __init__(
        self,
        backend: Backend,
        embedder: Embedder,
        cache: AnswerCache,
        *,
        otherwise: Answerer | None,
        most: int = 8,
        timeout_s: float = 20.0,
    ) -> None:
        if not 1 <= most <= 64:
            raise InputError(f"most is {most}; allowed: 1 to 64 answers; usual: 8")
        self._backend, self._embedder, self._cache = backend, embedder, cache
        self._otherwise, self._most, self._timeout_s = otherwise, most, timeout_s
        self.asked = 0
        self.fallbacks: Counter[str] = Counter()

    def open(self, text: str, target: NDArray[Any]) -> Answer:
        """Return the similarity of the opening text; the backend is not called."""
        key = text_key(text, self._embedder.name)
        vectors, hit = embedded([text], key, self._embedder, self._cache)
        similarity = float(similarities(vectors, target)[0])
        return Answer(None, text, similarity, similarity, hit, 0 if hit else 1)

    def takes(self, template: Template, slots: Mapping[str, str]) -> bool:
        """Return True: a language model can answer any question."""
        del template, slots
        return True

    def answer(self, template: Template, situation: Situation) -> Answer:
        """Return the most similar proposal, or the answer of ``otherwise``.

        Returns:
            The answer; it may be empty.

        Raises:
            BackendError: The backend gave no usable answer, and no fallback is set.
            InputError: The embedder's vectors do not have the target's dimension, or are not
                finite.
        """
        try:
            answers, vectors, hit = self._proposed(template, situation)
        except BackendError as error:
            if self._otherwise is None:
                raise
            self.fallbacks[type(error).__name__] += 1
            _log.warning("%s is answered without the language model: %s", template.name, error)
            if not self._otherwise.takes(template, situation.slots):
                near = situation.similarity
                return Answer(None, situation.hypothesis, near, near, cache_hit=False,
                              embedder_calls=0)  # fmt: skip
            return self._otherwise.answer(template, situation)
        found = similarities(vectors, situation.target)
        best = int(found.argmax())
        calls, near = 0 if hit else len(answers), float(found[best])
        if near > situation.similarity:
            text = answers[best]
            extended = template.extend(situation.hypothesis, text, situation.slots)
            return Answer(text, extended, near, near, hit, calls)
        return Answer(None, situation.hypothesis, situation.similarity, near, hit, calls)

    def _proposed(
        self, template: Template, situation: Situation
    ) -> tuple[list[str], NDArray[np.float16], bool]:
        """Return the proposals, their vectors, and True for a cache hit."""
        prompt = prompt_for(template, situation, self._most)
        asked = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        made_by = f"{self._embedder.name} by {self._backend.name} asked {asked}"
        key = cache_key(template, situation.hypothesis, made_by, situation.slots)
        kept = self._cache.get(key)
        if kept is not None and (read := _unpacked(kept, self._embedder.size)) is not None:
            return *read, True
        answers = self._ask(prompt)
        before, slots = situation.hypothesis, situation.slots
        texts = [template.extend(before, answer, slots) for answer in answers]
        vectors = vectors_of(texts, self._embedder)
        self._cache.put(key, _packed(answers, vectors))
        return answers, vectors, False

    def _ask(self, prompt: str) -> list[str]:
        self.asked += 1
        said = self._backend.complete(
            prompt,
            max_tokens=_TOKENS_EACH * self._most,
            timeout_s=self._timeout_s,
        )
        answers = parse_answers(said, self._most)
        if not answers:
            advice = "try another model, or one that follows instructions"
            message = f"{self._backend.name} gave no usable answer: {said[:80]!r}"
            raise BackendAnswerError(f"{message}; {advice}")
        return answers


def prompt_for(template: Template, situation: Situation, most: int) -> str:
    """Return the prompt: question, hypothesis and, if there is one, the vocabulary as a hint."""
    # Keep the end, which is the latest: a model's context is limited.
    known = situation.hypothesis[-_MOST_HYPOTHESIS:]
    lines = [
        "We are guessing an unknown short text in English. What is known of it so far:",
        known or "(nothing)",
        "",
        f"Question: {template.question}",
    ]
    if hints := template.vocabulary(situation.slots):
        lines.append(f"Answers could be such as: {'; '.join(hints)}.")
    lines.append(
        f"Give up to {most} different likely answers, the likeliest first. One answer a line, one "
        "to four words each. No numbers, no explanations."
    )
    return "\n".join(lines)


def parse_answers(said: str, most: int) -> list[str]:
    r"""Return the answers in the text of a model.

    Removes bullets, numbers, quotes and final points. Drops headings (lines that end in a colon),
    empty lines, explanations after a colon, and repetitions. Splits a line with four or more
    answers. Cuts long answers at a word.

    Returns:
        Up to ``most`` different answers of at most 60 characters each; may be empty.

    >>> parse_answers("Sure, here are some:\n1. **Red**\n2) a dark blue.\n- red\n\n", most=8)
    ['Red', 'a dark blue']
    """
    found: dict[str, str] = {}
    for line in said.splitlines():
        for piece in _pieces(line):
            answer = _answer_in(piece)
            if answer and len(found) < most:
                found.setdefault(answer.casefold(), answer)
    return list(found.values())


def _pieces(line: str) -> list[str]:
    """Return the answers in a line; small models write several into one."""
    parts = line.split(", ")
    return parts if len(parts) > 3 else [line]


def _answer_in(line: str) -> str:
    visible = "".join(c for c in line if c.isspace() or unicodedata.category(c)[0] != "C")
    bare = _BULLET.sub("", visible).strip(_QUOTES)
    if bare.endswith(":"):
        return ""
    # drop explanations, as in "Red: the most obvious colour"
    bare = bare.partition(": ")[0]
    words = " ".join(bare.rstrip(".,;!").strip(_QUOTES).split())
    if len(words) > MOST_CHARACTERS:
        words = words[: MOST_CHARACTERS + 1].rpartition(" ")[0] or words[:MOST_CHARACTERS]
    return words if any(c.isalnum() for c in words) else ""


def _packed(answers: Sequence[str], vectors: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return vectors with their answers appended, one byte of UTF-8 per number.

    An answer cache stores float16 arrays only. They hold whole numbers up to 2,048 exactly.
    """
    texts = np.zeros((len(answers), MOST_BYTES), np.float16)
    for row, answer in zip(texts, answers, strict=True):
        encoded = answer.encode()
        row[: len(encoded)] = list(encoded)
    return np.hstack([vectors, texts])


def _unpacked(kept: NDArray[np.float16], size: int) -> tuple[list[str], NDArray[np.float16]] | None:
    """Return the inverse of `_packed`; None for other arrays."""
    if kept.ndim != 2 or len(kept) == 0 or kept.shape[1] != size + MOST_BYTES:
        _log.warning("the cache holds %s for proposed answers: asking again", kept.shape)
        return None
    try:
        numbers = kept[:, size:].astype(np.uint8)
        return [row.tobytes().rstrip(b"\0").decode() for row in numbers], kept[:, :size]
    except UnicodeDecodeError:
        _log.warning("the cache holds no texts for proposed answers: asking again")
        return None
