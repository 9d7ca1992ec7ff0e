"""Questions with the passages they are answered from, whatever the set they came in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from steersman.errors import DataError, InputError
from steersman.retrieval.documents import Document, Lineage, Passage
from steersman.systems.leadr.question import Question, Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.systems.leadr.sets.entry import Entry


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """A set of questions, their passages, and what is known of both.

    Attributes:
        name: of the set.
        passages: all that can be picked, in the order of the files.
        questions: in the order of the files; one without ``gold`` has no known passage, one without
            ``answers`` no known answer.
        pools: question id -> positions in `passages`, of questions that come with candidates of
            their own; of the others, candidates have to be retrieved.
        rewrites: question id -> the question as a person wrote it to stand alone, where it is
            known; nothing may choose by it.
        splits: question id -> the part of the set it belongs to, where it is named.
        conversations: question id -> the conversation it is a turn of, where there are any:
            whoever holds questions out holds out all of one conversation.
        unfindable: gold ids that are no passage: a ceiling, since nobody can pick them.
        left_out: passages of the set that were not read, since there are too many; the fewer are
            searched, the easier it is to find the right ones.
    """

    name: str
    passages: tuple[Passage, ...] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)
    pools: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    rewrites: Mapping[str, str] = field(default_factory=dict, repr=False)
    splits: Mapping[str, str] = field(default_factory=dict, repr=False)
    conversations: Mapping[str, str] = field(default_factory=dict, repr=False)
    unfindable: frozenset[str] = field(default=frozenset(), repr=False)
    left_out: int = 0

    def part(self, split: str) -> EvidenceSet:
        """Return the set with the questions of one split alone.

        Args:
            split: one of the values of `splits`.

        Raises:
            DataError: there is no such split.
        """
        chosen = tuple(one for one in self.questions if self.splits.get(one.id) == split)
        if not chosen:
            known = ", ".join(sorted(set(self.splits.values()))) or "none"
            raise DataError(f"{self.name} has no split {split!r}; it has {known}")
        return replace(self, questions=chosen)

    def first(self, count: int) -> EvidenceSet:
        """Return the set with its first questions alone; all passages stay.

        Args:
            count: of questions, ≥ 1.

        Raises:
            InputError: `count` is below 1.
        """
        if count < 1:
            raise InputError(f"count is {count!r}; allowed is 1 or more")
        return replace(self, questions=self.questions[:count])

    def answerable(self) -> EvidenceSet:
        """Return the set with the questions alone whose gold passages are known."""
        return replace(self, questions=tuple(one for one in self.questions if one.gold))


class Gathering:
    """A set while it is read: passages once each, questions with what belongs to them.

    Args:
        name: of the set.
        at_most: passages to keep beside the gold ones.
        gold: ids to be kept in any case.

    No doctest: it serves the loaders; ``tests/systems/leadr/test_sets.py`` shows them.
    """

    def __init__(self, name: str, *, at_most: int, gold: Iterable[str] = ()) -> None:
        self._name = name
        self._at_most = at_most
        self._gold = frozenset(gold)
        self._passages: dict[str, Passage] = {}
        self._positions: dict[str, int] = {}
        self._questions: dict[str, Question] = {}
        self._pools: dict[str, tuple[int, ...]] = {}
        self._rewrites: dict[str, str] = {}
        self._splits: dict[str, str] = {}
        self._conversations: dict[str, str] = {}
        self._spare = 0
        self._left_out = 0

    def passage(self, where: str, name: str, text: str, title: str = "") -> None:
        """Take a passage that has a name of its own.

        Args:
            where: it stands.
            name: unique in the set.
            text: of it.
            title: of it.

        Raises:
            DataError: the name is there already, or no name, title or text of a passage.
        """
        if name in self._passages:
            raise DataError(f"{where}: the passage {name!r} is there twice; keep one")
        if name not in self._gold:
            if self._spare >= self._at_most:
                self._left_out += 1
                return
            self._spare += 1
        self._keep(where, name, text, title)

    def candidate(self, where: str, text: str, title: str = "") -> str:
        """Take a passage without a name, of which another question may bring the same.

        Args:
            where: it stands.
            text: of it.
            title: of it.

        Returns:
            Its id, made of title and text.

        Raises:
            DataError: title or text are none of a passage.
        """
        content = f"{title}\n{text}".encode("utf-8", "replace")
        name = hashlib.sha256(content).hexdigest()[:16]
        if name not in self._passages:
            self._keep(where, name, text, title)
        return name

    def _keep(self, where: str, name: str, text: str, title: str) -> None:
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
        """Take a question.

        Args:
            where: it stands.
            question: with gold and answers.
            pool: ids of the candidates that it brought; None: it brought none.
            rewrite: by a person; "" if there is none.
            split: it belongs to; "" if nobody says.
            conversation: it is a turn of; "" if it is none.

        Raises:
            DataError: its id is there already, or a candidate is no passage.
        """
        if question.id in self._questions:
            raise DataError(f"{where}: the question {question.id!r} is there twice; keep one")
        self._questions[question.id] = question
        if pool is not None:
            try:
                found = tuple(self._positions[one] for one in dict.fromkeys(pool))
            except KeyError as wrong:
                message = f"{where}: the candidate {wrong.args[0]!r} is no passage of the set"
                raise DataError(f"{message}; add it, or take it out of the pool") from None
            self._pools[question.id] = found
        told = ((self._rewrites, rewrite), (self._splits, split),
                (self._conversations, conversation))  # fmt: skip
        for kept, value in told:
            if value:
                kept[question.id] = value

    def done(self, where: object) -> EvidenceSet:
        """Return the set.

        Args:
            where: it was read from.

        Raises:
            DataError: there is no question, or no passage.
        """
        if not self._questions or not self._passages:
            told = f"{len(self._questions):,} questions and {len(self._passages):,} passages"
            raise DataError(f"{where} holds {told}; at least one of each is needed")
        gold = {one for question in self._questions.values() for one in question.gold}
        return EvidenceSet(
            self._name, tuple(self._passages.values()), tuple(self._questions.values()),
            pools=self._pools, rewrites=self._rewrites, splits=self._splits,
            conversations=self._conversations, unfindable=frozenset(gold - self._passages.keys()),
            left_out=self._left_out,
        )  # fmt: skip


def turns(texts: Sequence[str]) -> tuple[Turn, ...]:
    """Return turns of texts that two say in turn, the user first.

    Args:
        texts: the first first.

    >>> [turn.speaker for turn in turns(["Who was Curie?", "A chemist.", "Where born?"])]
    ['user', 'agent', 'user']
    """
    return tuple(Turn("agent" if place % 2 else "user", text) for place, text in enumerate(texts))


def asked_text(entry: Entry, field: str) -> str:
    """Return the text of a question, which may not be blank.

    Args:
        entry: of it.
        field: that holds it.

    Raises:
        DataError: it is blank or no text.
    """
    text = entry.text(field).strip()
    if not text:
        raise DataError(f"{entry.where}: {field} is empty; write the question, or drop the entry")
    return text
