"""BM25 finds by words, and its scores are the formula's."""

import math
import re
import sys
from collections import Counter

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.bm25 import Bm25, words

DOCUMENTS = [
    "Find flights between two cities on a date",
    "getCurrentWeather: the weather of a city, a city's forecast for a date",
    "Play a song",
    "",
    "book_table at a restaurant in a city",
]


def by_the_formula(documents, query, k1, b):
    """A second implementation, written from the source."""
    bags = [Counter(words(text) or [""]) for text in documents]
    lengths = [sum(bag.values()) for bag in bags]
    mean = sum(lengths) / len(lengths)
    scores = []
    for bag, length in zip(bags, lengths, strict=True):
        score = 0.0
        for word in words(query):
            holding = sum(word in other for other in bags)
            if holding and bag[word]:
                idf = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
                score += idf * bag[word] / (bag[word] + k1 * (1 - b + b * length / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["weather in the city", "city city date", "Play", "flights a"])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (1.2, 0.0)])
def test_scores_equal_the_formula(query, k1, b):
    scores = Bm25(DOCUMENTS, k1=k1, b=b).scores(query)
    np.testing.assert_allclose(scores, by_the_formula(DOCUMENTS, query, k1, b), rtol=1e-5)


def test_scores_are_zero_when_no_word_is_known():
    scores = Bm25(DOCUMENTS).scores("Quantenverschränkung ✨")
    assert scores.dtype == np.float32
    assert scores.tolist() == [0.0] * len(DOCUMENTS)


@pytest.mark.parametrize("query", ["", " ", "???", "\x00"])
def test_scores_of_an_empty_query_are_zero(query):
    assert not Bm25(DOCUMENTS).scores(query).any()


@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        ([], {}, "at least one text"),
        *((DOCUMENTS, {"k1": k1}, "allowed: k1") for k1 in (-0.1, float("nan"), float("inf"))),
        *((DOCUMENTS, {"b": b}, "allowed: k1") for b in (-0.1, 1.1, float("nan"))),
    ],
)
def test_bm25_with_bad_arguments_says_what_is_allowed(texts, options, says):
    with pytest.raises(InputError, match=says):
        Bm25(texts, **options)


def test_bm25_says_which_extra_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(DataError, match=re.escape(how_to_install("rag"))):
        Bm25(DOCUMENTS)


def test_words_takes_programmers_names_apart():
    assert words("ChaDri.change_drink getHTTPCode2 naïve 天気") == (
        ["cha", "dri", "change", "drink", "get", "http", "code2", "naïve", "天気"]
    )
