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


ENDLESS = {}
ENDLESS["itself"] = ENDLESS


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        *(
            ("doc_id", doc_id, "doc_id")
            for doc_id in ("", " m", "m\n", "a\x85b", "x" * 513, "a\ud800", 7, None)
        ),
        *(
            ("meta", meta, "meta")
            for meta in ({"a": object()}, {"a": "x" * 70_000}, {"a": {1, object()}}, ENDLESS)
        ),
        *(("pages", starts, "pages") for starts in ((3, 1), (-1,), (0, 5))),
        *(
            ("sections", tuple(Section(at, 1, "a") for at in starts), "sections")
            for starts in ((3, 1), (0, 5))  # out of order, past the end
        ),
    ],
)
def test_document_with_a_bad_field_is_refused(field, value, says):
    with pytest.raises(InputError, match=says):
        Document(**{"doc_id": "m", "text": "text", field: value})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_meta_with_a_number_that_json_cannot_say_is_refused(number):
    for meta in ({"a": number}, {"a": [{"b": (1.0, number)}]}):
        with pytest.raises(InputError, match="which JSON does not allow"):
            Document("m", "text", meta=meta)
    assert Document("m", "text", meta={"a": 1e300}).meta == {"a": 1e300}


@pytest.mark.parametrize("values", [(-1, 1, "a"), (0, 0, "a"), (0, 7, "a"), (0, 1, "a" * 1001)])
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
