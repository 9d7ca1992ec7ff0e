"""BEIR: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.

A corpus line has ``_id``, ``title`` and ``text``; a query ``_id`` and ``text``. Judgements are
tab-separated query, document and score with a header, or JSON lines with ``query-id``,
``corpus-id`` and ``score`` (``qrels/test.jsonl``, as in MTEB). Gold has a score above 0.

Source: Thakur et al., BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information
Retrieval Models (2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, find, needed, split_of, table
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

_QRELS = ("qrels/test.tsv", "qrels/test.jsonl", "qrels/dev.tsv", "qrels/dev.jsonl",
          "qrels/train.tsv", "qrels/train.jsonl", "qrels.tsv", "test.tsv")  # fmt: skip


def is_there(folder: Path) -> bool:
    """Return whether a folder holds this format."""
    return bool(find(folder, "corpus.jsonl") and find(folder, "queries.jsonl"))


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the test questions; the development or training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the judgements", *_QRELS)
    asked: dict[str, Entry] = {}
    for row in entries(needed(folder, "the questions", "queries.jsonl")):
        if _id(row) in asked:
            raise DataError(f"{row.where}: duplicate question {_id(row)!r}; keep one")
        asked[_id(row)] = row
    gold: dict[str, list[str]] = {}
    for where, query, passage, score in _judged(file):
        if query not in asked:
            raise DataError(f"{where}: the query {query!r} is not in queries.jsonl")
        if _above_zero(score, where):
            gold.setdefault(query, []).append(passage)
    found = SetBuilder(name, at_most=at_most, gold={one for ids in gold.values() for one in ids})
    for row in entries(needed(folder, "the passages", "corpus.jsonl")):
        text, title = row.text("text", default=""), row.text("title", default="")
        found.passage(row.where, _id(row), text, title)
    for query, ids in gold.items():
        row = asked[query]
        question = Question(query, asked_text(row, "text"), gold=tuple(ids))
        found.ask(row.where, question, split=row.text("split", default=split_of(file)))
    return found.done(folder)


def _judged(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield (place, query, document, score)."""
    if "json" in file.suffixes[0]:
        for row in entries(file):
            score = str(row.fields.get("score"))
            yield row.where, row.name("query-id"), row.name("corpus-id"), score
        return
    for where, (query, passage, score) in table(file, columns=3):
        if query != "query-id":
            yield where, query, passage, score


def _id(row: Entry) -> str:
    return row.name("_id" if "_id" in row.fields else "id")


def _above_zero(score: str, where: str) -> bool:
    try:
        return float(score) > 0
    except ValueError:
        message = f"{where}: the score is {score!r}; expected a number"
        raise DataError(message) from None
