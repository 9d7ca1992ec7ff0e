"""Answers from passages by a language model, with a cache.

Small models are slow and inaccurate on long texts. So each passage is shortened to the sentences
that match the question best, in the same way for every selector.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import BackendError, InputError
from steersman.providers.judges.scores import Tally
from steersman.retrieval.bm25 import query_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.providers.judges.judge import Judge
    from steersman_systems.evidence_selection.pool import Candidate

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
_ASKED, _CONTINUED = "answer/1", "answer-continued/1"
_EXAMPLES = (
    (
        (
            "Tern Valley: Tern Valley is a novel by Ada Molloy.",
            "Ada Molloy: Ada Molloy (born 1951 in Kilbride) is an Irish writer.",
        ),
        "Where was the author of Tern Valley born?",
        "Kilbride",
    ),
    (
        (
            "Orlo Bridge: Orlo Bridge is a bridge in Norway.",
            "Hask Bridge: Hask Bridge is in Sweden.",
        ),
        "Are Orlo Bridge and Hask Bridge in the same country?",
        "no",
    ),
    (
        (
            "Pavel Dorn: Pavel Dorn is a goalkeeper of Lund Rovers.",
            "Lund Rovers: Lund Rovers is a club. It was founded in 1924 by Nils Aker.",
        ),
        "When was the club of Pavel Dorn founded?",
        "1924",
    ),
)
"""The names are fictional, so a model that repeats one of these answers is detected."""
_LEAD = re.compile(r"^(the )?(short )?answer( is)?:?\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Answer of a model from passages.

    Attributes:
        text: bare answer; "" without one.
        failed: why the answer is missing; "" if there is one.
        context_characters: length of the passages in the prompt.
        shown: passage id -> text in the prompt.
        calls: number of requests.
        cached: number of answers from the cache.
        missing: whether the model was not called or not available, so its answer is unknown. False
            without passages and for an empty answer.
    """

    text: str
    failed: str = ""
    context_characters: int = 0
    shown: tuple[tuple[str, str], ...] = ()
    calls: int = 0
    cached: int = 0
    missing: bool = False


class Answerer:
    """Answers questions from passages by a language model.

    The prompt contains the passages unchanged. A passage can inject a wrong answer, but has no
    other effect.

    Args:
        judge: language model with cache, budget and timeout; any `Backend`.
        sentences: sentences per passage in the prompt, 1 to 50.
        max_tokens: maximum tokens of an answer, 1 to 1,000.
        continued: whether to use few-shot completion instead of an instruction, for a model without
            chat training.

    Raises:
        InputError: an argument is out of range.
    """

    def __init__(
        self, judge: Judge, *, sentences: int = 2, max_tokens: int = 16, continued: bool = False
    ) -> None:
        if not 1 <= sentences <= 50:
            raise InputError(f"sentences is {sentences!r}; allowed: 1 to 50")
        if not 1 <= max_tokens <= 1000:
            raise InputError(f"max_tokens is {max_tokens!r}; allowed: 1 to 1000")
        self._judge = judge
        self._sentences = sentences
        self._max_tokens = max_tokens
        self._continued = continued

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._judge.name

    def __call__(self, question: str, passages: Sequence[Candidate]) -> ModelAnswer:
        """Return the model's answer.

        Raises:
            DataError: the cache is damaged.
        """
        shown = tuple(
            (one.id, f"{one.title}: {telling(one.text, question, self._sentences)}")
            for one in passages
        )
        length = sum(len(text) for _, text in shown)
        if not shown:
            return ModelAnswer("", "no passages")
        tally = Tally()
        makes = continued_prompt if self._continued else answering_prompt
        prompt = makes(question, [text for _, text in shown])
        if len(prompt) > self._judge.max_characters:
            told = f"the prompt has {len(prompt):,} characters; select fewer passages"
            return ModelAnswer("", told, length, shown, missing=True)
        try:
            version = _CONTINUED if self._continued else _ASKED
            said = self._judge.ask(
                prompt, max_tokens=self._max_tokens, version=version, tally=tally
            )
        except BackendError as error:
            return ModelAnswer(
                "", str(error), length, shown, tally.calls, tally.cached, missing=True
            )
        text = bare(said)
        failed = "" if text else "the model said nothing"
        return ModelAnswer(text, failed, length, shown, tally.calls, tally.cached)


def answering_prompt(question: str, texts: Sequence[str]) -> str:
    """Return the instruction prompt.

    >>> print(answering_prompt("Where?", ["Curie: Born in Warsaw."]))
    Question: Where?
    <BLANKLINE>
    Curie: Born in Warsaw.
    <BLANKLINE>
    Using the text, reply with only the short answer (one to five words) to the question: Where?
    """
    told = "Using the text, reply with only the short answer (one to five words) to the question:"
    return "\n\n".join([f"Question: {question}", "\n".join(texts), f"{told} {question}"])


def continued_prompt(question: str, texts: Sequence[str]) -> str:
    r"""Return the few-shot completion prompt, which ends before the answer.

    >>> print(continued_prompt("Where?", ["Curie: Born in Warsaw."]).split("\n\n")[-1])
    Curie: Born in Warsaw.
    Question: Where?
    Answer:
    """
    examples = [f"{_unanswered(asked, told)} {answer}" for told, asked, answer in _EXAMPLES]
    return "\n\n".join([*examples, _unanswered(question, texts)])


def _unanswered(question: str, texts: Sequence[str]) -> str:
    return "\n".join([*texts, f"Question: {question}", "Answer:"])


def telling(text: str, question: str, count: int) -> str:
    """Return the sentences of a text that match the question best, in their order.

    >>> telling("Curie, a chemist. It rained. She was born in Warsaw.", "Where was Curie born?", 2)
    'Curie, a chemist. She was born in Warsaw.'
    """
    parts = _SENTENCE.split(text.strip())
    wanted = set(query_terms(question))
    worth = [len(wanted.intersection(query_terms(part))) if part else 0 for part in parts]
    best = sorted(range(len(parts)), key=lambda place: (-worth[place], place))[:count]
    return " ".join(parts[place] for place in sorted(best))


def bare(said: str) -> str:
    """Return an answer without the wrapping that models add.

    >>> bare('Answer: "Warsaw".')
    'Warsaw'
    """
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    return _LEAD.sub("", first).strip("\"'* .")
