"""A model answers from what was picked: a short prompt, a bare answer, kept and counted."""

import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import InputError
from steersman.providers.judges.judge import Retry
from steersman_systems.evidence_selection.answer_model import (
    Answerer,
    answering_prompt,
    bare,
    continued_prompt,
    telling,
)
from steersman_systems.evidence_selection.pool import Candidate
from tests.providers.chat_server import chat_server
from tests.providers.scripted import judge_at

PICKED = (
    Candidate("b", "Curie", "Marie Curie was a chemist. It rained. Curie was born in Warsaw.", 1),
    Candidate("a", "Warsaw", "Warsaw is a city. It is large.", 0),
)
QUESTION = "Where was Curie born?"


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


def test_what_is_shown_is_the_order_of_picking_and_the_telling_sentences(server, tmp_path):
    server.asked.clear()
    server.answer = 'The answer is: "Warsaw".\nIndeed.'
    answerer = Answerer(judge_at(server, cache=JudgeCache(tmp_path / "a.sqlite")), sentences=2)
    found = answerer(QUESTION, PICKED)
    assert (found.text, found.failed, found.calls, found.cached) == ("Warsaw", "", 1, 0)
    assert found.shown == (
        ("b", "Curie: Marie Curie was a chemist. Curie was born in Warsaw."),
        ("a", "Warsaw: Warsaw is a city. It is large."),
    )
    body = server.asked[0][2]
    prompt = answering_prompt(QUESTION, [text for _, text in found.shown])
    assert (body["messages"][0]["content"], body["max_tokens"]) == (prompt, 16)
    assert found.context_characters == sum(len(text) for _, text in found.shown)
    again = answerer(QUESTION, PICKED)
    assert (again.text, again.calls, again.cached) == ("Warsaw", 0, 1)
    assert answerer(QUESTION, PICKED[::-1]).calls == 1


def test_who_goes_on_with_a_text_is_shown_how_and_its_answers_are_kept_apart(server, tmp_path):
    server.asked.clear()
    server.answer = " Warsaw\n\nQuestion: And when?"
    judge = judge_at(server, cache=JudgeCache(tmp_path / "a.sqlite"))
    told, shown = (Answerer(judge, continued=one)(QUESTION, PICKED) for one in (False, True))
    assert (told.text, shown.text, shown.calls, shown.shown) == ("Warsaw", "Warsaw", 1, told.shown)
    prompt = server.asked[1][2]["messages"][0]["content"]
    assert prompt == continued_prompt(QUESTION, [text for _, text in shown.shown])
    assert prompt.endswith(f"It is large.\nQuestion: {QUESTION}\nAnswer:")
    assert prompt.count("\nAnswer: ") == 3


def test_nothing_picked_is_answered_by_nothing(server):
    server.asked.clear()
    found = Answerer(judge_at(server))(QUESTION, ())
    assert (found.text, found.failed, server.asked) == ("", "no passages", [])


def test_failures_are_told(server):
    found = Answerer(judge_at(server, "broken", retry=Retry(tries=1)))(QUESTION, PICKED)
    assert found.text == ""
    assert "500" in found.failed
    server.answer = ' "." '
    assert Answerer(judge_at(server))(QUESTION, PICKED).failed == "the model said nothing"
    long = (Candidate("c", "", "word " * 3000, 2),)
    found = Answerer(judge_at(server, max_characters=1000))(QUESTION, long)
    assert "select fewer passages" in found.failed


def test_sentences_that_say_most_of_the_question_stay_in_order():
    text = "It rained. Curie was born there. Warsaw was her home. She left."
    assert telling(text, QUESTION, 1) == "Curie was born there."
    assert telling(text, QUESTION, 3) == "It rained. Curie was born there. Warsaw was her home."
    assert telling("no end", QUESTION, 2) == "no end"
    assert telling("", QUESTION, 2) == ""


@pytest.mark.parametrize(
    ("said", "text"),
    [("Answer: Paris", "Paris"), ("short answer  1928.", "1928"), ("\n\n*yes*\nno", "yes"),
     ("Answering machine", "Answering machine"), ("", "")],
)  # fmt: skip
def test_answers_are_bare(said, text):
    assert bare(said) == text


@pytest.mark.parametrize("wrong", [{"sentences": 0}, {"max_tokens": 0}, {"sentences": 51}])
def test_arguments_out_of_range_are_refused(server, wrong):
    with pytest.raises(InputError, match="allowed: 1 to"):
        Answerer(judge_at(server), **wrong)
