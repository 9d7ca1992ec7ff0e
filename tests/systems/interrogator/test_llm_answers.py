"""Answers of a language model: a real server beneath, sound and broken."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import BackendAnswerError, BackendError, BackendUnavailableError, InputError
from steersman.providers.chat import ChatBackend
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Heuristic
from steersman_systems.interrogator.investigation import investigate
from steersman_systems.interrogator.llm_answers import LLMAnswerer, parse_answers
from steersman_systems.interrogator.questions import Questions, Template
from steersman_systems.interrogator.state import Situation
from tests.providers.chat_server import chat_server


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


@pytest.fixture(autouse=True)
def sound(server):
    server.mode, server.answer = None, "pizza\nships"
    server.asked.clear()


def _answerer(server, words, mode="ok", *, cache=None, otherwise=None, **given):
    backend = ChatBackend(server.url(mode), "small")
    kept = MemoryCache() if cache is None else cache
    return LLMAnswerer(backend, words, kept, otherwise=otherwise, **given)


def _situation(few, words, text, answerer):
    target = words.target(text).vector
    return Situation.at_start(few, target, answerer.open(few.opening, target))


def test_the_most_similar_proposal_is_kept(server, words, few):
    answerer = _answerer(server, words)
    answer = answerer.answer(few["field"], _situation(few, words, "text about pizza", answerer))
    assert (answer.text, answer.hypothesis) == ("pizza", "text pizza")
    assert answer.similarity == answer.answer_similarity > 0.5
    assert (answer.cache_hit, answer.embedder_calls, answerer.asked) == (False, 2, 1)


def test_what_brings_nothing_leaves_the_hypothesis(server, words, few):
    server.answer = "wholly different words"
    answerer = _answerer(server, words)
    situation = _situation(few, words, "text", answerer)
    answer = answerer.answer(few["field"], situation)
    assert (answer.text, answer.hypothesis) == (None, "text")
    assert answer.similarity == situation.similarity > answer.answer_similarity


def test_question_hypothesis_and_vocabulary_are_told(server, words, few):
    answerer = _answerer(server, words, most=3)
    answerer.answer(few["field"], _situation(few, words, "pizza", answerer))
    prompt = server.asked[-1][2]["messages"][0]["content"]
    for told in ("Which field?", "money; food; sea", "text", "up to 3"):
        assert told in prompt


def test_a_hit_asks_nobody_and_gives_the_same_bits(server, words, few):
    server.answer = "señal única\npizza\n日本"
    cache = MemoryCache()
    first = _answerer(server, words, cache=cache)
    situation = _situation(few, words, "text señal única", first)
    made = first.answer(few["field"], situation)
    words.seen.clear()
    again = _answerer(server, words, cache=cache)
    found = again.answer(few["field"], situation)
    assert (found.text, found.hypothesis) == ("señal única", "text señal única")
    assert (found.similarity, found.answer_similarity) == (made.similarity, made.answer_similarity)
    assert (found.cache_hit, found.embedder_calls, again.asked, words.seen) == (True, 0, 0, [])


def test_another_model_hypothesis_or_number_finds_nothing(server, words, few):
    cache = MemoryCache()
    first = _answerer(server, words, cache=cache)
    situation = _situation(few, words, "pizza", first)
    assert not first.answer(few["field"], situation).cache_hit
    other = LLMAnswerer(ChatBackend(server.url(), "big"), words, cache, otherwise=None)
    fewer = _answerer(server, words, cache=cache, most=2)
    options = OptionAnswerer(words, cache)
    for answerer in (other, fewer, options):
        assert not answerer.answer(few["field"], situation).cache_hit
    assert first.answer(few["field"], situation).cache_hit
    after = situation.after("field", first.answer(few["field"], situation))
    assert not first.answer(few["city"], after).cache_hit


def test_a_damaged_cache_is_asked_anew(server, words, few, caplog):
    cache = MemoryCache()
    answerer = _answerer(server, words, cache=cache)
    situation = _situation(few, words, "pizza", answerer)
    answerer.answer(few["field"], situation)
    (key,) = [key for key, kept in cache._kept.items() if kept.shape[1] != words.size]
    broken = cache.get(key).copy()
    broken[:, words.size] = 255  # no UTF-8 begins so
    for kept in (broken, np.zeros((0, 3), np.float16), np.ones((1, 7), np.float16)):
        cache.put(key, kept)
        assert not answerer.answer(few["field"], situation).cache_hit
    assert caplog.text.count("asking again") == 3


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("silent", "BackendUnavailableError"),
        ("broken", "BackendUnavailableError"),
        ("shape", "BackendAnswerError"),
    ],
)
def test_without_the_model_the_options_answer(server, words, few, caplog, mode, kind):
    caplog.set_level(logging.WARNING)
    options = OptionAnswerer(words, MemoryCache())
    answerer = _answerer(server, words, mode, otherwise=options, timeout_s=0.3)
    situation = _situation(few, words, "text food", answerer)
    answer = answerer.answer(few["field"], situation)
    assert answer == OptionAnswerer(words, MemoryCache()).answer(few["field"], situation)
    assert answerer.fallbacks == {kind: 1}
    assert "field is answered without the language model" in caplog.text


@pytest.mark.parametrize("said", ["", "\n \n", "Here they are:", "1.\n2.\n---"])
def test_saying_nothing_is_an_error_or_a_fallback(server, words, few, said):
    server.answer = said
    strict = _answerer(server, words)
    situation = _situation(few, words, "food", strict)
    with pytest.raises(BackendAnswerError, match="no usable answer"):
        strict.answer(few["field"], situation)
    lenient = _answerer(server, words, otherwise=OptionAnswerer(words, MemoryCache()))
    assert lenient.answer(few["field"], situation).text == "food"


def test_nothing_of_a_fallback_is_kept(server, words, few):
    cache = MemoryCache()
    answerer = _answerer(server, words, cache=cache, otherwise=OptionAnswerer(words, cache))
    situation = _situation(few, words, "text food pizza", answerer)
    server.mode = "shape"
    assert answerer.answer(few["field"], situation).text == "food"
    server.mode = None
    again = answerer.answer(few["field"], situation)
    assert (again.text, again.cache_hit) == ("pizza", False)


def test_none_to_fall_back_to(server, words, few):
    answerer = _answerer(server, words, "silent", timeout_s=0.2)
    situation = _situation(few, words, "food", answerer)
    with pytest.raises(BackendUnavailableError, match="no complete answer"):
        answerer.answer(few["field"], situation)


def test_a_question_without_options_is_answered_or_told(server, words):
    free = Template("free", "What is it?", "broad", "{option}", ())
    questions = Questions("text", (free,))
    answerer = _answerer(server, words, otherwise=OptionAnswerer(words, MemoryCache()))
    situation = _situation(questions, words, "text ships", answerer)
    assert answerer.answer(free, situation).text == "ships"
    assert "could be such as" not in server.asked[-1][2]["messages"][0]["content"]
    server.mode = "broken"
    other = situation.after("free", answerer.answer(free, situation))
    nothing = answerer.answer(free, other)
    assert (nothing.text, nothing.hypothesis) == (None, other.hypothesis)
    assert (nothing.similarity, nothing.embedder_calls) == (other.similarity, 0)
    assert answerer.fallbacks == {"BackendUnavailableError": 1}
    # Who asks the options themselves is told what is wrong.
    with pytest.raises(InputError, match="no options"):
        OptionAnswerer(words, MemoryCache()).answer(free, other)


def test_a_silent_server_ends_no_investigation_over_a_free_question(server, words, few):
    free = Template("free", "What is it?", "broad", "{option}", ())
    questions = Questions("text", (free, *few.templates))
    server.mode = "broken"
    answerer = _answerer(server, words, otherwise=OptionAnswerer(words, MemoryCache()))
    done = investigate(
        words.target("text food"),
        questions=questions,
        chooser=Heuristic(),
        answerer=answerer,
        rng=np.random.default_rng(0),
        stop_at=0.99,
    )
    assert [(step.drawn.action, step.answer.text) for step in done.steps] == [
        ("free", None),
        ("field", "food"),
    ]


def test_another_wording_of_the_question_is_another_question(server, words, few):
    cache = MemoryCache()
    answerer = _answerer(server, words, cache=cache)
    situation = _situation(few, words, "text about pizza", answerer)
    field = few["field"]
    for template, hit in ((field, False), (field, True), (replace(field, question="Why?"), False)):
        assert answerer.answer(template, situation).cache_hit is hit


def test_vectors_of_another_shape_are_told(server, words, few):
    answerer = _answerer(server, words)
    situation = _situation(few, words, "text about pizza", answerer)
    words.encode = lambda texts: np.ones((len(texts), 4), np.float32)
    with pytest.raises(InputError, match="returned vectors of shape"):
        answerer.answer(few["field"], situation)


def test_a_whole_investigation_with_a_server_that_dies_midway(server, words, few):
    options = OptionAnswerer(words, MemoryCache())
    answerer = _answerer(server, words, otherwise=options)

    def answer(prompt):
        server.mode = "broken" if "Which form?" in prompt else None
        return "food\nsea"

    server.answer = answer
    done = investigate(
        words.target("text food soup oslo"),
        questions=few,
        chooser=Heuristic(),
        answerer=answerer,
        rng=np.random.default_rng(0),
        stop_at=0.99,
    )
    assert done.hypothesis == "text food soup oslo"
    assert done.steps[0].answer.text == "food"
    assert answerer.fallbacks["BackendUnavailableError"] == len(done.steps) - 2
    assert isinstance(BackendUnavailableError("x"), BackendError)


def test_a_long_answer_is_cut_at_a_word():
    (cut,) = parse_answers("word " * 40, most=3)
    assert (len(cut), cut[-4:]) == (59, "word")
    assert parse_answers("x" * 500, most=3) == ["x" * 60]


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ("1. red\n2. blue", ["red", "blue"]),
        ("(a) red\n(b) blue", ["red", "blue"]),
        ("- red\n* blue\n• green\n– grey", ["red", "blue", "green", "grey"]),
        ('"red".\n**blue**;\n`green`', ["red", "blue", "green"]),
        ("red\nRED\n red \nblue", ["red", "blue"]),
        ("Sure:\nred", ["red"]),
        ("1. Red: The most obvious one\n2. **Blue**: another", ["Red", "Blue"]),
        ("1. Rome, Oslo, Bonn, and Kyiv", ["Rome", "Oslo", "Bonn", "and Kyiv"]),
        ("Rome, Italy", ["Rome, Italy"]),
        ("3D print\n2024 budget\na cat", ["3D print", "2024 budget", "a cat"]),
        ("red\x00\x1b[31m\u200b", ["red[31m"]),
        ("\U0001f600\n...", []),
        ("{option} {slot}", ["{option} {slot}"]),
        ("\n".join(map(str, range(10))), ["0", "1", "2", "3"]),
    ],
)
def test_whatever_stands_around_answers_is_taken_off(said, answers):
    assert parse_answers(said, most=4) == answers


@pytest.mark.parametrize("most", [0, 65])
def test_how_many_can_be_wanted(server, words, most):
    with pytest.raises(InputError, match="most"):
        _answerer(server, words, most=most)
