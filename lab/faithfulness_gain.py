"""Groundedness of answers, with and without retrieval.

Both answers to a question are compared with the passages that people judged relevant, not with the
retrieved ones. So the comparison is fair to an answer without passages.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lab.support_scores import sentences_of
from steersman.errors import BackendError, DataError, InputError
from steersman.providers.judges.scores import Undefined
from steersman.providers.prompts import check_readable, is_readable
from steersman.retrieval.documents.passage import passage_text
from steersman_systems.rag_tuner.judged_answers import PROMPTS as ASKED
from steersman_systems.rag_tuner.question_means import mean_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from steersman.providers.backend import Backend
    from steersman.retrieval.documents.passage import Passage
    from steersman.retrieval.results import SearchSettings
    from steersman.retrieval.searcher import Searcher
    from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question

PROMPTS = {
    **ASKED,
    "short": (
        "Answer the question in one short sentence, from the passages alone.\n\n"
        "{passages}\n\nQuestion: {question}"
    ),
    "none": "Answer the question in one short sentence.\n\nQuestion: {question}",
}
"""Prompts by id: those of live evaluations, a short one for small models, one without passages."""
_MAX_PASSAGE = 600


class SupportScorer(Protocol):
    """Scores how many statements some text supports."""

    @property
    def name(self) -> str:
        """Name of the score."""

    def share(self, statements: Sequence[str], texts: Sequence[str]) -> float:
        """Return the share of statements that at least one text supports."""


@dataclass(frozen=True, slots=True)
class GroundedAnswer:
    """Answer with its support by the relevant passages.

    Args:
        question: question id.
        text: question text.
        prompt: id of the prompt.
        contexts: ids of the passages in the prompt, best first.
        answer: answer without surrounding space.
        support: share of its sentences that the relevant passages support; None: undefined.
        reason: why it is undefined.
    """

    question: str
    text: str
    prompt: str
    contexts: tuple[str, ...]
    answer: str
    support: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Grounding:
    """Answers with retrieval and without, compared.

    Args:
        measure: name of the score.
        given: answers with retrieval.
        alone: answers without; the same questions in the same order.
        gain: mean paired difference over the defined pairs.
        low: lower end of its 95 % interval (paired t, over questions).
        high: upper end.
        pairs: number of defined pairs.
    """

    measure: str
    given: tuple[GroundedAnswer, ...]
    alone: tuple[GroundedAnswer, ...]
    gain: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        # Means over the same pairs as the gain, so that the numbers add up.
        given, alone = np.array(_pairs(self.given, self.alone)).mean(axis=0)
        said = f"{self.measure} {given:.3f} with retrieval, {alone:.3f} without"
        said = f"{said}: {self.gain:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
        if self.low > 0:
            shown = "retrieval grounds the answers"
        else:
            shown = "it makes them worse" if self.high < 0 else "no difference is shown"
        return f"{said} on {self.pairs} of {len(self.given)} questions; {shown}."


def grounding(
    backend: Backend,
    searcher: Searcher,
    collection: JudgedCollection,
    settings: SearchSettings,
    supports: SupportScorer,
    *,
    prompt: str = "short",
    max_tokens: int = 48,
    timeout_s: float = 120.0,
    done: Callable[[int], None] | None = None,
) -> Grounding:
    """Return the support of answers with and without retrieval.

    Args:
        max_tokens: maximum tokens of an answer, 1 or more.
        done: called with 1 after each question.

    Returns:
        Both answers to every question; a failed answer is undefined, not 0.

    Raises:
        InputError: unknown prompt, or fewer than two defined pairs.
    """
    if prompt not in PROMPTS:
        raise InputError(f"prompt is {prompt!r}; allowed: {', '.join(sorted(PROMPTS))}")
    texts = {one.doc_id: passage_text(one) for one in collection.passages}
    given: list[GroundedAnswer] = []
    alone: list[GroundedAnswer] = []
    for question in collection.questions:
        found = _found(searcher, question, settings)
        gold = [texts[name] for name in question.gains if name in texts]
        for answers, kind, passages in ((given, prompt, found), (alone, "none", [])):
            said = _answered(backend, question, kind, passages, max_tokens, timeout_s)
            answers.append(_supported(said, gold, supports))
        if done is not None:
            done(1)
    return _compared(supports.name, given, alone)


def write_answers(
    folder: Path, collection: JudgedCollection, *answers: Sequence[GroundedAnswer]
) -> None:
    """Write answers and their passages into a run folder.

    Raises:
        DataError: the folder cannot be written.
    """
    texts = {one.doc_id: passage_text(one) for one in collection.passages}
    every = [one for some in answers for one in some]
    used = dict.fromkeys(name for one in every for name in one.contexts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_lines(folder / "predictions.jsonl", (asdict(one) for one in every))
        contexts = ({"id": name, "text": texts[name]} for name in used)
        _write_lines(folder / "contexts.jsonl", contexts)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}; name another folder"
        raise DataError(message) from None


def _write_lines(file: Path, rows: Iterator[object]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _found(searcher: Searcher, question: Question, settings: SearchSettings) -> list[Passage]:
    if not is_readable(question.text):
        return []  # `_answered` reports why the question is not sent
    return [hit.passage for hit in searcher.search(question.text, settings).hits]


def _answered(
    backend: Backend,
    question: Question,
    kind: str,
    passages: Sequence[Passage],
    max_tokens: int,
    timeout_s: float,
) -> GroundedAnswer:
    shown = "\n".join(f"- {passage_text(one)[:_MAX_PASSAGE]}" for one in passages)
    prompt = PROMPTS[kind].format(passages=shown, question=question.text)
    contexts = tuple(one.doc_id for one in passages)
    try:
        check_readable(prompt)
        said = backend.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s).strip()
    except (BackendError, InputError, Undefined) as error:  # for example, an unreadable prompt
        return GroundedAnswer(
            question.id, question.text, kind, contexts, "", None, str(error)[:200]
        )
    return GroundedAnswer(question.id, question.text, kind, contexts, said, None)


def _supported(
    said: GroundedAnswer, gold: Sequence[str], supports: SupportScorer
) -> GroundedAnswer:
    if said.reason:
        return said
    values = asdict(said)
    if not said.answer:
        return GroundedAnswer(**{**values, "reason": "the answer is empty"})
    if not gold:
        return GroundedAnswer(**{**values, "reason": "no relevant passage is here"})
    return GroundedAnswer(**{**values, "support": supports.share(sentences_of(said.answer), gold)})


def _compared(measure: str, given: list[GroundedAnswer], alone: list[GroundedAnswer]) -> Grounding:
    ahead = np.array([one - other for one, other in _pairs(given, alone)])
    if len(ahead) < 2:
        why = next((one.reason for one in (*given, *alone) if one.reason), "there are too few")
        raise InputError(
            f"{len(ahead)} questions have verdicts with and without passages ({why}); give 2 or "
            "more questions, and a working backend"
        )
    gain = mean_over(ahead, within=(-1.0, 1.0))
    return Grounding(
        measure, tuple(given), tuple(alone), gain.value, gain.low, gain.high, len(ahead)
    )


def _pairs(
    given: Sequence[GroundedAnswer], alone: Sequence[GroundedAnswer]
) -> list[tuple[float, float]]:
    """Return the support of both answers, for defined pairs."""
    return [
        (one.support, other.support)
        for one, other in zip(given, alone, strict=True)
        if one.support is not None and other.support is not None
    ]
