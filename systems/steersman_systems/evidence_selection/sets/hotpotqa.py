"""HotpotQA and 2WikiMultihopQA: questions that need two or more passages, with ten candidates.

A file is a list (``hotpot_dev_distractor_v1.json``, ``hotpot_dev_fullwiki_v1.json``; 2Wiki's
``dev.json``) of ``_id``, ``question``, ``answer``, ``type``, ``context`` as [title, sentences] and
``supporting_facts`` as [title, sentence]. Other fields are ignored. A passage is its title and its
joined sentences. The column format (``id``, ``context`` of ``title`` and ``sentences``,
``supporting_facts`` of ``title`` and ``sent_id``) is read as well.

In the full-wiki setting, a context may lack a supporting title. It is gold if another question has
it, and else unfindable.

Source: Yang et al., HotpotQA (2018); Ho et al., Constructing A Multi-hop QA Dataset for
Comprehensive Evaluation of Reasoning Steps (2020).
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, needed, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

HOTPOTQA = (
    "**/hotpot*dev_distractor*.json", "**/hotpot*dev*.json", "**/hotpot*valid*.json",
    "**/hotpot*train*.json",
)  # fmt: skip
TWO_WIKI = (
    "dev.json", "**/data_ids_april7/dev.json", "**/dev.json", "**/*2wiki*dev*.json",
    "**/train.json",
)  # fmt: skip
"""The authors' last edition (April 2021) comes before the earlier ones."""


def load(
    folder: Path, name: str, at_most: int, *, patterns: tuple[str, ...] = HOTPOTQA
) -> EvidenceSet:
    """Read the development questions, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the questions with their passages", *patterns)
    found = SetBuilder(name, at_most=at_most)
    asked = []
    for row in entries(file):
        titles = _supporting(row)
        asked.append((row, titles, _candidates(found, row, titles)))
    known = {title: name for *_, own in asked for title, name in own}
    for row, titles, own in asked:
        _ask(found, row, titles, own, known, split_of(file))
    return found.done(file)


def _supporting(row: Entry) -> list[str]:
    if not row.fields.get("supporting_facts"):  # absent from test files
        return []
    return [title for title, _ in _pairs(row, "supporting_facts", "sent_id", int)]


def _candidates(found: SetBuilder, row: Entry, gold: list[str]) -> list[tuple[str, str]]:
    return [
        (
            title,
            found.candidate(row.where, "".join(sentences).strip(), title, gold=title in gold),
        )
        for title, sentences in _pairs(row, "context", "sentences", list)
    ]


def _ask(
    found: SetBuilder,
    row: Entry,
    titles: list[str],
    own: list[tuple[str, str]],
    known: dict[str, str],
    split: str,
) -> None:
    ids = ChainMap(dict(own), known)  # avoids a copy of all titles per question
    question = Question(
        row.name("_id" if "_id" in row.fields else "id"),
        asked_text(row, "question"),
        answers=(row.text("answer", default=""),),
        gold=tuple(ids.get(title, f"absent: {title}") for title in titles),
        category=row.text("type", default=""),
    )
    found.ask(row.where, question, pool=[one for _, one in own], split=split)


def _pairs(row: Entry, field: str, column: str, second: type) -> list[tuple[str, list[str]]]:
    """Return pairs of title and sentences, or title and number, from either format."""
    pairs: Any = row.fields.get(field)
    if isinstance(pairs, dict):
        columns: list[Any] = [pairs.get("title"), pairs.get(column)]
        alike = all(isinstance(one, list) for one in columns) and len({*map(len, columns)}) == 1
        pairs = [list(pair) for pair in zip(*columns, strict=True)] if alike else None
    if not isinstance(pairs, list) or not all(_fits(one, second) for one in pairs):
        wanted = "sentences" if second is list else "number"
        raise row.wrong(field, f"a list of [title, {wanted}]")
    return [(title, held) for title, held in pairs]


def _fits(pair: object, second: type) -> bool:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        return False
    if second is list:
        return isinstance(pair[1], list) and all(isinstance(one, str) for one in pair[1])
    return isinstance(pair[1], second)
