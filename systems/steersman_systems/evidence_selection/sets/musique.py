"""MuSiQue: questions of two to four hops with twenty candidates.

A line has ``id`` (which begins with the number of hops), ``question``, ``answer``,
``answer_aliases`` and ``paragraphs`` of ``title``, ``paragraph_text`` and ``is_supporting``.
MuSiQue-Full has each question twice under one id. The copy with insufficient paragraphs
(``answerable`` is false) is read as ``<id>_unanswerable``, without answer and gold.

Source: Trivedi et al., MuSiQue: Multihop Questions via Single-hop Question Composition (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, needed, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = (
    "**/musique_ans*dev.jsonl", "**/musique*dev.jsonl", "**/musique_ans*train.jsonl",
    "**/musique*train.jsonl",
)  # fmt: skip


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the questions with their passages", *FILES)
    found = SetBuilder(name, at_most=at_most)
    for row in entries(file):
        _ask(found, row, split_of(file))
    return found.done(file)


def _ask(found: SetBuilder, row: Entry, split: str) -> None:
    ids, gold = [], []
    for one in row.each("paragraphs"):
        text, title = one.text("paragraph_text"), one.text("title", default="")
        supporting = one.told("is_supporting")
        passage = found.candidate(one.where, text, title, gold=supporting)
        ids.append(passage)
        gold += [passage] if supporting else []
    name, suffices = row.name("id"), row.told("answerable", default=True)
    answers = (row.text("answer", default=""), *row.texts("answer_aliases"))
    question = Question(
        name if suffices else f"{name}_unanswerable",
        asked_text(row, "question"),
        answers=answers if suffices else (),
        gold=tuple(gold) if suffices else (),
        category=name.partition("_")[0],
    )
    found.ask(row.where, question, pool=ids, split=split)
