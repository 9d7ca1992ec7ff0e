"""Files, bytes and folders become documents, or a message that says what to do."""

import bz2
import gzip
import os
import subprocess
import sys
import tracemalloc

import pytest

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.chunks import cut
from steersman.retrieval.documents.parsed import Limits
from steersman.retrieval.documents.read import files, read

BLOCKED = """
import sys
for name in ("charset_normalizer", "markdown_it", "pypdf", "selectolax", "bm25s"):
    sys.modules[name] = None
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.chunks import cut
from steersman.retrieval.documents.read import read
from steersman.retrieval.documents.duplicates import unique
[document] = read("Größe".encode(), name="a.txt")
print(len(unique(cut(document)).kept))
"""


@pytest.mark.slow
def test_importing_and_plain_text_need_no_extra():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, check=True)
    assert done.stdout == b"1\n"


@pytest.mark.parametrize(
    ("name", "data", "text", "title"),
    [
        ("a.txt", b"Pumps hum.", "Pumps hum.", ""),
        ("a.MD", b"# Pumps\n\nhum", "# Pumps\n\nhum", "Pumps"),
        ("a.html", b"<h1>Pumps</h1>hum", "Pumps\n\nhum", "Pumps"),
        ("a.jsonl", b'{"id": "a", "text": "hum"}', "hum", ""),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_name_says_the_kind_packed_or_not(tmp_path, read_one, name, data, text, title, pack):
    path = tmp_path / (name + ".gz" * (pack is gzip.compress))
    path.write_bytes(pack(data))
    document = read_one(path)
    assert (document.text, document.title) == (text, title)
    assert document.source.startswith(str(path))


def test_bytes_without_a_telling_name_are_looked_at(read_one):
    assert read_one(b"<!DOCTYPE html><p>a", doc_id="a").text == "a"
    assert read_one(b"<p>a", doc_id="a").text == "<p>a"
    assert read_one(b"<p>a", doc_id="a", kind="html").text == "a"


def test_what_was_assumed_is_in_the_meta_of_each_passage(read_one, caplog):
    document = read_one(b"caf\xe9 \x81", name="a.txt")
    noted = {"encoding": "cp1252", "assumed": True, "replaced": 1}
    assert cut(document)[0].meta == {"reading": noted}
    assert "cp1252" in caplog.text
    assert read_one("café".encode(), name="a.txt").meta == {}


def test_a_page_may_declare_its_encoding(read_one):
    page = '<meta http-equiv=Content-Type content="text/html; charset=windows-1251"><p>Насос'
    assert read_one(page.encode("cp1251"), name="a.html").text == "Насос"


XHTML = '<html><body><script src="a.js"/><p>Zażółć</p></body></html>'
DECLARATION = '<?xml version="1.0" encoding="ISO-8859-2"?>'


def test_a_page_in_xml_is_read_by_its_rules_and_in_the_encoding_that_it_declares(read_one):
    for name in ("a.xhtml", "a.html"):
        found = read_one((DECLARATION + XHTML).encode("iso-8859-2"), name=name)
        assert (found.text, dict(found.meta)) == ("Zażółć", {})
    assert read_one(XHTML.encode(), name="a.xhtml.gz").text == "Zażółć"


@pytest.mark.parametrize(
    "text",
    ["GIF89a is a format of pictures.", "BZhevsky wrote it.", "%PDF-1.7 begins such a file."],
)
def test_a_text_that_begins_as_a_format_is_called_is_a_text(read_one, text):
    for said in ({"name": "a.txt"}, {"doc_id": "a"}):
        assert read_one(text.encode(), **said).text == text


NO_TEXT = r"a\.txt is not a text file but (a picture|.*compressed|a PDF)"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GIF89a\x01\x00\x01\x00", NO_TEXT),
        (bz2.compress(b"text"), NO_TEXT),
        (bz2.compress(b""), NO_TEXT),
        (b"%PDF-1.4\r1 0 obj", NO_TEXT),
        (b"%PDF-1.7", r"a\.txt is not a text file but a PDF"),
    ],
)
def test_read_of_another_format_as_text_names_the_format(data, says):
    with pytest.raises(DataError, match=says):
        read(data, name="a.txt")


@pytest.mark.parametrize("data", [b"", b" \n\t", b"\xef\xbb\xbf", b"<html></html>"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html", "a.pdf"])
def test_an_empty_file_is_refused(parser, name, data):
    if name in {"a.txt", "a.md"} and b"html" in data:
        return
    with pytest.raises(DataError, match=r"empty|no text|broken"):
        read(data, name=name, parser=parser)


def test_an_enormous_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "a.txt").open("wb") as sparse:
        sparse.truncate(10**10)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"10,000,000,000 bytes; the maximum"):
        read(tmp_path / "a.txt")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.pdf.gz"])
