"""CORAL: multi-turn questions over web pages, with the passages that each answer cites.

The files are ``passage_corpus.json`` (``ref_id``, ``ref_string``) and conversations (``conv_id``,
``turns`` of ``turn_id``, ``question``, ``response``, ``golden_docs_pids`` and optionally
``golden_rewrite``). Both JSON lists and JSON lines are read, and names with ``new_``.

Source: Cheng et al., CORAL: Benchmarking Multi-turn Conversational Retrieval-Augmentation
Generation (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.files import entries, needed, split_of
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder, asked_text, turns

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.entry import Entry
    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

FILES = (
    "test/*test_conversation.json", "**/*test_conversation.json",
    "train/*train_conversation.json", "**/*train_conversation.json",
)  # fmt: skip


def load(folder: Path, name: str, at_most: int) -> EvidenceSet:
    """Read the test conversations, or the training ones if the set has no others.

    Raises:
        DataError: a file is missing, or an entry is not as the format says.
    """
    file = needed(folder, "the conversations", *FILES)
    talks = [(talk, list(talk.each("turns"))) for talk in entries(file)]
    gold = {one for _, said in talks for turn in said for one in turn.names("golden_docs_pids")}
    found = SetBuilder(name, at_most=at_most, gold=gold)
    for row in entries(needed(folder, "the passages", "**/passage_corpus.json")):
        found.passage(row.where, row.name("ref_id"), row.text("ref_string", default=""))
    for talk, said in talks:
        _ask(found, talk.name("conv_id"), said, split_of(file))
    return found.done(folder)


def _ask(found: SetBuilder, talk: str, said: list[Entry], split: str) -> None:
    before: list[str] = []
    for turn in said:
        text, answer = asked_text(turn, "question"), turn.text("response", default="")
        question = Question(
            f"{talk}_{turn.name('turn_id')}",
            text,
            history=turns(before),
            answers=(answer,),
            gold=tuple(turn.names("golden_docs_pids")),
        )
        rewrite = turn.text("golden_rewrite", default="")
        found.ask(turn.where, question, rewrite=rewrite, split=split, conversation=talk)
        before += [text, answer]
