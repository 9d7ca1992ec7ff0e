"""TopiOCQA: conversations over Wikipedia whose topic shifts.

``topiocqa_dev.json`` has the turns (``Context``: earlier questions and answers, ``Question``,
``Answer``, ``Additional_answers``); gold passages are those of the authors' retrieval files
(``ir_all_history_dev.json`` or ``all_history/dev.json``: ``conv_id``, ``turn_id``,
``positive_ctxs`` with ``passage_id``); ``full_wiki_segments.tsv`` has the passages (id, text,
title), written by Python's `csv.writer`, hence with quotes around what holds any.

Source: Adlakha et al., TopiOCQA: Open-domain Conversational Question Answering with Topic
Switching (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.systems.leadr.question import Question
from steersman.systems.leadr.sets.evidence_set import Gathering, asked_text, turns
from steersman.systems.leadr.sets.files import entries, needed, table

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.entry import Entry
    from steersman.systems.leadr.sets.evidence_set import EvidenceSet


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development turns, or the training ones where there are no others.

    Args:
        folder: with the three files, in folders of their own as well.
        name: of the set.
        at_most: passages beside the gold ones.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the turns", "**/topiocqa_dev.json", "**/topiocqa_train.json")
    split = "dev" if "dev" in file.name else "train"
    judged = needed(
        folder, "the gold passages", f"**/ir_all_history_{split}.json",
        f"**/all_history/{split}.json",
    )  # fmt: skip
    right = {f"{row.name('conv_id')}_{row.name('turn_id')}": _gold(row) for row in entries(judged)}
    gold = {one for ids in right.values() for one in ids}
    found = Gathering(name, at_most=at_most, gold=gold)
    passages = needed(folder, "the passages", "**/full_wiki_segments.tsv")
    for where, (passage, text, title) in table(passages, columns=3, quoted=True):
        if passage != "id":
            found.passage(where, passage, text, title)
    for row in entries(file):
        _ask(found, row, right, split)
    return found.done(folder)


def _gold(row: Entry) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name("passage_id") for one in row.each("positive_ctxs")))


def _ask(found: Gathering, row: Entry, right: dict[str, tuple[str, ...]], split: str) -> None:
    talk = row.name("Conversation_no")
    name = f"{talk}_{row.name('Turn_no')}"
    more = [one.text("Answer", default="") for one in row.each("Additional_answers")]
    answers = [one for one in (row.text("Answer", default=""), *more) if one.strip()]
    question = Question(
        name,
        asked_text(row, "Question"),
        history=turns(row.texts("Context")),
        answers=tuple(dict.fromkeys(answers)),
        gold=right.get(name, ()),
    )
    found.ask(row.where, question, split=split, conversation=talk)
