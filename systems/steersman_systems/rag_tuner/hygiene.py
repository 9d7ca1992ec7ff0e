"""Repeated questions, and questions on both sides of a split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.duplicates import unique
from steersman.retrieval.documents.passage import Lineage, Passage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.retrieval.documents.duplicates import Repeat
    from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question

NEAR = 0.8
_LEFT_OUT, _ACROSS, _NEAR = "repeats_left_out", "repeats_across_splits", "repeats_near"
_TALKS, _LOGGED = "conversations", "asked_again"


@dataclass(frozen=True, slots=True)
class RepeatedQuestion:
    """A question that repeats another.

    Args:
        question: Id of the question.
        repeats: Id of the repeated question, which comes first.
        similarity: Similarity of their words, in [`near`, 1]; 1 for equal texts.
        splits: Splits of both questions.
    """

    question: str
    repeats: str
    similarity: float
    splits: tuple[str, str]

    @property
    def leaks(self) -> bool:
        """Whether they are in different splits, so the held-out result would be biased."""
        return self.splits[0] != self.splits[1]


def repeated(collection: JudgedCollection, *, near: float = NEAR) -> tuple[RepeatedQuestion, ...]:
    """Return the questions that repeat another one, exactly or up to a word or two.

    A turn of a conversation is compared together with its earlier turns, and repeats another turn
    only with equal texts.

    Args:
        near: Minimum Jaccard similarity of word trigrams, 0.3 to 1.

    Raises:
        InputError: `near` is out of range.
    """
    # Held-out questions come first, so they are kept.
    order = sorted(collection.questions, key=lambda one: one.split != collection.held_out)
    alone = unique((_said(one) for one in order if not one.history), near=near).dropped
    # Turns of one conversation share earlier turns: only equal texts count as repeats.
    turns = unique((_said(one) for one in order if one.history), near=None).dropped
    split = {one.id: one.split for one in order}
    return tuple(_repeated(one, split) for one in (*alone, *turns))


def cleaned(collection: JudgedCollection, *, near: float = NEAR) -> JudgedCollection:
    """Return the collection without repeated questions.

    Raises:
        InputError: `near` is out of range.
    """
    drop = {one.question for one in repeated(collection, near=near)}
    kept = tuple(one for one in collection.questions if one.id not in drop)
    return replace(collection, questions=kept)


def ready_to_split(
    collection: JudgedCollection, *, near: float = NEAR
) -> tuple[JudgedCollection, dict[str, Any]]:
    """Return a collection that any split separates without a question on both sides.

    Raises:
        DataError: A question is still on both sides.
        InputError: `near` is out of range.
    """
    found = repeated(collection, near=near)
    clean = cleaned(collection, near=near)
    check_leakage(clean, near=near)
    across = sum(one.leaks for one in found)
    talks = len(set(conversations(clean.questions)) - {""})
    about = {_LEFT_OUT: len(found), _ACROSS: across, _NEAR: near, _TALKS: talks}
    return clean, about


def conversations(questions: Sequence[Question]) -> tuple[str, ...]:
    """Return the conversation of each question; "" for a single question.

    Without a conversation id, turns with the same first turn form a conversation.

    >>> from steersman_systems.rag_tuner.judged_collections import Question
    >>> first = Question("a", "Who wrote it?", {"p": 1.0})
    >>> later = Question("b", "And when?", {"p": 1.0}, history=("Who wrote it?", "Mary."))
    >>> conversations([first, later, Question("c", "Why?", {"p": 1.0})])
    ('Who wrote it?', 'Who wrote it?', '')
    """
    said = [one.conversation or next(iter(one.history), one.text) for one in questions]
    turns = Counter(said)
    return tuple(one if turns[one] > 1 else "" for one in said)


def leakage_said(about: Mapping[str, Any]) -> str:
    """Return a sentence on leakage between tuning and held-out questions.

    >>> leakage_said({"repeats_left_out": 3, "repeats_across_splits": 1, "repeats_near": 0.8})[:52]
    'No question stands on both sides: 3 that repeat anot'
    >>> checked = {"repeats_left_out": 0, "repeats_across_splits": 0, "repeats_near": 0.8}
    >>> leakage_said({**checked, "conversations": 7})[-65:]
    'Each of 7 conversations stands on one side with all of its turns.'
    >>> leakage_said({})[:40]
    'Whether questions repeat each other was '
    """
    if _LOGGED in about:
        return (
            "A log names questions by their ids: none stands on both sides. Whether two of them "
            "ask the same was not checked."
        )
    if not {_LEFT_OUT, _ACROSS, _NEAR} <= about.keys():
        return (
            "Whether questions repeat each other was not checked when this was recorded, so that "
            "some may stand on both sides; record it again with `steersman tune record`."
        )
    return (
        f"No question stands on both sides: {about[_LEFT_OUT]} that repeat another, to "
        f"{about[_NEAR]:g} of their words or more, were left out when it was recorded; "
        f"{about[_ACROSS]} of them stood on another side. {_talks_said(about)}"
    ).strip()


def _talks_said(about: Mapping[str, Any]) -> str:
    if _TALKS not in about:
        return (
            "Turns of one conversation may: who belongs to which was not kept when this was "
            "recorded."
        )
    talks = about[_TALKS]
    return f"Each of {talks} conversations stands on one side with all of its turns." * bool(talks)


def check_leakage(collection: JudgedCollection, *, near: float = NEAR) -> None:
    """Refuse a collection with a question on both sides of a split.

    Raises:
        DataError: Such questions exist; the message names some.
        InputError: `near` is out of range.
    """
    found = [one for one in repeated(collection, near=near) if one.leaks]
    if found:
        named = [
            f"{one.question!r} ({one.splits[0] or 'no split'}) and {one.repeats!r} "
            f"({one.splits[1] or 'no split'}), alike to {one.similarity:.2f}"
            for one in found[:5]
        ]
        raise DataError(
            f"{collection.name}: {len(found)} questions are on both sides of a split: "
            + "; ".join(named)
            + "; drop them with `cleaned`, or split by groups"
        )


def _repeated(found: Repeat, split: Mapping[str, str]) -> RepeatedQuestion:
    one, other = (name.removesuffix("#0") for name in (found.passage, found.repeats))
    return RepeatedQuestion(one, other, found.similarity, (split[one], split[other]))


def _said(question: Question) -> Passage:
    said = Document(question.id, "\n".join([*question.history, question.text]))
    lineage = Lineage(said.sha256, 0, len(said.text), chunker="whole")
    return Passage(said.doc_id, 0, said.text, lineage=lineage)
