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
class Repeated:
    """A question that repeats another.

    Args:
        question: Its id.
        repeats: Id of the one that comes first.
        similarity: Of their words, in [`near`, 1]; 1 for the same.
        splits: Of the two.
    """

    question: str
    repeats: str
    similarity: float
    splits: tuple[str, str]

    @property
    def leaks(self) -> bool:
        """Whether they stand on two sides: what one side learns, the other is judged by."""
        return self.splits[0] != self.splits[1]


def repeated(collection: JudgedCollection, *, near: float = NEAR) -> tuple[Repeated, ...]:
    """Return the questions that repeat another, exactly or but for a word or two.

    Questions that continue a conversation are compared together with what was said before, and
    repeat another only in the very same words.

    Args:
        near: The least Jaccard similarity of three words in a row, 0.3 to 1.

    Raises:
        InputError: `near` out of its range.
    """
    # Those that judge come first, so that they are the ones kept.
    order = sorted(collection.questions, key=lambda one: one.split != collection.held_out)
    alone = unique((_said(one) for one in order if not one.history), near=near).dropped
    # Turns of one conversation share what went before: only the very same repeats another.
    turns = unique((_said(one) for one in order if one.history), near=None).dropped
    split = {one.id: one.split for one in order}
    return tuple(_repeated(one, split) for one in (*alone, *turns))


def cleaned(collection: JudgedCollection, *, near: float = NEAR) -> JudgedCollection:
    """Return a collection in which each question is asked once.

    Raises:
        InputError: `near` out of its range.
    """
    drop = {one.question for one in repeated(collection, near=near)}
    kept = tuple(one for one in collection.questions if one.id not in drop)
    return replace(collection, questions=kept)


def ready_to_split(
    collection: JudgedCollection, *, near: float = NEAR
) -> tuple[JudgedCollection, dict[str, Any]]:
    """Return a collection that may be split any way without a question on two sides.

    Raises:
        DataError: A question still stands on two sides.
        InputError: `near` out of its range.
    """
    found = repeated(collection, near=near)
    clean = cleaned(collection, near=near)
    check_leakage(clean, near=near)
    across = sum(one.leaks for one in found)
    talks = len(set(conversations(clean.questions)) - {""})
    about = {_LEFT_OUT: len(found), _ACROSS: across, _NEAR: near, _TALKS: talks}
    return clean, about


def conversations(questions: Sequence[Question]) -> tuple[str, ...]:
    """Return the conversation of each question; "" of one that is alone in its own.

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
    """Return in words whether what is tuned on can have judged.

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
    """Refuse a collection of which a question stands on two sides of a split.

    Raises:
        DataError: There are such; the message names some.
        InputError: `near` out of its range.
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


def _repeated(found: Repeat, split: Mapping[str, str]) -> Repeated:
    one, other = (name.removesuffix("#0") for name in (found.passage, found.repeats))
    return Repeated(one, other, found.similarity, (split[one], split[other]))


def _said(question: Question) -> Passage:
    said = Document(question.id, "\n".join([*question.history, question.text]))
    lineage = Lineage(said.sha256, 0, len(said.text), chunker="whole")
    return Passage(said.doc_id, 0, said.text, lineage=lineage)
