"""Query forms for a question in a conversation: five ways to make the query text.

No form reads the answer. The best form differs per turn, so it is a decision point: see
``configs/evidence/query_form.yaml`` and `turn_features`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Protocol

from steersman.errors import BackendError, InputError
from steersman.providers.judges.scores import Tally
from steersman.retrieval.bm25 import query_terms, stem, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.providers.judges.judge import Judge
    from steersman_systems.evidence_selection.collection import Collection
    from steersman_systems.evidence_selection.question import Question

_log = logging.getLogger(__name__)
_MOST = 20_000
_FADING = 0.7
_OF_AGENT = 0.3
_REPEATS = 3
_REWRITE_TOKENS, _REWRITE_CHARACTERS = 64, 400
_VERSION = "rewrite/1"
_REWRITING = (
    "Rewrite the last question so that it can be understood without the conversation.\n"
    "Put names in the place of pronouns and add what is left out. Write the question alone."
)


class QueryForm(Protocol):
    """Makes a query from a question and its earlier turns."""

    def __call__(self, question: Question) -> str:
        """Return the query text."""


def last_turn(question: Question) -> str:
    """Return the question without its history.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> last_turn(Question("q", "Where?", (Turn("user", "Who was Curie?"),)))
    'Where?'
    """
    return question.text


def last_two_turns(question: Question) -> str:
    """Return the user's previous turn and the question.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> last_two_turns(Question("q", "Where?", (Turn("user", "Who?"), Turn("agent", "She."))))
    'Who? Where?'
    """
    return " ".join([*said_by(question, "user")[-1:], question.text])[-_MOST:]


def whole_history(question: Question) -> str:
    """Return all turns and the question, without the beginning beyond 20,000 characters.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> whole_history(Question("q", "Where?", (Turn("user", "Who?"), Turn("agent", "She."))))
    'Who? She. Where?'
    """
    return " ".join([*(turn.text for turn in question.history), question.text])[-_MOST:]


class KeywordRewrite:
    """Question with the most important words of its history.

    The weight of a word is its rarity among the passages, times .7 per turn of age. Words of the
    agent weigh a third of the user's, because the agent says many. Words of the question are not
    added.

    Args:
        rarity: rarity of a stem among the passages; 0 if absent.
        most: maximum number of added words, 1 to 20. On mtrag three were best; twelve lose six
            points of recall.

    Raises:
        InputError: `most` is out of range.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> rewrite = KeywordRewrite({"curi": 5.0, "chemist": 3.0}.get, most=1)
    >>> rewrite(Question("q", "Born where?", (Turn("user", "Was Curie a chemist?"),)))
    'Born where? curie'
    """

    def __init__(self, rarity: Callable[[str], float | None], *, most: int = 3) -> None:
        if most not in range(1, 21):
            raise InputError(f"most is {most!r}; allowed: 1 to 20")
        self._rarity = rarity
        self._most = most

    @classmethod
    def over(cls, collection: Collection, *, most: int = 3) -> KeywordRewrite:
        """Return the rewrite with the rarities of a collection."""
        terms = collection.terms

        def rarity(one: str) -> float:
            number = terms.numbers.get(one)
            return 0.0 if number is None else float(terms.rarity[number])

        return cls(rarity, most=most)

    def __call__(self, question: Question) -> str:
        """See `QueryForm`."""
        there = {stem(word) for word in words(question.text)}
        weights: dict[str, float] = defaultdict(float)
        for speaker, share in (("user", 1.0), ("agent", _OF_AGENT)):
            for age, text in enumerate(reversed(said_by(question, speaker))):
                self._add(weights, text, share * _FADING**age, repeats=speaker == "agent")
        heaviest = sorted(weights, key=lambda word: -weights[word])
        added = [word for word in heaviest if stem(word) not in there]
        return " ".join([question.text, *added[: self._most]])

    def _add(self, weights: dict[str, float], text: str, share: float, *, repeats: bool) -> None:
        telling = set(query_terms(text))
        for word, count in Counter(words(text)).items():
            rarity = (self._rarity(stem(word)) or 0.0) if stem(word) in telling else 0.0
            if rarity:
                weights[word] += share * rarity * (min(count, _REPEATS) if repeats else 1)


class BackendRewrite:
    """Stand-alone question written by a language model, with a fallback form.

    The calls go through a `Judge`, with its cache, budget and timeout.

    Args:
        judge: language model.
        otherwise: fallback form if the model's output is unusable.

    Attributes:
        failures: number of fallbacks.
    """

    def __init__(self, judge: Judge, otherwise: QueryForm) -> None:
        self.failures = 0
        self._judge = judge
        self._otherwise = otherwise

    def __call__(self, question: Question) -> str:
        """See `QueryForm`."""
        if not question.history:
            return question.text
        try:
            said = self._judge.ask(
                rewriting_prompt(question),
                max_tokens=_REWRITE_TOKENS,
                version=_VERSION,
                tally=Tally(),
            )
        except (BackendError, InputError) as error:
            return self._without(question, str(error))
        first = next((line.strip() for line in said.splitlines() if line.strip()), "")
        bare = re.sub(r"^(rewritten )?question:\s*", "", first, flags=re.IGNORECASE).strip('" ')
        if not 0 < len(bare) <= _REWRITE_CHARACTERS:
            return self._without(question, f"{len(bare)} characters where 1 to 400 are usable")
        return bare

    def _without(self, question: Question, why: str) -> str:
        self.failures += 1
        if self.failures == 1:
            _log.warning("questions are rewritten by keywords where the model fails: %s", why)
        return self._otherwise(question)


def rewriting_prompt(question: Question) -> str:
    """Return the prompt for a stand-alone question.

    Args:
        question: with history; the prompt has its last six turns, 400 characters of each.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> print(rewriting_prompt(Question("q", "Where?", (Turn("user", "Who was Curie?"),))))
    Rewrite the last question so that it can be understood without the conversation.
    Put names in the place of pronouns and add what is left out. Write the question alone.
    <BLANKLINE>
    user: Who was Curie?
    last question: Where?
    """
    told = [
        f"{turn.speaker}: {' '.join(turn.text.split())[:_REWRITE_CHARACTERS]}"
        for turn in question.history[-6:]
    ]
    return "\n".join([_REWRITING, "", *told, f"last question: {question.text}"])


def query_forms(collection: Collection, judge: Judge | None = None) -> dict[str, QueryForm]:
    """Return the available forms, by action name of the decision point.

    Args:
        judge: model for the rewrite; None: without that form.
    """
    keywords = KeywordRewrite.over(collection)
    forms: dict[str, QueryForm] = {
        "last": last_turn,
        "last_two": last_two_turns,
        "history": whole_history,
        "keywords": keywords,
    }
    if judge is not None:
        forms["rewrite"] = BackendRewrite(judge, keywords)
    return forms


def said_by(question: Question, speaker: str) -> Sequence[str]:
    """Return the texts of one speaker, oldest first."""
    return [turn.text for turn in question.history if turn.speaker == speaker]
