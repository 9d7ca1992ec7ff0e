"""TriviaQA: quiz questions, each with pages that contain an answer.

``qa/wikipedia-dev.json`` or ``qa/web-dev.json`` is one object whose ``Data`` lists questions
(``QuestionId``, ``Question``, ``Answer`` with ``Value`` and ``Aliases``, ``EntityPages`` and
``SearchResults`` with ``Filename`` and ``Title``). The pages are texts under ``evidence/wikipedia``
and ``evidence/web``. They have no passage annotations, so a page is cut into passages of about 100
words. Gold are those with an answer (distant supervision, as by the authors), so some of them only
mention it. ``unfiltered-web-dev.json`` names pages that were never published; they are skipped.
Without any of these files, ``biencoder-trivia-dev.json`` is read (`dpr`).

Source: Joshi et al., TriviaQA: A Large Scale Distantly Supervised Challenge Dataset for Reading
Comprehension (2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman_systems.evidence_selection.answers import contains
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets import dpr
from steersman_systems.evidence_selection.sets.files import document, find, needed, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = tuple(
    f"**/{one}.json"
    for one in ("wikipedia-dev", "verified-wikipedia-dev", "web-dev", "verified-web-dev",
                "wikipedia-train", "web-train", "unfiltered-web-dev", "unfiltered-web-train")
)  # fmt: skip
DPR_FILES = ("**/biencoder-trivia-dev.json", "**/biencoder-trivia*train.json")
_PLACES = (("EntityPages", "wikipedia"), ("SearchResults", "web"))
_WORDS = 100
_PAGE_CAP = 5_000_000


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    retrieved = find(folder, *DPR_FILES)
    if retrieved is not None and find(folder, *FILES) is None:
        return dpr.load(retrieved, name, at_most)
    file = needed(folder, "the questions", *FILES)
    found = SetBuilder(name, at_most=at_most)
    evidence = file.parent / "evidence"
    if not evidence.is_dir() and file.parent != folder:
        evidence = file.parent.parent / "evidence"
    for row in document(file).each("Data"):
        _ask(found, row, evidence, file)
    return found.done(file)


def _ask(found: SetBuilder, row: Entry, evidence: Path, file: Path) -> None:
    right = row.inner("Answer")
    answers = (right.text("Value"), *right.texts("Aliases"))
    ids: dict[str, bool] = {}
    for page, text in _passages(row, evidence, file):
        holds = contains(text, answers)
        one = found.candidate(page.where, text, page.text("Title", default=""), gold=holds)
        ids[one] = holds
    question = Question(
        row.name("QuestionId"),
        asked_text(row, "Question"),
        answers=answers,
        gold=tuple(one for one, holds in ids.items() if holds),
        category=right.text("Type", default=""),
    )
    found.ask(row.where, question, pool=list(ids), split=split_of(file))


def _passages(row: Entry, evidence: Path, file: Path) -> Iterator[tuple[Entry, str]]:
    of_wikipedia = "wikipedia" in file.name  # its files list search results without their pages
    for field, place in _PLACES[:1] if of_wikipedia else _PLACES:
        for page in row.each(field):
            if "Filename" not in page.fields:  # a search result that was not fetched
                continue
            at = _at(page, evidence / place)
            if file.name.startswith("unfiltered") and not at.is_file():
                continue
            words = _text(page, at).split()
            for start in range(0, len(words), _WORDS):
                yield page, " ".join(words[start : start + _WORDS])


def _at(page: Entry, pages: Path) -> Path:
    file = (pages / page.text("Filename")).resolve()
    if not file.is_relative_to(pages.resolve()):
        raise page.wrong("Filename", f"the name of a file under evidence/{pages.name}")
    return file


def _text(page: Entry, file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig") as stream:
            return stream.read(_PAGE_CAP).replace("\0", "\ufffd")
    except (OSError, UnicodeDecodeError) as wrong:
        message = f"{page.where}: the page {file} cannot be read: {wrong}"
        raise DataError(f"{message}; unpack the evidence there") from wrong
