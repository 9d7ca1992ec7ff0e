"""TriviaQA: quiz questions, each with the pages it was found to be answered on.

``qa/wikipedia-dev.json`` is one object whose ``Data`` lists questions (``QuestionId``,
``Question``, ``Answer`` with ``Value`` and ``Aliases``, ``EntityPages`` with ``Filename`` and
``Title``); the pages are texts under ``evidence/wikipedia``. Nobody marked passages: a page is cut
into passages of about 100 words, and gold are those that hold an answer (distant supervision, as
its authors do), so some of them only mention it.

Source: Joshi et al., TriviaQA: A Large Scale Distantly Supervised Challenge Dataset for Reading
Comprehension (2017).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import DataError
from steersman.systems.leadr.answers import contains
from steersman.systems.leadr.question import Question
from steersman.systems.leadr.sets.evidence_set import Gathering, asked_text
from steersman.systems.leadr.sets.files import document, needed

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.entry import Entry
    from steersman.systems.leadr.sets.evidence_set import EvidenceSet

_FILES = ("wikipedia-dev.json", "verified-wikipedia-dev.json", "wikipedia-train.json")
_WORDS = 100
_PAGE_CAP = 5_000_000


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the development questions, or the training ones where there are no others.

    Args:
        folder: with ``qa`` and ``evidence``.
        name: of the set.
        at_most: unused: all pages of all questions are read.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the questions", *(f"{at}{one}" for one in _FILES for at in ("qa/", "")))
    found = Gathering(name, at_most=at_most)
    for row in document(file).each("Data"):
        _ask(found, row, folder / "evidence" / "wikipedia", file.name)
    return found.done(folder)


def _ask(found: Gathering, row: Entry, pages: Path, file: str) -> None:
    right = row.inner("Answer")
    answers = tuple(dict.fromkeys((right.text("Value"), *right.texts("Aliases"))))
    ids: dict[str, bool] = {}
    for page in row.each("EntityPages"):
        for text in _passages(page, pages):
            one = found.candidate(page.where, text, page.text("Title", default=""))
            ids[one] = contains(text, answers)
    question = Question(
        row.name("QuestionId"),
        asked_text(row, "Question"),
        answers=answers,
        gold=tuple(one for one, holds in ids.items() if holds),
        category=right.text("Type", default=""),
    )
    found.ask(row.where, question, pool=list(ids), split="train" if "train" in file else "dev")


def _passages(page: Entry, pages: Path) -> list[str]:
    file = (pages / page.text("Filename")).resolve()
    if not file.is_relative_to(pages.resolve()):
        raise page.wrong("Filename", "the name of a file under evidence/wikipedia")
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(_PAGE_CAP)
    except (OSError, UnicodeDecodeError) as wrong:
        message = f"{page.where}: the page {file} cannot be read: {wrong}"
        raise DataError(f"{message}; unpack the evidence there") from wrong
    words = text.split()
    return [" ".join(words[at : at + _WORDS]) for at in range(0, len(words), _WORDS)]
