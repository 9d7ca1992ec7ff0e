"""Natural Questions: search queries, each with one Wikipedia page.

Lines are read as published, simplified (``document_text``, tokens between blanks) or full
(``document_tokens`` of ``token`` and ``html_token``), with ``question_text``,
``long_answer_candidates`` and ``annotations``. The input is one file or all its numbered parts.
Candidates are the page's top-level parts; answers are the short ones of all annotators.

Five people annotated each development question and may disagree. Gold is the top-level part that
most of them gave as, or that contains, the long answer; ties go to the first on the page. As in the
authors' evaluation, gold is empty if four of the five gave none. Without these files,
``biencoder-nq-dev.json`` is read (`dpr`).

Source: Kwiatkowski et al., Natural Questions: a Benchmark for Question Answering Research (2019).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets import dpr
from steersman_systems.evidence_selection.sets.files import all_needed, entries, find, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = (
    "**/v1.0*nq-dev*.jsonl", "**/nq-dev-[0-9][0-9].jsonl", "**/*nq-dev*.jsonl",
    "**/v1.0*nq-train*.jsonl", "**/nq-train-[0-9][0-9].jsonl", "**/*nq-train*.jsonl",
)  # fmt: skip
"""Order of preference: one file, numbered parts, a sample."""
DPR_FILES = ("**/biencoder-nq-dev.json", "**/biencoder-nq*train.json")
_ENOUGH = 2
"""Minimum number of annotators with a long answer; with a single annotator, one."""
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    retrieved = find(folder, *DPR_FILES)
    if retrieved is not None and find(folder, *FILES) is None:
        return dpr.load(retrieved, name, at_most)
    found = SetBuilder(name, at_most=at_most)
    for file in all_needed(folder, "the questions with their pages", *FILES):
        for row in entries(file):
            _ask(found, row, split_of(file))
    return found.done(folder)


def _ask(found: SetBuilder, row: Entry, split: str) -> None:
    tokens = _tokens(row)
    title = row.text("document_title", default="")
    notes = list(row.each("annotations"))
    spans = list(row.each("long_answer_candidates"))
    right = _right(notes, spans)
    ids: dict[int, str] = {}
    for place, span in enumerate(spans):
        text = _text(span, tokens)
        if span.told("top_level", default=True) and text:
            ids[place] = found.candidate(span.where, text, title, gold=place == right)
    shorts = [_text(span, tokens) for note in notes for span in note.each("short_answers")]
    said = [note.text("yes_no_answer", default="NONE").lower() for note in notes]
    answers = (*shorts, *(one for one in said if one != "none"))
    question = Question(
        row.name("example_id"),
        asked_text(row, "question_text"),
        answers=answers,
        gold=(ids[right],) if right in ids else (),
    )
    found.ask(row.where, question, pool=list(ids.values()), split=split)


def _right(notes: Sequence[Entry], spans: Sequence[Entry]) -> int:
    """Return the top-level part that most annotators gave; -1 without one."""
    given = [note.inner("long_answer").whole("candidate_index") for note in notes]
    tops = [_top(place, spans) for place in given if 0 <= place < len(spans)]
    if len(tops) < min(len(notes), _ENOUGH):
        return -1
    votes = Counter(tops)
    return min(votes, key=lambda place: (-votes[place], place), default=-1)


def _top(place: int, spans: Sequence[Entry]) -> int:
    """Return the top-level part that is or contains a part."""
    start, end = (spans[place].whole(one) for one in ("start_token", "end_token"))
    for other, span in enumerate(spans):
        within = span.whole("start_token") <= start and end <= span.whole("end_token")
        if within and span.told("top_level", default=True):
            return other
    return place


def _tokens(row: Entry) -> list[str]:
    if "document_text" in row.fields:
        return [_TAG.sub("", token) for token in row.text("document_text").split(" ")]
    return [
        "" if one.fields.get("html_token") else one.text("token")
        for one in row.each("document_tokens")
    ]


def _text(span: Entry, tokens: list[str]) -> str:
    start, end = span.whole("start_token"), span.whole("end_token")
    if not -1 <= start <= end <= len(tokens):
        message = f"a place of the {len(tokens)} tokens, not {start} to {end}"
        raise span.wrong("end_token", message)
    return " ".join(filter(None, tokens[max(start, 0) : max(end, 0)]))
