"""QReCC: conversational questions with human rewrites, over web pages.

Supported formats of turns:

- the SCAI-QReCC shared task: ``scai-qrecc21-*-turns.json`` or ``qrecc-test.json``, with
  ``Truth_rewrite``, ``Truth_answer`` and ``Truth_passages``, or with a separate
  ``*ground-truth.json``;
- the authors' release: ``qrecc_*.json`` with ``Context``, ``Rewrite`` and ``Answer``, without gold.

Passages are the lines (``id``, ``contents``) of the files in ``collection-paragraph`` or
``passages``.

Source: Anantha et al., Open-Domain Question Answering Goes Conversational via Question Rewriting
(2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.entry import Entry
from steersman_systems.evidence_selection.sets.files import entries, find, needed, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text, turns

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = (
    "scai-qrecc21-test-turns.json", "qrecc-test.json", "scai-qrecc21*questions.json",
    "scai-qrecc21-train*-turns.json", "qrecc-train*.json", "**/qrecc_test.json",
    "**/qrecc_train.json",
)  # fmt: skip


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the test turns, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the turns", *FILES)
    said = sorted(_with_truth(folder, file), key=_place)
    gold = {one for row in said for one in row.names("Truth_passages")}
    found = SetBuilder(name, at_most=at_most, gold=gold)
    for part in _collection(folder):
        for row in entries(part):
            found.passage(row.where, row.name("id"), row.text("contents", default=""))
    before: dict[str, list[str]] = {}
    for row in said:
        _ask(found, row, before.setdefault(row.name("Conversation_no"), []), split_of(file))
    return found.done(folder)


def _with_truth(folder: Path, file: Path) -> list[Entry]:
    """Return the turns, each with its ground truth from a separate file, if any."""
    said = list(entries(file))
    apart = find(folder, "scai-qrecc21*ground-truth.json")
    if apart is None or any("Truth_passages" in row.fields for row in said):
        return said
    truth = {_place(row): row.fields for row in entries(apart)}
    return [Entry(row.where, {**truth.get(_place(row), {}), **row.fields}) for row in said]


def _place(row: Entry) -> tuple[int, int]:
    return row.whole("Conversation_no"), row.whole("Turn_no")


def _collection(folder: Path) -> list[Path]:
    for inside in ("collection-paragraph", "*/collection-paragraph", "passages"):
        if parts := sorted(folder.glob(f"{inside}/**/*.jsonl*")):
            return parts
    raise DataError(
        f"{folder} has no collection-paragraph/*.jsonl, the passages (id, contents); unpack "
        "the collection there"
    )


def _ask(found: SetBuilder, row: Entry, before: list[str], split: str) -> None:
    text = asked_text(row, "Question")
    answer = row.text("Truth_answer", default=row.text("Answer", default=""))
    told = row.texts("Context") or before
    talk = row.name("Conversation_no")
    question = Question(
        f"{talk}_{row.name('Turn_no')}",
        text,
        history=turns(told),
        answers=(answer,),
        gold=tuple(row.names("Truth_passages")),
        category=row.text("Conversation_source", default=""),
    )
    rewrite = row.text("Truth_rewrite", default=row.text("Rewrite", default=""))
    found.ask(row.where, question, rewrite=rewrite, split=split, conversation=talk)
    before += [text, answer]
