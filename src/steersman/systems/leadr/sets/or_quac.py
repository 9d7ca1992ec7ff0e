"""OR-QuAC: the questions of QuAC asked of all of Wikipedia.

``preprocessed/test.txt`` (or dev, train) has a turn a line (``qid``, ``question``, ``rewrite``,
``history`` of ``question`` and ``answer.text``, ``answer.text``); ``all_blocks.txt`` a passage a
line (``id``, ``title``, ``text``); ``qrels.txt`` is one object, qid -> passage id -> 1.

Source: Qu et al., Open-Retrieval Conversational Question Answering (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.systems.leadr.question import Question
from steersman.systems.leadr.sets.evidence_set import Gathering, asked_text, turns
from steersman.systems.leadr.sets.files import document, entries, needed

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.entry import Entry
    from steersman.systems.leadr.sets.evidence_set import EvidenceSet

_NO_ANSWER = "CANNOTANSWER"


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the test turns; the development or training ones where there are no others.

    Args:
        folder: as it is published.
        name: of the set.
        at_most: passages beside the gold ones.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(
        folder, "the turns", *(f"**/{one}.txt" for one in ("test", "dev", "train"))
    )  # fmt: skip
    qrels = document(needed(folder, "the gold passages", "**/qrels.txt"))
    said = list(entries(file))
    right = {row.name("qid"): _gold(qrels, row.name("qid")) for row in said}
    found = Gathering(name, at_most=at_most, gold={one for ids in right.values() for one in ids})
    for row in entries(needed(folder, "the passages", "**/all_blocks.txt")):
        found.passage(row.where, row.name("id"), row.text("text"), row.text("title", default=""))
    for row in said:
        _ask(found, row, right[row.name("qid")], file.name.partition(".")[0])
    return found.done(folder)


def _gold(qrels: Entry, question: str) -> tuple[str, ...]:
    return tuple(qrels.inner(question).fields) if question in qrels.fields else ()


def _ask(found: Gathering, row: Entry, gold: tuple[str, ...], split: str) -> None:
    before: list[str] = []
    for turn in row.each("history"):
        before += [turn.text("question"), turn.inner("answer").text("text", default="")]
    answer = row.inner("answer").text("text", default="")
    question = Question(
        row.name("qid"),
        asked_text(row, "question"),
        history=turns(before),
        answers=() if answer in {"", _NO_ANSWER} else (answer,),
        gold=gold,
    )
    found.ask(
        row.where,
        question,
        rewrite=row.text("rewrite", default=""),
        split=split,
        conversation=question.id.rpartition("#")[0],
    )