def test_a_decompression_bomb_is_refused_before_it_takes_memory(name):
    packed = gzip.compress(b" " * 100_000_000, 9)
    limits = Limits(document_bytes=1_000_000, total_bytes=1_000_000)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"more than 1,000,000 bytes"):
        read(packed, name=name, limits=limits)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda data: data[:20] + b"\xff" * 30])
@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_damaged_gzip_is_refused(name, damage):
    packed = gzip.compress(b'{"id": 1, "text": "%s"}\n' % os.urandom(200).hex().encode())
    with pytest.raises(DataError, match=r"damaged"):
        read(damage(packed), name=name)


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", tmp_path / "missing.txt"):
        with pytest.raises(DataError, match=r"not a regular file|cannot be read"):
            read(path)


def test_an_unknown_ending_is_refused_unless_the_kind_is_given(tmp_path):
    (tmp_path / "a.docx").write_text("text")
    with pytest.raises(DataError, match=r"'\.docx"):
        read(tmp_path / "a.docx")
    assert read(tmp_path / "a.docx", kind="text")[0].text == "text"


def test_a_folder_is_read_with_all_below_it_in_the_order_of_names(tmp_path, parser):
    for name in ("b.txt", "a/z.md", "a/b.html", ".git/c.txt", "a/.hidden.md", "picture.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [one.doc_id for one in read(tmp_path, parser=parser)] == ["a/b.html", "a/z.md", "b.txt"]
    assert [path.name for path in files(tmp_path, include=["*.md"])] == ["z.md"]
    assert [path.name for path in files(tmp_path, include=["a/*", "*.txt"])] == [
        "b.html",
        "z.md",
        "b.txt",
    ]


def test_of_a_folder_with_files_that_cannot_be_read_nothing_is(tmp_path):
    (tmp_path / "good.txt").write_text("text")
    (tmp_path / "bad.txt").write_bytes(b"\x01" * 99)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="2 files") as caught:
        read(tmp_path)
    assert "bad.txt is not a text file" in str(caught.value)
    assert "empty.txt is empty" in str(caught.value)


SAME = dict.fromkeys(("a.jsonl", "b.jsonl"), '{"id": "same", "text": "x"}')
THREE = dict.fromkeys(("a.txt", "b.txt", "c.txt"), "text" * 10)


@pytest.mark.parametrize(
    ("contents", "options", "says"),
    [
        (SAME, {}, r"b\.jsonl:1: the id 'same' is already used by .*a\.jsonl:1"),
        (THREE, {"limits": Limits(documents=2)}, "more than 2 files"),
        (THREE, {"limits": Limits(total_bytes=100)}, "more than 100 characters"),
        ({}, {}, r"\*\.md"),
    ],
)
def test_read_of_a_bad_folder_says_what_is_wrong(tmp_path, contents, options, says):
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=says):
        read(tmp_path, **options)


@pytest.mark.parametrize(
    ("folder", "options", "error", "says"),
    [
        ("missing", {}, DataError, "folder not found"),
        ("", {"include": "*.md"}, InputError, "list of patterns"),
        ("", {"include": [""]}, InputError, "list of patterns"),
    ],
)
def test_files_with_a_bad_folder_or_pattern_says_what_is_wrong(
    tmp_path, folder, options, error, says
):
    with pytest.raises(error, match=says):
        files(tmp_path / folder, **options)


def test_a_name_that_is_no_unicode_is_read(tmp_path):
    path = os.fsencode(tmp_path) + b"/gr\xf6\xdfe.txt"
    try:
        with open(path, "wb") as file:  # noqa: PTH123 - Path takes no bytes
            file.write(b"text")
    except OSError:
        pytest.skip("this file system takes no such name")
    [document] = read(tmp_path)
    assert document.doc_id == "gr\ufffd\ufffde.txt"


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": "a.txt"},
        {"source": b"a"},
        {"source": b"a", "doc_id": " a"},
        {"source": b"a", "doc_id": "a", "kind": "docx"},
        {"source": b"{}", "doc_id": "a", "kind": "jsonl"},
        {"source": b"a", "doc_id": "a", "include": ["*.md"]},
    ],
)
def test_arguments_that_do_not_go_together_are_refused(arguments):
    with pytest.raises(InputError):
        read(arguments.pop("source"), **arguments)


@pytest.mark.slow
def test_limits_out_of_range_are_refused():
    for name in ("document_bytes", "total_bytes", "documents", "pages", "parse_s", "parser_bytes"):
        with pytest.raises(InputError, match=name):
            Limits(**{name: 0})
    for parse_s in (float("nan"), float("inf"), 1e12):
        with pytest.raises(InputError, match="parse_s"):
            Limits(parse_s=parse_s)
    with pytest.raises(InputError, match="pages"):
        Limits(pages=float("nan"))
