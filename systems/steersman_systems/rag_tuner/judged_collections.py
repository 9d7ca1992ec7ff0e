"""Judged collections: passages and questions with relevance judgements, in two formats.

A collection is a folder with one of

- ``corpus.jsonl`` (id, title, text), ``queries.jsonl`` (id, text) and judgements (query-id,
  corpus-id, score; a heading line), as BEIR has them: ``qrels/test.tsv`` and perhaps dev and train,
  each a split, or one file ``qrels.tsv`` for all;
- ``passages.jsonl`` (id, title, text) and ``questions.jsonl`` (id, question, gold: ids, and perhaps
  history: earlier turns; the conversation that it is a turn of; and last_updated, a date).

Files may be compressed (``.gz``); ids may be named ``_id`` and be integers. A question without a
relevant document (gain above 0) is skipped. It may have a ``split`` and a category: ``category``,
else ``domain``, else ``type``. Other fields, such as labels and answers, are ignored, so that no
choice can depend on them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Missing = Literal["error", "unfindable"]

_CAP = 1_000_000_000
_LISTED = 5
_KINDS = ("category", "domain", "type")
_PUBLISHED_SPLITS = ("test", "dev", "train")
_HELD_OUT = ("test", "dev", "valid", "validation")


@dataclass(frozen=True, slots=True)
class Question:
    """Question with judged documents.

    Args:
        id: unique in its collection.
        text: question text.
        gains: gain by document id, > 0; at least one.
        split: split name; "" if the collection has no splits.
        category: category, known before the answer; "" if unknown.
        history: earlier turns, the oldest first.
        conversation: conversation id; "" if unknown.
        updated: date of the last change; "" if unknown.
    """

    id: str
    text: str
    gains: Mapping[str, float]
    split: str = ""
    category: str = ""
    history: tuple[str, ...] = ()
    conversation: str = ""
    updated: str = ""


@dataclass(frozen=True, slots=True)
class JudgedCollection:
    """Collection of passages and judged questions.

    Args:
        name: collection name.
        passages: one passage per document, in the order of the file.
        questions: questions with relevant documents.
        unfindable: relevant ids without a document, if allowed; they count as missed.
    """

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    unfindable: frozenset[str] = frozenset()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, sorted; ("",) without splits."""
        return tuple(sorted({question.split for question in self.questions}))

    @property
    def held_out(self) -> str | None:
        """Split to measure on: test, else dev or validation; None: not found."""
        return next((name for name in _HELD_OUT if name in self.splits), None)

    def split(self, name: str | None) -> JudgedCollection:
        """Return the collection with only the questions of one split.

        Args:
            name: one of `splits`; None for all questions.

        Raises:
            DataError: split not found.
        """
        if name is None:
            return self
        chosen = tuple(question for question in self.questions if question.split == name)
        if not chosen:
            raise DataError(
                f"{self.name} has no split {name!r}; it has {', '.join(map(repr, self.splits))}"
            )
        return replace(self, questions=chosen)

    def documents(self, positions: Iterable[int]) -> list[str]:
        """Return the unique document ids for passage positions, as input for measures."""
        return list(dict.fromkeys(self.passages[position].doc_id for position in positions))


def load_judged(folder: Path, *, missing: Missing = "error") -> JudgedCollection:
    """Read a collection from a folder; its name is the folder name.

    Raises:
        DataError: a file is missing, damaged or too large, a line is invalid, or an id is
            duplicate or unknown; the message names file and line.
        InputError: `missing` is invalid.
    """
    if missing not in {"error", "unfindable"}:
        raise InputError(f"missing is {missing!r}; allowed: error, unfindable")
    if _found(folder, "corpus.jsonl"):
        passages = _passages(folder, "corpus.jsonl")
        questions = _with_qrels(folder)
    elif _found(folder, "passages.jsonl"):
        passages = _passages(folder, "passages.jsonl")
        questions = _with_gold(folder)
    else:
        raise DataError(
            f"no collection found in {folder}; put corpus.jsonl, queries.jsonl and qrels.tsv there "
            "(or qrels/test.tsv), or passages.jsonl and questions.jsonl (each may end in .gz), or "
            "pass another folder"
        )
    unfindable = _unfindable(folder, passages, questions, missing)
    if not questions:
        raise DataError(f"no question of {folder} has a relevant document; check its judgements")
    return JudgedCollection(folder.name, passages, questions, unfindable)


