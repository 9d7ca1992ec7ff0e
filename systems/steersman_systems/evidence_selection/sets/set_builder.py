"""Set under construction, shared by the loaders of all formats."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage
from steersman_systems.evidence_selection.question import Question, Turn
from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman_systems.evidence_selection.sets.entry import Entry

_log = logging.getLogger(__name__)
WITHOUT_COLLECTION = (
    "its collection is not there, so only the passages that came with its questions are searched, "
    "which makes finding much easier"
)
_ID, _TITLE = 512, 1_000
"""Maximum characters in a `Document`; some published ids are addresses, and some titles lists."""


class SetBuilder:
    """Builder of a set: collects unique passages, and questions with their candidates.

    Args:
        name: name of the set.
        at_most: maximum number of passages besides the gold ones.
        gold: ids that are always kept.
        pooled: ids that questions name as candidates. Only these are remembered when left out;
            other omissions are only counted, because some collections have fifty million.
    """

    def __init__(
        self, name: str, *, at_most: int, gold: Iterable[str] = (), pooled: Iterable[str] = ()
    ) -> None:
        self._name = name
        self._at_most = at_most
        self._gold = frozenset(map(kept_name, gold))
        self._pooled = frozenset(map(kept_name, pooled))
        self._passages: dict[str, Passage] = {}
        self._positions: dict[str, int] = {}
        self._questions: dict[str, Question] = {}
        self._pools: dict[str, tuple[int, ...]] = {}
        self._rewrites: dict[str, str] = {}
        self._splits: dict[str, str] = {}
        self._spare = 0
        self._dropped: set[str] = set()
        self._forgotten = 0
        self._shortened = 0

    def passage(self, where: str, name: str, text: str, title: str = "") -> None:
        """Add a passage with a unique name; an identical one is added once.

        Args:
            title: title; cut to 1,000 characters.

        Raises:
            DataError: the name belongs to another passage, or title or text is invalid.
        """
        name = kept_name(name)
        if name in self._passages:
            known = self._passages[name]
            if (known.text, known.title) != (text, title[:_TITLE]):
                message = f"{where}: duplicate passage {name!r}; give each passage a unique name"
                raise DataError(message)
            return
        if name not in self._gold:
            if self._spare >= self._at_most:
                self._leave_out(name)
                return
            self._spare += 1
        self._keep(where, name, text, title)

    def _leave_out(self, name: str) -> None:
        if name in self._pooled:
            self._dropped.add(name)
        else:
            self._forgotten += 1

    def candidate(self, where: str, text: str, title: str = "", *, gold: bool = False) -> str:
        """Add a passage without a name, which several questions may share; return its id.

        Raises:
            DataError: title or text is invalid.
        """
        name = _digest(f"{title}\n{text}")
        if name in self._passages:
            return name
        if not gold and self._spare >= self._at_most:
            self._dropped.add(name)
            return name
        self._spare += not gold
        self._dropped.discard(name)
        self._keep(where, name, text, title)
        return name

    def _keep(self, where: str, name: str, text: str, title: str) -> None:
        self._shortened += len(title) > _TITLE
        title = title[:_TITLE]
        try:
            made = Document(name, text, title)
        except InputError as wrong:
            raise DataError(f"{where}: {wrong}") from wrong
        lineage = Lineage(made.sha256, 0, len(text), chunker="whole")
        self._positions[name] = len(self._passages)
        self._passages[name] = Passage(name, 0, text, title, lineage=lineage)

    def ask(
        self,
        where: str,
        question: Question,
        *,
        pool: Sequence[str] | None = None,
        rewrite: str = "",
        split: str = "",
        conversation: str = "",
    ) -> None:
        """Add a question.

        Args:
            question: with gold and answers; blanks and duplicates are removed.
            pool: ids of its candidates; those left out are removed. None: without candidates.
            rewrite: rewrite by a person; "" if there is none.
            conversation: conversation of this turn; "" if there is none.

        Raises:
            DataError: the id is a duplicate, or a candidate is not a passage.
        """
        if question.id in self._questions:
            raise DataError(f"{where}: duplicate question {question.id!r}; keep one")
        self._questions[question.id] = replace(
            question,
            conversation=conversation or question.conversation,
            answers=tuple(dict.fromkeys(one for one in question.answers if one.strip())),
            gold=tuple(dict.fromkeys(map(kept_name, question.gold))),
        )
        if pool is not None:
            try:
                names = dict.fromkeys(map(kept_name, pool))
                found = tuple(self._positions[one] for one in names if one not in self._dropped)
            except KeyError as wrong:
                message = f"{where}: the candidate {wrong.args[0]!r} is not a passage of the set"
                raise DataError(f"{message}; add it, or take it out of the pool") from None
            self._pools[question.id] = found
        for kept, value in ((self._rewrites, rewrite), (self._splits, split)):
            if value:
                kept[question.id] = value

    def done(self, where: object, *, note: str = "") -> EvidenceSet:
        """Return the set.

        Raises:
            DataError: questions or passages are missing.
        """
        if not self._questions or not self._passages:
            told = f"{len(self._questions):,} questions and {len(self._passages):,} passages"
            raise DataError(f"{where} holds {told}; at least one of each is needed")
        if self._shortened:
            _log.warning("%s: %d titles were cut to %d characters", where, self._shortened, _TITLE)
        gold = {one for question in self._questions.values() for one in question.gold}
        return EvidenceSet(
            self._name, tuple(self._passages.values()), tuple(self._questions.values()),
            pools=self._pools, rewrites=self._rewrites, splits=self._splits,
            unfindable=frozenset(gold - self._passages.keys()),
            left_out=len(self._dropped) + self._forgotten, note=note,
        )  # fmt: skip


def kept_name(name: str) -> str:
    """Return a valid passage id: the name, or a digest if it is too long or has blanks.

    >>> kept_name("http://example.org/a#p0"), kept_name("x" * 600)
    ('http://example.org/a#p0', '5130b33e6b87fbf5')
    """
    plain = len(name) <= _ID and name.isprintable() and name == name.strip()
    return name if plain else _digest(name)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:16]


def turns(texts: Sequence[str]) -> tuple[Turn, ...]:
    """Return texts as alternating turns, the user first.

    >>> [turn.speaker for turn in turns(["Who was Curie?", "A chemist.", "Where born?"])]
    ['user', 'agent', 'user']
    """
    return tuple(Turn("agent" if place % 2 else "user", text) for place, text in enumerate(texts))


def asked_text(entry: Entry, field: str) -> str:
    """Return the text of a question.

    Raises:
        DataError: it is blank or not a text.
    """
    text = entry.text(field).strip()
    if not text:
        raise DataError(f"{entry.where}: {field} is empty; write the question, or drop the entry")
    return text
