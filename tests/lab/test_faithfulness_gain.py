"""Answers with and without retrieval are held against the same evidence."""

import json
from dataclasses import replace

import pytest

from lab.faithfulness_gain import grounding, write_answers
from steersman.errors import BackendUnavailableError, InputError
from steersman.providers.backend import encoded
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.judged_collections import JudgedCollection, Question

FACTS = {
    "copper": "Copper melts at 1085 degrees.",
    "iron": "Iron melts at 1538 degrees.",
    "tin": "Tin melts at 232 degrees.",
}


class Reader:
    """Stands for a model: it says the first passage, and without one what it makes up."""

    name = "reader"

    def __init__(self, fails=()):
        self.fails = fails

    def complete(self, prompt, *, max_tokens, timeout_s):
        question = prompt.rpartition("Question: ")[2]
        if question in self.fails:
            raise BackendUnavailableError("no answer within 120 s")
        lines = [line[2:] for line in prompt.splitlines() if line.startswith("- ")]
        return f" {lines[0].partition(chr(10))[0]} " if lines else "It melts at 100 degrees."


class Verbatim:
    """Stands for the entailment model: what stands in a text is borne out."""

    name = "verbatim"

    def share(self, statements, texts):
        return sum(any(one in text for text in texts) for one in statements) / len(statements)


def _passage(name, text):
    said = Document(name, text)
    return Passage(name, 0, text, lineage=Lineage(said.sha256, 0, len(text), chunker="whole"))


@pytest.fixture
def collection():
    passages = tuple(_passage(*one) for one in FACTS.items())
    questions = tuple(
        Question(id=f"q-{name}", text=f"When does {name} melt?", gains={name: 1.0})
        for name in FACTS
    )
    return JudgedCollection("metals", passages, questions)


def asked(collection, **changes):
    searcher = Searcher(collection.passages)
    settings = SearchSettings("bm25", k=1)
    return grounding(
        changes.pop("backend", Reader()), searcher, collection, settings, Verbatim(), **changes
    )


def test_retrieval_grounds_what_a_model_makes_up_without(collection, tmp_path):
    counted = []
    found = asked(collection, done=counted.append)
    assert [one.support for one in found.given] == [1.0, 1.0, 1.0]
    assert [one.support for one in found.alone] == [0.0, 0.0, 0.0]
    assert (found.gain, found.pairs, counted) == (1.0, 3, [1, 1, 1])
    assert found.given[0].contexts == ("copper",)
    assert found.given[0].answer == "Copper melts at 1085 degrees."
    # Three that are all alike show little, however far apart the two are.
    assert found.low < 0.0 < found.high == 1.0
    assert str(found).endswith("on 3 of 3 questions; no difference is shown.")
    assert str(replace(found, low=0.1)).endswith("; retrieval grounds the answers.")
    write_answers(tmp_path / "run", collection, found.given, found.alone)
    lines = (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert json.loads(lines[0])["answer"] == "Copper melts at 1085 degrees."
    contexts = (tmp_path / "run" / "contexts.jsonl").read_text().splitlines()
    assert [json.loads(one)["id"] for one in contexts] == list(FACTS)


def test_an_answer_that_failed_is_undefined_and_no_zero(collection):
    found = asked(collection, backend=Reader(fails=["When does iron melt?"]))
    assert (found.pairs, found.given[1].support) == (2, None)
    assert "no answer within" in found.given[1].reason
    assert "on 2 of 3 questions" in str(found)


def test_means_are_of_the_pairs_that_the_gain_is_of(collection):
    found = asked(collection)
    one, *others = found.given
    uneven = replace(found, given=(replace(one, support=None), *others), gain=1.0, pairs=2)
    uneven = replace(uneven, alone=(replace(uneven.alone[0], support=1.0), *uneven.alone[1:]))
    assert "1.000 with retrieval, 0.000 without: +1.000" in str(uneven)


def test_a_question_without_its_passages_is_undefined_and_no_zero(collection):
    questions = (*collection.questions, Question("q-lead", "When does lead melt?", {"lead": 1.0}))
    found = asked(replace(collection, questions=questions))
    assert found.pairs == 3
    for answers in (found.given, found.alone):
        assert (answers[3].support, answers[3].reason) == (None, "no relevant passage is here")


def test_a_backend_that_never_answers_gives_no_number(collection):
    texts = [one.text for one in collection.questions]
    with pytest.raises(
        InputError, match=r"0 questions have verdicts with and without passages \(no answer"
    ):
        asked(collection, backend=Reader(fails=texts))


def test_an_unknown_prompt_is_refused(collection):
    with pytest.raises(InputError, match="prompt is 'fancy'; allowed: cited, none, plain, short"):
        asked(collection, prompt="fancy")


class Whole(Reader):
    """Takes no half characters, as servers do not."""

    def complete(self, prompt, *, max_tokens, timeout_s):
        encoded({"prompt": prompt})
        return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)


def test_a_question_that_cannot_be_sent_is_undefined_and_loses_no_other(collection):
    half = Question("q-half", "When does \ud83d melt?", {"tin": 1.0})
    found = asked(replace(collection, questions=(*collection.questions, half)), backend=Whole())
    assert found.pairs == 3
    for answers in (found.given, found.alone):
        assert answers[3].support is None
        assert "lone surrogate" in answers[3].reason
