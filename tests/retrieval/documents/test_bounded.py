"""A hostile file costs what was allowed and no more, and the next one is read."""

import signal
import sys
import time

import msgspec
import pytest

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.documents.parsed import Limits, ParserRequest
from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.parser_worker import _outcome, answer
from steersman.retrieval.documents.read import read
from tests.retrieval.documents.pdf_files import pdf

# The parser's own time grows with the square of the depth: this would take it hours.
ENDLESS = b"<div>" * 1_000_000


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_given_up_and_the_next_one_is_read():
    with BoundedParser(Limits(parse_s=1)) as parser:
        read(b"<p>first", name="a.html", parser=parser)
        began = time.monotonic()
        with pytest.raises(DataError, match=r"b\.html was not parsed within 1 s"):
            read(ENDLESS, name="b.html", parser=parser)
        assert time.monotonic() - began < 30
        [document] = read(b"<p>third", name="c.html", parser=parser)
        assert document.text == "third"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS bounds no process's memory")
def test_a_file_that_takes_too_much_memory_is_refused_and_the_next_one_is_read():
    limits = Limits(parser_bytes=256 << 20, document_bytes=60 << 20)
    with BoundedParser(limits) as parser:
        with pytest.raises(DataError, match=r"memory|broken"):
            read(b"<i>x" * 10_000_000, name="b.html", parser=parser, limits=limits)
        assert read(b"<p>next", name="c.html", parser=parser)[0].text == "next"


def test_a_parser_that_died_is_replaced():
    with BoundedParser() as parser:
        read(b"<p>first", name="a.html", parser=parser)
        parser._process.kill()
        parser._process.wait()
        with pytest.raises(DataError, match=r"b\.html made the parser exit"):
            read(b"<p>second", name="b.html", parser=parser)
        assert read(b"<p>third", name="c.html", parser=parser)[0].text == "third"


@pytest.mark.slow
def test_a_process_whose_owner_is_gone_ends_by_itself():
    with BoundedParser() as parser:
        read(b"<p>first", name="a.html", parser=parser)
        work = ParserRequest("html", ENDLESS, 1, 10, 0.5)
        answer(parser._process.stdin, msgspec.msgpack.encode(work))
        assert parser._process.wait(60) == -signal.SIGXCPU


def test_its_process_ends_with_it():
    with BoundedParser() as parser:
        read(b"<p>first", name="a.html", parser=parser)
        process = parser._process
        assert process.poll() is None
    assert process.poll() is not None


@pytest.mark.slow
def test_more_text_than_allowed_is_refused():
    limits = Limits(document_bytes=100)
    with (
        BoundedParser(limits) as parser,
        pytest.raises(DataError, match="more than 100 characters"),
    ):
        parser.parse("pdf", pdf("word " * 50), "a.pdf")


@pytest.mark.parametrize(
    ("kind", "package"),
    [("pdf", "pypdf"), ("html", "selectolax.lexbor"), ("markdown", "markdown_it")],
)
def test_without_the_extra_the_message_says_what_to_install(monkeypatch, kind, package):
    monkeypatch.setitem(sys.modules, package, None)
    refused = _outcome(ParserRequest(kind, b"text", 1, 10, 60)).refused
    assert package.split(".")[0] in refused
    assert how_to_install("rag") in refused
