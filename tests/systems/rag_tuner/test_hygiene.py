"""A question is asked once, and stands on one side."""

from dataclasses import replace

import pytest

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage
from steersman_systems.rag_tuner.hygiene import (
    check_leakage,
    cleaned,
    conversations,
    leakage_said,
    ready_to_split,
    repeated,
)
from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question

LONG = "which pressure must the second valve of the cold pump hold while the plant is idle"


def collection(*asked):
    said = Document("p", "text")
    passage = Passage("p", 0, "text", lineage=Lineage(said.sha256, 0, 4, chunker="whole"))
    questions = (
        Question(id=name, text=text, gains={"p": 1.0}, split=split, history=tuple(history))
        for name, text, split, *history in asked
    )
    return JudgedCollection("made up", (passage,), tuple(questions))


def test_the_same_words_are_the_same_question_whatever_their_case():
    made = collection(("a", "Who is it?", "train"), ("b", "who IS it", "train"), ("c", "Why?", ""))
    (found,) = repeated(made)
    assert (found.question, found.repeats, found.similarity) == ("b", "a", 1.0)
    assert not found.leaks
    assert [one.id for one in cleaned(made).questions] == ["a", "c"]
    check_leakage(made)


def test_of_two_on_both_sides_the_one_that_judges_stays():
    made = collection(("a", LONG, "train"), ("b", f"{LONG} today", "test"), ("c", "Why?", "test"))
    (found,) = repeated(made)
    assert (found.question, found.repeats, found.splits) == ("a", "b", ("train", "test"))
    assert found.leaks
    assert 0.8 <= found.similarity < 1.0
    with pytest.raises(DataError, match=r"1 questions are on both sides.*'a' \(train\) and 'b'"):
        check_leakage(made)
    check_leakage(cleaned(made))


def test_turns_of_one_conversation_are_not_alike_for_what_went_before():
    made = collection(
        ("a", "And then?", "train", LONG), ("b", "And why?", "test", LONG),
        ("c", "And why?", "test", LONG),
    )  # fmt: skip
    assert [(one.question, one.repeats) for one in repeated(made)] == [("c", "b")]


def test_questions_that_share_some_words_are_not_alike():
    made = collection(("a", "Who wrote the book?", "train"), ("b", "Who read the book?", "test"))
    assert not repeated(made)
    with pytest.raises(InputError, match="near is 2"):
        repeated(made, near=2)


def test_what_is_ready_to_split_says_what_was_left_out():
    made = collection(
        ("a", LONG, "train"), ("b", f"{LONG} today", "test"), ("c", "Why?", "test"),
        ("d", "why", "test"),
    )  # fmt: skip
    clean, about = ready_to_split(made)
    assert [one.id for one in clean.questions] == ["b", "c"]
    check_leakage(clean)
    said = leakage_said({"embedder": "x", **about})
    assert "2 that repeat another" in said
    assert "1 of them stood on another side" in said
    assert "was not checked" in leakage_said({"embedder": "x", "repeats_left_out": 2})
    assert "conversation" not in said
    older = {name: about[name] for name in about if name != "conversations"}
    assert "Turns of one conversation may" in leakage_said(older)


def test_turns_belong_together_by_name_or_by_how_they_began():
    made = collection(
        ("a", "Who wrote it?", "train"), ("b", "And when?", "train", "Who wrote it?", "Mary."),
        ("c", "And where?", "test", "Who wrote it?", "Mary.", "And when?"), ("d", "Why?", "test"),
    )  # fmt: skip
    assert conversations(made.questions) == ("Who wrote it?",) * 3 + ("",)
    clean, about = ready_to_split(made)
    assert about["conversations"] == 1
    assert "Each of 1 conversations stands on one side" in leakage_said(about)
    named = [
        replace(one, conversation=name) for one, name in zip(clean.questions, "xyxy", strict=True)
    ]
    assert conversations(named) == tuple("xyxy")
