"""JSON lines: all of them, or none and the line that is wrong."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import DataError
from steersman.retrieval.documents.parsed import Limits
from steersman.retrieval.documents.read import read

GOOD = b'{"id": "a", "text": "one"}\n'


def lines(data, **limits):
    return read(data, name="x.jsonl", limits=Limits(**limits))


@pytest.mark.parametrize("key", ["doc_id", "id", "_id"])
def test_each_name_of_the_id_is_known(key):
    [document] = lines(json.dumps({key: "a", "text": "b", "title": "c"}).encode())
    assert (document.doc_id, document.text, document.title) == ("a", "b", "c")


def test_other_fields_join_the_meta_and_a_source_is_taken():
    row = {"id": 7, "text": "b", "title": None, "year": 1951, "meta": {"lang": "de"}, "source": "u"}
    [document] = lines(json.dumps(row).encode())
    assert (document.doc_id, document.title, document.source) == ("7", "", "u")
    assert document.meta == {"year": 1951, "lang": "de"}


def test_empty_lines_a_mark_and_line_separators_in_texts_are_no_trouble():
    rows = (
        b"\xef\xbb\xbf"
        + GOOD
        + b"\n  \r\n"
        + json.dumps({"id": "b", "text": "x\u2028y\x85z"}, ensure_ascii=False).encode()
    )
    assert [(one.doc_id, one.source) for one in lines(rows)] == [
        ("a", "x.jsonl:1"),
        ("b", "x.jsonl:4"),
    ]


def test_an_empty_text_is_a_document_for_collections_have_such():
    assert lines(b'{"id": "a", "text": ""}')[0].text == ""


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"id": "b", "text": "half', "invalid JSON"),
        (b'["b"]', "must be an object"),
        (b'{"text": "x"}', "id missing"),
        (b'{"id": 1.5, "text": "x"}', "id as float"),
        (b'{"id": true, "text": "x"}', "id as bool"),
        (b'{"id": "", "text": "x"}', "doc_id"),
        (b'{"id": "b"}', "text missing"),
        (b'{"id": "b", "text": null}', "NoneType"),
        (b'{"id": "b", "text": "x", "title": 3}', "title"),
        (b'{"id": "b", "text": "x", "meta": [1]}', "meta is list"),
        (b'{"id": "b", "text": "\xff"}', "not UTF-8"),
        (b'{"id": "b", "text": "x", "deep": ' + b"[" * 100_000, "nested too deep"),
        (b'{"id": "b", "text": "x", "n": ' + b"9" * 5000 + b"}", "line 2"),
        (b'{"id": "b", "text": "x", "n": NaN}', "holds nan, which JSON does not allow"),
        (b'{"id": "b", "text": "x", "n": 1e999}', "holds inf, which JSON does not allow"),
        (b'{"id": "a", "text": "x"}', "already used in line 1"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_returned(line, what):
    with pytest.raises(DataError, match=r"x\.jsonl, line 2") as caught:
        lines(GOOD + line + b"\n" + GOOD)
    assert what in str(caught.value)


def test_what_cannot_be_stored_is_replaced_counted_and_told(caplog):
    [document] = lines(b'{"id": "a", "text": "x\\u0000y\\ud800", "k\\u0000": ["\\udc00"]}')
    assert document.text == "x\ufffdy\ufffd"
    assert document.meta == {"k\ufffd": ["\ufffd"], "reading": {"replaced": 4}}
    assert "replaced 4 characters" in caplog.text


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        ({"document_bytes": 20}, "line 1: more than 20 bytes"),
        ({"total_bytes": 60}, "60 bytes"),
        ({"documents": 2}, "more than 2 documents"),
    ],
)
def test_limits_hold(limits, what):
    rows = b"".join(b'{"id": "%d", "text": "x"}\n' % number for number in range(3))
    with pytest.raises(DataError) as caught:
        lines(gzip.compress(rows), **limits)
    assert what in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\n\n"])
def test_a_file_without_a_line_is_refused(data):
    with pytest.raises(DataError, match="is empty"):
        lines(data)


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.text())
def test_whatever_json_says_is_read_or_refused_with_its_line(row, text):
    try:
        [document] = lines(json.dumps({**row, "id": "a", "text": text}).encode())
    except DataError as error:
        assert "line 1" in str(error)  # noqa: PT017 - both outcomes are right, each with its own check
    else:
        assert len(document.text) == len(text)
