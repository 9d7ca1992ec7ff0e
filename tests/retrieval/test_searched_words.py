"""Names and scripts are found as people type them, and what was measured stays as it was."""

from __future__ import annotations

import gc
import tracemalloc
import unicodedata

import numpy as np
import pytest

from steersman.retrieval import loaded_corpus as opening
from steersman.retrieval.bm25 import query_terms, words
from steersman.retrieval.documents.chunks import cut
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import passage_text
from steersman.retrieval.query_words import searched_words
from steersman.retrieval.results import SearchSettings
from steersman.retrieval.searcher import Searcher, passage_index
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
        ("ปั๊ม ก", ["ปั๊ม", "ก"]),
        ("ລາວ", ["ລາ", "າວ"]),
        ("ខ្មែរ", ["ខ្មែ", "មែរ"]),
        ("မြန်မာ", ["မြန်", "န်မာ"]),
        ("水\ufe00泵 葛\U000e0100飾", ["水", "泵", "水泵", "葛", "飾", "葛飾"]),
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


@pytest.mark.parametrize(("query", "place"), [("ปั๊มน้ำ", 0), ("เสียงดัง", 0), ("ร้อน", 1), ("ປະເທດ", 2)])
def test_a_word_is_found_within_a_sentence_that_has_no_spaces(query, place):
    pytest.importorskip("bm25s")
    texts = ["ปั๊มน้ำเสียงดังเพราะลูกปืนสึก", "เครื่องยนต์ร้อนเกินไป", "ສະບາຍດີປະເທດລາວ"]
    index = passage_index(texts, searched_words)
    assert index.ranked(query, 3).positions.tolist() == [place]


@pytest.mark.parametrize("script", ["Chinese", "English"])
@pytest.mark.parametrize("looked_at", [100, 10_000])
def test_the_memory_of_a_corpus_is_reckoned_by_its_script(script, looked_at, monkeypatch):
    pytest.importorskip("bm25s")
    monkeypatch.setattr(opening, "_LOOKED_AT", looked_at)
    rng = np.random.default_rng(0)
    chosen = (rng.pareto(0.8, (800, 300)) * 30).astype(int) % 3_000
    if script == "Chinese":
        texts = ["".join(chr(0x4E00 + number) for number in row) for row in chosen.tolist()]
    else:
        texts = [" ".join(f"word{number}" for number in row[:80]) for row in chosen.tolist()]
    passages = [one for n, text in enumerate(texts) for one in cut(Document(f"d{n}", text))]
    gc.collect()
    tracemalloc.start()
    index = passage_index([passage_text(one) for one in passages], searched_words)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    rest = sum(len(one.text.encode("utf-16")) for one in passages) + 1_200 * len(passages)
    assert index.ranked(texts[5][:9], 1).positions.tolist() != []
    assert 0.9 * taken < opening._size(passages) < 2.0 * taken + 1.2 * rest


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
