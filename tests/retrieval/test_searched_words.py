"""Names and scripts are found as people type them, and what was measured stays as it was."""

from __future__ import annotations

import unicodedata

import pytest

from steersman.retrieval import SearchSettings, words
from steersman.retrieval.documents import Document, cut
from steersman.retrieval.searched_words import searched_words
from steersman.retrieval.searcher import Searcher, passage_index
from steersman.retrieval.terms import query_terms
from tests.retrieval.corpora import corpora

NAMES = [
    "JavaScript runs in browsers.",
    "PostgreSQL keeps rows.",
    "An iPhone rings.",
    "Both APIs return PDFs of URLs.",
    "Our GPUs are idle.",
    "Call getUserInfo or get_HTTPStatus.",
]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        *(("javascript", 0), ("JavaScript", 0), ("script", 0), ("postgresql", 1), ("iphone", 2)),
        *(("api", 3), ("apis", 3), ("pdf", 3), ("pdfs", 3), ("URL", 3), ("url", 3), ("gpu", 4)),
        *(("gpus", 4), ("GPU", 4), ("getuserinfo", 5), ("user info", 5), ("http status", 5)),
    ],
)
def test_a_name_is_found_whole_and_in_parts(query, place):
    pytest.importorskip("bm25s")
    index = passage_index(NAMES, searched_words)
    assert index.ranked(query, 3).positions.tolist() == [place]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("It hums, v2 of it!", ["it", "hums", "v2", "of", "it"]),
        ("NASA OSs Is APIsFoo", ["nasa", "os", "oss", "is", "api", "apis", "foo", "apisfoo"]),
        ("getHTTPCode2", ["get", "http", "code2", "gethttpcode2"]),
        ("Krei\u00adsel\u200bpumpe ｐｕｍｐ ﬁt", ["kreiselpumpe", "pump", "fit"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("東京tower", ["東", "京", "東京", "tower"]),
        ("泵", ["泵"]),
    ],
)
def test_words_of_every_script_stay_whole(text, found):
    assert searched_words(text) == found


def test_the_same_letters_are_the_same_however_they_are_composed():
    text = "Der Kühlschrank ist naïve."
    apart = unicodedata.normalize("NFD", text)
    assert searched_words(apart) == searched_words(text) == words(text)


def test_a_query_finds_one_character_of_a_text_without_spaces():
    pytest.importorskip("bm25s")
    index = passage_index(["泵在运行时会嗡嗡作响。", "阀门打开。"], searched_words)
    assert index.ranked("泵", 3).positions.tolist() == [0]
    assert index.ranked("打开阀门", 3).positions.tolist() == [1]


async def test_corpora_are_searched_so(database, tenant):
    pytest.importorskip("bm25s")
    corpus = corpora(database, tenant.id)
    await corpus.add("names", [Document("a", one) for one in NAMES[:1]], embedder="none")
    opened = await corpus.open("names")
    found = opened.searcher.search("javascript", SearchSettings("bm25"))
    assert [hit.passage.doc_id for hit in found.hits] == ["a"]


def test_what_was_recorded_is_taken_apart_as_it_was():
    """Recordings of the assistant and published figures were made with these."""
    pytest.importorskip("bm25s")
    text = "PDFs of JavaScript हिन्दी"
    assert words(text) == ["pd", "fs", "of", "java", "script", "ह", "न", "द"]
    assert query_terms("JavaScript APIs") == ["java", "script", "ap"]
    passages = cut(Document("a", "JavaScript"))
    assert Searcher(passages).search("javascript", SearchSettings("bm25")).hits == ()
