"""TopiOCQA: conversations over Wikipedia with topic changes.

``topiocqa_dev.json`` or ``topiocqa_valid.jsonl`` has the turns (``Context``: earlier questions and
answers, ``Question``, ``Answer``, ``Additional_answers``, in later editions ``Gold_passage`` with
``id``). Without ``Gold_passage``, gold comes from the authors' retrieval files
(``ir_all_history_dev.json``, ``all_history/dev.json``: ``conv_id``, ``turn_id``, ``positive_ctxs``
with ``passage_id``). ``full_wiki_segments.tsv`` has the passages (id, text, title), written by
Python's `csv.writer`, with quotes around fields that contain quotes. Without it, the
``Gold_passage`` of all turns are searched. ``Gold_passage`` puts ``wiki:`` before the ids.

Source: Adlakha et al., TopiOCQA: Open-domain Conversational Question Answering with Topic
Switching (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, find, needed, split_of, table
from steersman_systems.evidence_selection.sets.set_builder import (
    WITHOUT_COLLECTION,
    SetBuilder,
    asked_text,
    turns,
)

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = (
    "**/topiocqa_dev.json", "**/topiocqa_valid.json", "**/topiocqa_dataset/dev.json",
    "**/topiocqa_train.json", "**/topiocqa_dataset/train.json",
)  # fmt: skip
_NO_ANSWER = "UNANSWERABLE"
_PASSAGES = "**/full_wiki_segments.tsv"
_GOLD = (
    "**/ir_all_history_{}.json", "**/gold_passages_info/**/all_history/{}.json",
    "**/retriever/all_history/{}.json", "**/all_history/{}.json",
    "**/topiocqa_all_history*_{}.json",
)  # fmt: skip


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development turns, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the turns", *FILES)
    split = split_of(file)
    said = list(entries(file))
    right = _gold(folder, said, split)
    found = SetBuilder(name, at_most=at_most, gold={one for ids in right.values() for one in ids})
    note = _read_passages(folder, found, said)
    for row in said:
        _ask(found, row, right, split)
    return found.done(folder, note=note)


def _read_passages(folder: Path, found: SetBuilder, said: list[Entry]) -> str:
    """Read the collection or its replacement; return a note about it."""
    own = [row.inner("Gold_passage") for row in said if row.fields.get("Gold_passage")]
    if own and find(folder, _PASSAGES) is None:
        for one in own:
            found.passage(one.where, _plain(one.name("id")), one.text("text"), one.text("title"))
        return WITHOUT_COLLECTION
    for where, (passage, text, title) in table(
        needed(folder, "the passages", _PASSAGES), columns=3, quoted=True
    ):
        if passage != "id":
            found.passage(where, _plain(passage), text, title)
    return ""


def _gold(folder: Path, said: list[Entry], split: str) -> dict[str, tuple[str, ...]]:
    """Return the gold passages of each turn, from the turn or a separate file."""
    if any("Gold_passage" in row.fields for row in said):
        return {
            _id(row): (_plain(row.inner("Gold_passage").name("id")),)
            for row in said
            if row.fields.get("Gold_passage")
        }
    file = needed(folder, "the gold passages", *(one.format(split) for one in _GOLD))
    return {
        f"{row.name('conv_id')}_{row.name('turn_id')}": tuple(
            _plain(one.name("passage_id")) for one in row.each("positive_ctxs")
        )
        for row in entries(file)
    }


def _plain(passage: str) -> str:
    return passage.removeprefix("wiki:")


def _id(row: Entry) -> str:
    return f"{row.name('Conversation_no')}_{row.name('Turn_no')}"


def _ask(found: SetBuilder, row: Entry, right: dict[str, tuple[str, ...]], split: str) -> None:
    more = (one.text("Answer", default="") for one in row.each("Additional_answers"))
    given = (row.text("Answer", default=""), *more)
    question = Question(
        _id(row),
        asked_text(row, "Question"),
        answers=tuple(one for one in given if one != _NO_ANSWER),
        gold=right.get(_id(row), ()),
        history=turns(row.texts("Context")),
    )
    found.ask(row.where, question, split=split, conversation=row.name("Conversation_no"))
