"""OR-QuAC: the questions of QuAC over all of Wikipedia.

- ``preprocessed/test.txt`` (or dev, train): one turn per line (``qid``, ``question``, ``rewrite``,
  ``history`` of ``question`` and ``answer.text``, ``answer.text``);
- ``all_blocks.txt``: one passage per line (``id``, ``title``, ``text``);
- ``qrels.txt``: one object, qid -> passage id -> 1.

Without ``all_blocks.txt`` the candidates of a turn are its ``evidences``, with gold marked by
``retrieval_labels``.

Source: Qu et al., Open-Retrieval Conversational Question Answering (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import (
    document,
    entries,
    find,
    needed,
    split_of,
)
from steersman_systems.evidence_selection.sets.set_builder import (
    WITHOUT_COLLECTION,
    SetBuilder,
    asked_text,
    turns,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = tuple(
    f"{place}{one}.txt" for one in ("test", "dev", "train") for place in ("**/preprocessed/", "**/")
)
_BLOCKS = "**/all_blocks.txt"
_NO_ANSWER = "CANNOTANSWER"


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the test turns; the development or training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the turns", *FILES)
    said = list(entries(file))
    if find(folder, _BLOCKS) is None and any(row.fields.get("evidences") for row in said):
        return _over_evidences(SetBuilder(name, at_most=at_most), said, file)
    qrels = document(needed(folder, "the gold passages", "**/qrels.txt"))
    right = {row.name("qid"): _gold(qrels, row.name("qid")) for row in said}
    found = SetBuilder(name, at_most=at_most, gold={one for ids in right.values() for one in ids})
    for row in entries(needed(folder, "the passages", _BLOCKS)):
        text, title = row.text("text", default=""), row.text("title", default="")
        found.passage(row.where, row.name("id"), text, title)
    for row in said:
        _ask(found, row, right[row.name("qid")], split_of(file))
    return found.done(folder)


def _over_evidences(found: SetBuilder, said: Sequence[Entry], file: Path) -> EvidenceSet:
    for row in said:
        texts, labels = row.texts("evidences"), row.fields.get("retrieval_labels") or []
        if not isinstance(labels, list) or len(labels) != len(texts):
            raise row.wrong("retrieval_labels", f"{len(texts)} numbers, one for each of evidences")
        told = list(zip(texts, labels, strict=True))
        ids = [found.candidate(row.where, text, gold=label == 1) for text, label in told]
        gold = [one for one, label in zip(ids, labels, strict=True) if label == 1]
        _ask(found, row, gold, split_of(file), pool=ids)
    return found.done(file, note=WITHOUT_COLLECTION)


def _gold(qrels: Entry, question: str) -> tuple[str, ...]:
    if question not in qrels.fields:
        return ()
    judged = qrels.inner(question)
    return tuple(one for one in judged.fields if judged.whole(one) > 0)


def _ask(
    found: SetBuilder,
    row: Entry,
    gold: Sequence[str],
    split: str,
    *,
    pool: Sequence[str] | None = None,
) -> None:
    before: list[str] = []
    for turn in row.each("history"):
        before += [turn.text("question"), _answer(turn)]
    answer = _answer(row)
    question = Question(
        row.name("qid"),
        asked_text(row, "question"),
        history=turns(before),
        answers=() if answer == _NO_ANSWER else (answer,),
        gold=tuple(gold),
    )
    found.ask(
        row.where, question, pool=pool, rewrite=row.text("rewrite", default=""), split=split,
        conversation=question.id.rpartition("#")[0],
    )  # fmt: skip


def _answer(turn: Entry) -> str:
    return turn.inner("answer").text("text", default="") if turn.fields.get("answer") else ""
