"""MuSiQue: questions of two to four hops, twenty candidates each.

A line has ``id`` (which begins with the number of hops), ``question``, ``answer``,
``answer_aliases`` and ``paragraphs`` of ``title``, ``paragraph_text`` and ``is_supporting``.

Source: Trivedi et al., MuSiQue: Multihop Questions via Single-hop Question Composition (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.systems.leadr.question import Question
from steersman.systems.leadr.sets.evidence_set import Gathering, asked_text
from steersman.systems.leadr.sets.files import entries, needed

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.entry import Entry
    from steersman.systems.leadr.sets.evidence_set import EvidenceSet

_FILES = ("musique_ans*dev.jsonl", "musique*dev.jsonl", "musique*train.jsonl")


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones where there are no others.

    Args:
        folder: with the file, in a folder ``data`` as well.
        name: of the set.
        at_most: unused: all candidates of all questions are read.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    patterns = [f"{place}{one}" for one in _FILES for place in ("", "data/")]
    file = needed(folder, "the questions with their passages", *patterns)
    found = Gathering(name, at_most=at_most)
    for row in entries(file):
        _ask(found, row, "train" if "train" in file.name else "dev")
    return found.done(file)


def _ask(found: Gathering, row: Entry, split: str) -> None:
    ids, gold = [], []
    for one in row.each("paragraphs"):
        passage = found.candidate(one.where, one.text("paragraph_text"), one.text("title"))
        ids.append(passage)
        supporting = one.fields.get("is_supporting", False)
        if not isinstance(supporting, bool):
            raise one.wrong("is_supporting", "true or false")
        gold += [passage] if supporting else []
    name = row.name("id")
    question = Question(
        name,
        asked_text(row, "question"),
        answers=tuple(filter(None, (row.text("answer", default=""), *row.texts("answer_aliases")))),
        gold=tuple(dict.fromkeys(gold)),
        category=name.partition("_")[0],
    )
    found.ask(row.where, question, pool=ids, split=split)
