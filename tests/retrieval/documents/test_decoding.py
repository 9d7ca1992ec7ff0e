"""Bytes become text, and what was assumed or lost is said."""

import re
import sys

import pytest

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.documents.text_encoding import decode, is_pdf, storable

WESTERN = "Größe und Maß: die Pumpe läuft – it’s a café where people read. " * 8


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be"]
)
def test_unicode_is_read_with_and_without_a_mark(encoding):
    found = decode(WESTERN.encode(encoding), "a.txt")
    assert (found.text, found.replaced) == (WESTERN, 0)
    assert found.assumed == encoding.endswith("e")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", WESTERN),
        ("latin-1", "Größe"),
        ("cp1251", "Насос шумит, когда вода холодная. " * 9),
        ("koi8_r", "Насос шумит, когда вода холодная. " * 9),
        ("cp1253", "Η αντλία κάνει θόρυβο όταν το νερό είναι κρύο. " * 9),
        ("shift_jis", "水が冷たいとポンプの音がします。" * 9),
        ("gb18030", "水冷的时候水泵会响。请关上阀门。" * 9),
        ("euc_kr", "물이 차가우면 펌프가 울린다. " * 9),
    ],
)
def test_older_encodings_are_guessed_and_the_guess_is_said(encoding, text):
    found = decode(text.encode(encoding), "a.txt")
    assert (found.text, found.assumed, found.replaced) == (text, True, 0)


def test_a_declared_encoding_is_believed_if_the_bytes_fit_it():
    found = decode("Насос".encode("cp1251"), "a.html", "windows-1251")
    assert (found.text, found.assumed) == ("Насос", False)
    # Bytes that are proven UTF-8 are UTF-8 whatever the page says.
    assert decode("Größe".encode(), "a.html", "windows-1251").text == "Größe"


@pytest.mark.parametrize(
    "declared", ["rot13", "utf-7", "unicode_escape", "punycode", "utf-16", "no-such", ""]
)
def test_no_declaration_brings_in_a_codec_that_is_no_encoding(declared):
    found = decode(b"+AGE- \\u0061 caf\xe9", "a.html", declared)
    assert (found.text, found.encoding) == ("+AGE- \\u0061 café", "cp1252")


def test_utf_8_with_few_mistakes_stays_utf_8_and_the_mistakes_are_counted():
    broken = WESTERN.encode()[:300] + b"\xff\xfe" + WESTERN.encode()[300:]
    found = decode(broken, "a.txt")
    assert (found.encoding, found.assumed) == ("utf-8", True)
    assert found.replaced == found.text.count("\ufffd") >= 2


def test_what_an_encoding_has_no_character_for_is_counted():
    found = decode(b"caf\xe9 \x81\x8d", "a.txt")
    assert (found.text, found.replaced) == ("café \ufffd\ufffd", 2)


def test_half_a_character_at_the_end_of_utf_16_is_counted():
    found = decode("Größe".encode("utf-16")[:-1], "a.txt")
    assert (found.text, found.replaced) == ("Größ\ufffd", 1)


def test_nul_and_halves_of_pairs_are_replaced_one_for_one():
    assert decode(b"a\0b", "a.txt").text == "a\ufffdb"
    assert decode(b"a\0b", "a.txt").replaced == 1
    lone = b"\xff\xfe" + "a".encode("utf-16-le") + b"\x00\xd8" + "b".encode("utf-16-le")
    assert decode(lone, "a.txt").text == "a\ufffdb"
    assert storable(f"a{chr(0xDC00)}\0") == ("a\ufffd\ufffd", 2)


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.7\n%and so on",
        b"PK\x03\x04 a document",
        b"\x89PNG\r\n",
        bytes(range(256)) * 8,
        b"\x01\x02\x03\x04\x05\x06" * 50,
    ],
)
def test_binary_data_with_a_texts_name_is_refused(data):
    with pytest.raises(DataError, match=r"a\.txt is not a text file but"):
        decode(data, "a.txt")


@pytest.mark.parametrize(
    ("rest", "is_one"),
    [
        *((b"\0", True), (b"\x0c1 0 obj", True), (b" \t\r\n", True), (b"\x01", True)),
        *((b"%\xe2\xe3", True), (b" 1 0 obj", True), (b"\t12 0 obj<<", True), (b"", True)),
        *((b" is how such a file begins.", False), (b" 1 2 objections", False), (b" 1 0", False)),
        (b", and so on", False),
    ],
)
def test_a_pdf_is_told_by_what_stands_behind_its_version(rest, is_one):
    assert is_pdf(b"%PDF-1.5" + rest) == is_one


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    assert decode(b"caf\xe9", "a.txt").text == "café"
    with pytest.raises(DataError, match=re.escape(how_to_install("rag"))):
        decode(("Насос " * 20).encode("cp1251"), "a.txt")
