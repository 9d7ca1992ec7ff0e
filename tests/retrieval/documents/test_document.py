"""What a document and a passage may be, and what is ranked of a passage."""

import hashlib

import pytest

from steersman.errors import InputError
from steersman.retrieval.documents.document import Document, Section
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text

SHA = "0" * 64


def passage(text="They hum.", headings=(), **fields):
    return Passage("m", 0, text, lineage=Lineage(SHA, 3, 3 + len(text), headings), **fields)


def test_a_document_knows_the_hash_of_its_text():
    document = Document("m", "Größe")
    assert document.sha256 == hashlib.sha256("Größe".encode()).hexdigest()


@pytest.mark.parametrize("text", ["a\0b", f"a{chr(0xD800)}b", f"a{chr(0xDCFF)}b"])
def test_what_cannot_be_stored_is_refused_everywhere(text):
    for fields in ({"text": text}, {"title": text}, {"source": text}, {"meta": {"a": [text]}}):
        with pytest.raises(InputError):
            Document(**{"doc_id": "m", "text": "", **fields})
    with pytest.raises(InputError):
        Document("m", "", meta={text: 1})
    with pytest.raises(InputError):
        passage(text)
    with pytest.raises(InputError):
        passage(headings=(text,))


@pytest.mark.parametrize("doc_id", ["", " m", "m\n", "a\x85b", "x" * 513, "a\ud800", 7, None])
def test_a_name_that_cannot_be_a_key_is_refused(doc_id):
    with pytest.raises(InputError, match="doc_id"):
        Document(doc_id, "text")


@pytest.mark.parametrize("meta", [{"a": object()}, {"a": "x" * 70_000}, {"a": {1, object()}}])
def test_meta_that_cannot_go_with_every_passage_is_refused(meta):
    with pytest.raises(InputError, match="meta"):
        Document("m", "text", meta=meta)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_meta_with_a_number_that_json_cannot_say_is_refused(number):
    for meta in ({"a": number}, {"a": [{"b": (1.0, number)}]}):
        with pytest.raises(InputError, match="which JSON does not allow"):
            Document("m", "text", meta=meta)
    assert Document("m", "text", meta={"a": 1e300}).meta == {"a": 1e300}


def test_meta_nested_without_end_is_refused():
    meta = {}
    meta["itself"] = meta
    with pytest.raises(InputError, match="meta"):
        Document("m", "text", meta=meta)


@pytest.mark.parametrize("starts", [(3, 1), (-1,), (0, 5)])
def test_pages_and_sections_lie_in_the_text_and_in_order(starts):
    with pytest.raises(InputError, match="pages"):
        Document("m", "text", pages=starts)
    with pytest.raises(InputError):
        Document("m", "text", sections=tuple(Section(start, 1, "a") for start in starts))


@pytest.mark.parametrize("values", [(0, 0, "a"), (0, 7, "a"), (0, 1, "a" * 1001)])
def test_a_section_out_of_range_is_refused(values):
    with pytest.raises(InputError):
        Section(*values)


def test_a_passage_is_as_long_as_its_span():
    with pytest.raises(InputError, match="span"):
        Passage("m", 0, "four", lineage=Lineage(SHA, 0, 5))


@pytest.mark.parametrize("values", [("z" * 64, 0, 1), (SHA, 2, 1), (SHA, -1, 1)])
def test_a_lineage_out_of_range_is_refused(values):
    with pytest.raises(InputError):
        Lineage(*values)


def test_passages_are_values():
    assert passage(meta={"a": 1}) == passage(meta={"a": 1})
    assert len({passage(), passage()}) == 1
    assert passage().id == "m#0"


def test_without_title_and_headings_the_bare_text_is_ranked():
    assert passage_text(passage("  as it is \n")) == "  as it is \n"


@pytest.mark.parametrize("opening", ["## Pumps\n", "Pumps\n=====\n", "**Pumps**\n"])
def test_a_heading_that_the_passage_begins_with_is_not_said_twice(opening):
    text = f"{opening}They hum."
    ranked = passage_text(passage(text, ("Cooling", "Pumps"), title="Manual"))
    assert ranked == f"Manual\nCooling\n{text}"
