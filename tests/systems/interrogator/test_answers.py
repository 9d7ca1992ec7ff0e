"""The answerer keeps the option that comes nearest, and asks the embedder once for each text."""

import logging

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.interrogator.answer_cache import MemoryCache, cache_key, text_key
from steersman_systems.interrogator.answers import OptionAnswerer, similarities
from steersman_systems.interrogator.questions import Template
from steersman_systems.interrogator.state import Situation


@pytest.fixture
def start(few, words):
    """Return a maker of first situations."""

    def make(text, answerer):
        target = words.target(text)
        return Situation.at_start(few, target.vector, answerer.open(few.opening, target.vector))

    return make


def test_the_nearest_option_is_kept(few, words, start):
    answerer = OptionAnswerer(words, MemoryCache())
    situation = start("text food pizza", answerer)
    answer = answerer.answer(few["field"], situation)
    assert (answer.text, answer.hypothesis) == ("food", "text food")
    assert answer.similarity == answer.answer_similarity > situation.similarity
    assert (answer.cache_hit, answer.embedder_calls) == (False, 3)
    # An independent way to the same number, up to the rounding to 16-bit floats.
    exact = words.encode(["text food"])[0] @ situation.target
    assert answer.similarity == pytest.approx(exact, abs=1e-3)


def test_a_hypothesis_that_no_option_betters_stays(few, words, start):
    answerer = OptionAnswerer(words, MemoryCache())
    situation = start("text", answerer)
    answer = answerer.answer(few["city"], situation)
    assert answer.text is None
    assert (answer.hypothesis, answer.similarity) == ("text", situation.similarity)
    assert answer.answer_similarity < answer.similarity
    after = situation.after("city", answer)
    assert (after.change, after.hypothesis) == (0.0, "text")


def test_a_hit_costs_nothing_and_says_the_same_to_the_bit(few, words, start):
    answerer = OptionAnswerer(words, MemoryCache())
    situation = start("text food", answerer)
    missed = answerer.answer(few["field"], situation)
    words.seen.clear()
    found = answerer.answer(few["field"], situation)
    assert words.seen == []
    assert (found.cache_hit, found.embedder_calls) == (True, 0)
    assert (found.similarity, found.hypothesis) == (missed.similarity, missed.hypothesis)
    other = start("text sea", answerer)
    words.seen.clear()
    assert answerer.answer(few["field"], other).text == "sea"
    assert words.seen == []


def test_the_opening_is_embedded_once(few, words):
    answerer = OptionAnswerer(words, MemoryCache())
    target = words.target("text")
    first, second = (answerer.open("text", target.vector) for _ in range(2))
    assert (first.embedder_calls, second.embedder_calls) == (1, 0)
    assert first.similarity == second.similarity == pytest.approx(1.0, abs=1e-3)


def test_a_question_without_options_needs_a_language_model(few, words, start):
    answerer = OptionAnswerer(words, MemoryCache())
    free = Template("why", "Why?", "broad", "{option}", ())
    with pytest.raises(InputError, match=r"no options here; .* use an LLMAnswerer"):
        answerer.answer(free, start("text", answerer))


def test_a_target_of_another_dimension_is_refused(few, words):
    with pytest.raises(InputError, match=r"shape \(3,\); expected \(384,\).*same embedder"):
        OptionAnswerer(words, MemoryCache()).open("text", np.array([1.0, 0.0, 0.0]))


class _Broken:
    name, size = "broken", 4

    def __init__(self, row):
        self.row = row

    def encode(self, texts):
        return np.tile(np.array(self.row, np.float32), (len(texts), 1))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1.0, 2.0], "check the embedder"),
        ([np.nan, 1, 0, 0], "finite"),
        ([1e9, 0, 0, 0], "finite"),
        ([0, 0, 0, 0], "zero vector"),
    ],
)
def test_a_broken_embedder_is_told(row, says):
    cache = MemoryCache()
    with np.errstate(over="ignore"), pytest.raises(InputError, match=says):
        OptionAnswerer(_Broken(row), cache).open("text", np.array([1.0, 0, 0, 0]))


def test_a_damaged_entry_of_the_cache_is_embedded_anew(words, caplog):
    cache = MemoryCache()
    cache.put(text_key("text", words.name), np.ones((7, 2), np.float16))
    answerer = OptionAnswerer(words, cache)
    with caplog.at_level(logging.WARNING):
        answer = answerer.open("text", words.target("text").vector)
    assert (answer.cache_hit, answer.embedder_calls) == (False, 1)
    assert "embedding again" in caplog.text


def test_a_row_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 384)).astype(np.float16)
    target = rng.normal(size=384)
    together = similarities(vectors, target)
    alone = [similarities(vectors[i : i + 1], target)[0] for i in range(12)]
    assert together.tolist() == alone


def test_keys_tell_apart_all_that_makes_an_answer(few):
    topic, filled = few["topic"], {"field": "food"}
    keys = [
        cache_key(topic, "text", "words", filled),
        cache_key(topic, "text", "words", {"field": "sea"}),
        cache_key(topic, "texts", "words", filled),
        cache_key(topic, "text", "other", filled),
        cache_key(few["city"], "text", "words"),
        cache_key(Template("topic", "?", "narrow", "{option}", ("pizza",)), "text", "words"),
        text_key("text", "words"),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == cache_key(topic, "text", "words", {**filled, "other": "slot"})
    assert all(len(key) == 64 for key in keys)


def test_the_cache_in_memory_forgets_what_was_used_longest_ago():
    row = np.zeros((1, 8), np.float16)
    cache = MemoryCache(max_bytes=3 * row.nbytes)
    for key in "abc":
        cache.put(key, row)
    assert cache.get("a") is not None
    cache.put("d", row)
    assert cache.get("b") is None
    assert all(cache.get(key) is not None for key in "acd")
    cache.put("d", row)
    assert len(cache) == 3
    with pytest.raises(InputError, match="0 disables the cache"):
        MemoryCache(max_bytes=-1)
