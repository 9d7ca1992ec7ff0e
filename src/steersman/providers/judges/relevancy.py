"""Answer relevancy: similarity of the question to questions generated from the answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from steersman.errors import InputError, SteersmanError
from steersman.providers.judges.scores import Score, Tally, Undefined
from steersman.providers.prompts import MalformedAnswer, Prompt, ask_for, check_readable, shaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.providers.judges.judge import Judge
    from steersman.providers.judges.scores import Case

GENERATE = Prompt(
    task=(
        "Read an answer whose question was lost. Write the questions that it would answer fully: "
        "as many as `count` says, each a different one, each as somebody would ask it who does not "
        "know the answer, in the language of the answer. Say also whether the answer is "
        "noncommittal: true if it evades, is vague or says that it does not know, and false if it "
        "commits itself to anything that answers a question. Of a noncommittal answer the list "
        "may be empty."
    ),
    example='{"noncommittal": false, "questions": ["Where was Marie Curie born?"]}',
    version="questions/1",
    max_tokens=1024,
)


class _Questions(msgspec.Struct, forbid_unknown_fields=True):
    noncommittal: bool
    questions: list[str]


class TextEmbedder(Protocol):
    """Interface of an embedder, such as those of `steersman.retrieval`."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts.

        Returns:
            (texts, size), with norms above 0.
        """


class Relevancy:
    """Answer relevancy: mean cosine of the question and questions generated from the answer.

    It does not measure correctness. Empty answers (without a request) and noncommittal answers
    score 0. If judging fails, the score is undefined, never 0.

    Args:
        judge: judge that generates the questions.
        embedder: embedder of the questions; report it with the scores, which depend on it. Calls
            are serialised.
        questions: number of generated questions, 1 to 10.

    Raises:
        InputError: `questions` is out of range.

    Source: Es, James, Espinosa-Anke & Schockaert, RAGAS: Automated Evaluation of Retrieval
    Augmented Generation (2023), section 3, "Answer relevance"; the score 0 of noncommittal answers
    is from the authors' program. Departures: the prompts are ours; one call generates all
    questions, because calls at temperature 0 would repeat one; a mean below 0 is 0, so that scores
    lie in [0, 1]; the judge sees the answer only, without contexts.
    """

    name = "relevancy"

    def __init__(self, judge: Judge, embedder: TextEmbedder, *, questions: int = 3) -> None:
        if not 1 <= questions <= 10:
            raise InputError(f"questions is {questions!r}; allowed: 1 to 10")
        self._judge = judge
        self._embedder = embedder
        self._count = questions
        self._one_at_a_time = threading.Lock()

    @property
    def version(self) -> str:
        """Prompt version, number of questions and embedder, which the scores depend on."""
        embedder = getattr(self._embedder, "name", type(self._embedder).__qualname__)
        return f"{GENERATE.version} {self._count} {embedder}"

    def __call__(self, case: Case) -> Score:
        """Return the score of an answer.

        Raises:
            DataError: the judge cache is damaged.
        """
        if not case.answer.strip():
            return Score(0.0, detail="the answer is empty")
        tally = Tally()
        try:
            check_readable(
                case.question
            )  # before any paid request: embedders refuse lone surrogates
            found = self._generated(case, tally)
            value = 0.0 if found.noncommittal else self._closeness(case.question, found.questions)
        except Undefined as why:
            return Score.undefined(why, tally)
        detail = "noncommittal" if found.noncommittal else ""
        questions = tuple(found.questions)
        return Score(
            value, detail=detail, questions=questions, calls=tally.calls, cached=tally.cached
        )

    def _generated(self, case: Case, tally: Tally) -> _Questions:
        data = {"answer": case.answer, "count": self._count}
        return ask_for(self._judge, GENERATE, data, self._read, tally)

    def _read(self, answer: str) -> _Questions:
        found = shaped(answer, _Questions)
        if not all(question.strip() for question in found.questions):
            raise MalformedAnswer("a question is empty")
        if not found.noncommittal and len(found.questions) != self._count:
            raise MalformedAnswer(f"{len(found.questions)} questions, expected {self._count}")
        return found

    def _closeness(self, question: str, generated: Sequence[str]) -> float:
        try:
            with self._one_at_a_time:
                rows = np.asarray(self._embedder.encode([question, *generated]), np.float64)
        except SteersmanError as error:
            raise Undefined("embedder", str(error)) from error
        if rows.ndim != 2 or len(rows) != len(generated) + 1 or not np.isfinite(rows).all():
            raise Undefined(
                "embedder",
                f"the embedder returned shape {rows.shape}, or numbers that are not finite",
            )
        lengths = np.linalg.norm(rows, axis=1)
        if not (lengths > 0).all():
            raise Undefined("embedder", "a question has a vector of norm 0")
        units = rows / lengths[:, None]
        return float(np.clip((units[1:] @ units[0]).mean(), 0.0, 1.0))
