"""``passages.jsonl`` and ``questions.jsonl``: the format of this project's data sets.

A passage has ``id``, ``title`` and ``text``. A question has ``id``, ``question`` and, if known,
``answers`` (texts), ``gold`` (passage ids), ``pool`` (ids of its candidates), ``history``
(alternating turns, user first), ``conversation``, ``split``, and ``category``, ``domain`` or
``type``. Ids may be called ``_id``, and files may be compressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, find, needed
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text, turns

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

_KINDS = ("category", "domain", "type")


def is_there(folder: Path) -> bool:
    """Return whether a folder holds this format."""
    return bool(find(folder, "passages.jsonl") and find(folder, "questions.jsonl"))


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read a set.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    rows = list(entries(needed(folder, "the questions", "questions.jsonl")))
    gold = {one for row in rows for one in row.names("gold")}
    pooled = {one for row in rows for one in row.names("pool")}
    found = SetBuilder(name, at_most=at_most, gold=gold, pooled=pooled)
    for row in entries(needed(folder, "the passages", "passages.jsonl")):
        text, title = row.text("text", default=""), row.text("title", default="")
        found.passage(row.where, _id(row), text, title)
    for row in rows:
        kinds = (row.fields.get(kind) for kind in _KINDS)
        question = Question(
            _id(row),
            asked_text(row, "question"),
            history=turns(row.texts("history")),
            answers=tuple(row.texts("answers")),
            gold=tuple(row.names("gold")),
            category=next((kind for kind in kinds if isinstance(kind, str)), ""),
        )
        found.ask(
            row.where,
            question,
            rewrite=row.text("rewrite", default=""),
            pool=row.names("pool") or None,
            split=row.name("split", default=""),
            conversation=row.name("conversation", default=""),
        )
    return found.done(folder)


def _id(row: Entry) -> str:
    return row.name("_id" if "_id" in row.fields and "id" not in row.fields else "id")
