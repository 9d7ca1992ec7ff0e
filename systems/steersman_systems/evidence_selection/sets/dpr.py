"""Questions with retrieved passages, as DPR publishes Natural Questions and TriviaQA.

``biencoder-nq-dev.json`` and ``biencoder-trivia-dev.json`` are lists of ``question``, ``answers``,
``positive_ctxs``, ``negative_ctxs`` and ``hard_negative_ctxs`` (``title``, ``text``, ``score`` and
``passage_id`` or ``psg_id``). All contexts are candidates. Gold is only the first positive one,
annotated by a person if its score is 1000; the other positives contain the answer as well. The
question id is the set's name with the position in the file.

Source: Karpukhin et al., Dense Passage Retrieval for Open-Domain Question Answering (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, split_of
from steersman_systems.evidence_selection.sets.set_builder import (
    WITHOUT_COLLECTION,
    SetBuilder,
    asked_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

_LISTS = ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs")


def load(file: Path, name: str, at_most: int) -> EvidenceSet:
    """Read all questions of a file with their candidates.

    Raises:
        DataError: an entry is not as the format says.
    """
    found = SetBuilder(name, at_most=at_most)
    for place, row in enumerate(entries(file)):
        ids = {
            one: [
                _kept(found, passage, gold=one == "positive_ctxs" and not number)
                for number, passage in enumerate(row.each(one))
            ]
            for one in _LISTS
        }
        question = Question(
            f"{name}-{place}",
            asked_text(row, "question"),
            answers=tuple(row.texts("answers")),
            gold=tuple(ids["positive_ctxs"][:1]),
        )
        pool = [passage for one in _LISTS for passage in ids[one]]
        found.ask(row.where, question, pool=pool, split=split_of(file))
    return found.done(file, note=WITHOUT_COLLECTION)


def _kept(found: SetBuilder, row: Entry, *, gold: bool) -> str:
    return found.candidate(row.where, row.text("text"), row.text("title", default=""), gold=gold)