# -- the two formats ------------------------------------------------------------------------------


def _passages(folder: Path, name: str) -> tuple[Passage, ...]:
    found = tuple(_passage(row, where) for where, row in _rows(folder, name))
    _check_unique([passage.doc_id for passage in found], f"{folder / name}")
    if not found:
        raise DataError(f"{folder / name} contains no passages; at least one is needed")
    return found


def _passage(row: dict[str, Any], where: str) -> Passage:
    try:
        document = Document(
            _name(row, where, "id", "_id"), _text(row, where, "text"), row.get("title") or ""
        )
    except InputError as wrong:
        raise DataError(f"{where}: {wrong}") from wrong
    lineage = Lineage(document.sha256, 0, len(document.text), chunker="whole")
    return Passage(document.doc_id, 0, document.text, document.title, lineage=lineage)


def _with_qrels(folder: Path) -> tuple[Question, ...]:
    asked = {}
    for where, row in _rows(folder, "queries.jsonl"):
        question = _question(row, where, "text", {})
        if question.id in asked:
            raise DataError(f"{where}: duplicate id {question.id!r}; remove one")
        asked[question.id] = question
    gains: dict[str, dict[str, float]] = {}
    splits: dict[str, str] = {}
    for file in _judgement_files(folder):
        for where, query, document, gain in _judgements(file):
            if query not in asked:
                raise DataError(f"{where}: the query {query!r} is not in queries.jsonl")
            if gains.setdefault(query, {}).setdefault(document, gain) != gain:
                raise DataError(f"{where}: {document!r} is judged twice for the query {query!r}")
            if gain > 0 and file.parent != folder:
                splits.setdefault(query, file.name.partition(".")[0])
    relevant = {
        query: {one: gain for one, gain in judged.items() if gain > 0}
        for query, judged in gains.items()
    }
    return tuple(
        replace(question, gains=relevant[name], split=question.split or splits.get(name, ""))
        for name, question in asked.items()
        if relevant.get(name)
    )


def _judgement_files(folder: Path) -> list[Path]:
    """Return the file of all judgements, or the files of the BEIR splits."""
    split = [_found(folder / "qrels", f"{name}.tsv") for name in _PUBLISHED_SPLITS]
    apart = [file for file in split if file is not None]
    return apart if apart and not _found(folder, "qrels.tsv") else [_file(folder, "qrels.tsv")]


def _judgements(file: Path) -> Iterator[tuple[str, str, str, float]]:
    try:
        content = io.StringIO(_content(file))
        lines = list(csv.reader(content, delimiter="\t", quoting=csv.QUOTE_NONE))
    except csv.Error as wrong:
        raise DataError(
            f"{file} is not a valid table: {wrong}; copy it from its source again"
        ) from wrong
    for number, row in enumerate(lines, 1):
        where = f"{file}, line {number}"
        if not row or (number == 1 and row[0] == "query-id"):
            continue
        if len(row) != 3:
            raise DataError(f"{where}: {len(row)} columns; expected query-id, corpus-id, score")
        yield where, row[0], row[1], _gain(row[2], where)


def _gain(text: str, where: str) -> float:
    """Return a score; negative TREC scores mean not relevant."""
    try:
        gain = float(text)
    except ValueError:
        gain = math.nan
    if not math.isfinite(gain):
        raise DataError(f"{where}: the score is {text!r}; it must be a finite number")
    return gain


