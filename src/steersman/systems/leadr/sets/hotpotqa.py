"""HotpotQA and 2WikiMultihopQA: questions that take two passages or more, ten candidates each.

A file is a list (``hotpot_dev_distractor_v1.json``, ``hotpot_dev_fullwiki_v1.json``; 2Wiki's
``dev.json``, whose extra fields are left unread) of ``_id``, ``question``, ``answer``, ``type``,
``context`` as [title, sentences] and ``supporting_facts`` as [title, sentence]. A passage is its
title and its joined sentences.
A supporting title that its own context lacks, as in the full-wiki setting, is gold wherever another
question brings it, and else unfindable.

Source: Yang et al., HotpotQA (2018); Ho et al., Constructing A Multi-hop QA Dataset for
Comprehensive Evaluation of Reasoning Steps (2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.systems.leadr.question import Question
from steersman.systems.leadr.sets.evidence_set import Gathering, asked_text
from steersman.systems.leadr.sets.files import entries, needed

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.systems.leadr.sets.entry import Entry
    from steersman.systems.leadr.sets.evidence_set import EvidenceSet

HOTPOTQA = ("hotpot_dev_distractor*.json", "hotpot_dev*.json", "hotpot_train*.json")
TWO_WIKI = ("dev.json", "*/dev.json", "train.json", "*/train.json")


def load(
    folder: Path, name: str, at_most: int, *, patterns: tuple[str, ...] = HOTPOTQA
) -> EvidenceSet:
    """Read the development questions, or the training ones where there are no others.

    Args:
        folder: with the file.
        name: of the set.
        at_most: unused: all candidates of all questions are read.
        patterns: of the file's name, the best first.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the questions with their passages", *patterns)
    found = Gathering(name, at_most=at_most)
    asked = [(row, _candidates(found, row)) for row in entries(file)]
    known = {title: name for _, own in asked for title, name in own.items()}
    for row, own in asked:
        _ask(found, row, own, known, "train" if "train" in file.name else "dev")
    return found.done(file)


def _candidates(found: Gathering, row: Entry) -> dict[str, str]:
    return {
        title: found.candidate(row.where, "".join(sentences).strip(), title)
        for title, sentences in _pairs(row, "context", list)
    }


def _ask(
    found: Gathering, row: Entry, own: dict[str, str], known: dict[str, str], split: str
) -> None:
    facts = _pairs(row, "supporting_facts", int) if row.fields.get("supporting_facts") else []
    ids = known | own
    answer = row.text("answer", default="")
    question = Question(
        row.name("_id"),
        asked_text(row, "question"),
        answers=(answer,) if answer else (),
        gold=tuple(dict.fromkeys(ids.get(title, f"absent: {title}") for title, _ in facts)),
        category=row.text("type", default=""),
    )
    found.ask(row.where, question, pool=list(own.values()), split=split)


def _pairs(row: Entry, field: str, second: type) -> list[tuple[str, list[str]]]:
    wanted = "a list of [title, sentences]" if second is list else "a list of [title, number]"
    pairs = row.fields.get(field)
    if not isinstance(pairs, list) or not all(_fits(one, second) for one in pairs):
        raise row.wrong(field, wanted)
    return [(title, held) for title, held in pairs]


def _fits(pair: object, second: type) -> bool:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        return False
    if second is list:
        return isinstance(pair[1], list) and all(isinstance(one, str) for one in pair[1])
    return isinstance(pair[1], second)