def _with_gold(folder: Path) -> tuple[Question, ...]:
    questions = []
    for where, row in _rows(folder, "questions.jsonl"):
        gold = [] if row.get("gold") is None else row["gold"]
        if not isinstance(gold, list) or not all(type(one) in {str, int} for one in gold):
            raise DataError(f"{where}: gold is {gold!r}; it must be a list of ids of passages")
        gains = dict.fromkeys(map(str, gold), 1.0)
        questions.append(_question(row, where, "question", gains))
    _check_unique([question.id for question in questions], f"{folder / 'questions.jsonl'}")
    return tuple(question for question in questions if question.gains)


def _question(row: dict[str, Any], where: str, field: str, gains: Mapping[str, float]) -> Question:
    text = _text(row, where, field)
    if not text.strip():
        raise DataError(f"{where}: {field} is empty; add the text, or remove the line")
    history = row.get("history") or []
    if not isinstance(history, list) or not all(isinstance(turn, str) for turn in history):
        raise DataError(f"{where}: history is {history!r:.60}; it must be a list of strings")
    kinds = (row.get(kind) for kind in _KINDS)
    conversation = row.get("conversation")
    return Question(
        id=_name(row, where, "id", "_id"),
        text=text,
        gains=gains,
        split=str(row.get("split") or ""),
        category=next((kind for kind in kinds if isinstance(kind, str)), ""),
        history=tuple(history),
        conversation=str(conversation) if type(conversation) in {str, int} else "",
        updated=str(row.get("last_updated") or ""),
    )


def _unfindable(
    folder: Path, passages: Sequence[Passage], questions: Sequence[Question], missing: Missing
) -> frozenset[str]:
    known = {passage.doc_id for passage in passages}
    unknown = {one: question.id for question in questions for one in question.gains}
    unknown = {one: asked for one, asked in unknown.items() if one not in known}
    if unknown and missing == "error":
        named = [
            f"{one!r:.80} (question {asked!r:.80})"
            for one, asked in islice(unknown.items(), _LISTED)
        ]
        more = f" and {len(unknown) - _LISTED:,} more" if len(unknown) > _LISTED else ""
        raise DataError(
            f"{folder}: no document for {len(unknown):,} relevant ids: {', '.join(named)}{more}; "
            "add the documents, remove the judgements, or load with missing='unfindable', which "
            "counts them as missed"
        )
    return frozenset(unknown)


# -- files ----------------------------------------------------------------------------------------


def _found(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _file(folder: Path, name: str) -> Path:
    file = _found(folder, name)
    if file is None:
        raise DataError(f"{folder / name} is missing (or {name}.gz); put it there")
    return file


def _content(file: Path) -> str:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(_CAP + 1)
        if len(content) > _CAP:
            raise DataError(f"{file} has more than {_CAP:,} bytes, the maximum; split the set")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as wrong:
        raise DataError(f"{file} cannot be read: {wrong}; copy it from its source again") from wrong


def _rows(folder: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    file = _file(folder, name)
    # Not splitlines: JSON may contain unescaped Unicode line separators.
    for number, line in enumerate(_content(file).split("\n"), 1):
        where = f"{file}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            raise DataError(f"{where}: invalid JSON: {wrong}") from wrong
        if not isinstance(row, dict):
            raise DataError(f"{where}: {line[:40]!r} must be a JSON object")
        yield where, row


def _text(row: Mapping[str, Any], where: str, *names: str) -> str:
    value = next((row[name] for name in names if name in row), None)
    if not isinstance(value, str):
        raise DataError(f"{where}: {names[0]} is {str(value)[:40]!r}; it must be a string")
    return value


def _name(row: Mapping[str, Any], where: str, *names: str) -> str:
    """Return an id; some sets write integers."""
    value = next((row[name] for name in names if name in row), None)
    return str(value) if type(value) is int else _text(row, where, *names)


def _check_unique(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: duplicate id {name!r}; remove one")
        seen.add(name)
