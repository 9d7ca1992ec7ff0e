"""PDFs give text, pages and outline, or say why not."""

import pytest

from steersman.errors import DataError
from steersman.retrieval.documents.chunks import Chunking, cut
from steersman.retrieval.documents.parsed import Limits
from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.read import read
from tests.retrieval.documents.pdf_files import bomb, pdf, rewritten

THREE = pdf("Pumps hum when cold.", "Chapter Two begins.", "The end.", title="Manual")


def test_text_title_and_pages_are_read(read_one):
    document = read_one(THREE, name="manual.pdf")
    assert document.title == "Manual"
    assert document.text == "Pumps hum when cold.\n\nChapter Two begins.\n\nThe end."
    assert [document.text[start : start + 3] for start in document.pages] == ["Pum", "Cha", "The"]


def test_passages_say_their_page(read_one):
    document = read_one(pdf(*["word " * 15] * 3), name="manual.pdf")
    pages = [passage.lineage.page for passage in cut(document, Chunking(80, 0))]
    assert pages == [1, 2, 3]


def test_the_outline_becomes_sections(read_one):
    def outlined(writer):
        first = writer.add_outline_item(title="Pumps", page_number=0)
        writer.add_outline_item(title="Two begins", page_number=1, parent=first)
        writer.add_outline_item(title="Not on its page", page_number=2)

    document = read_one(rewritten(THREE, outlined), name="manual.pdf")
    found = [(document.text[one.start :][:4], one.level, one.title) for one in document.sections]
    assert found == [
        ("Pump", 1, "Pumps"),
        ("Two ", 2, "Two begins"),
        ("The ", 1, "Not on its page"),
    ]


def test_pages_without_text_are_counted(read_one, caplog):
    document = read_one(pdf("Text.", None), name="manual.pdf")
    assert document.meta == {"reading": {"pages_without_text": 1}}
    assert "pages_without_text" in caplog.text


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pdf(None, None), "scanned"),
        *(
            (broken, r"bad\.pdf (is broken|has no readable text)")
            for broken in (b"%PDF-1.7\n", THREE[:100], b"%PDF-1.7\n" + b"\0\xff" * 500, pdf())
        ),
    ],
    ids=["scanned", "header", "cut", "noise", "no page"],
)
def test_read_of_a_bad_pdf_says_what_is_wrong(parser, data, says):
    with pytest.raises(DataError, match=says):
        read(data, name="bad.pdf", parser=parser)


def test_an_encrypted_one_is_refused_unless_the_password_is_empty(parser, read_one):
    closed = rewritten(THREE, lambda writer: writer.encrypt("secret", algorithm="AES-256"))
    with pytest.raises(DataError, match="encrypted"):
        read(closed, name="closed.pdf", parser=parser)
    open_to_all = rewritten(THREE, lambda writer: writer.encrypt("", "owner", algorithm="AES-256"))
    assert "Pumps" in read_one(open_to_all, name="open.pdf").text


@pytest.mark.slow
def test_too_many_pages_are_refused():
    with (
        BoundedParser(Limits(pages=2)) as small,
        pytest.raises(DataError, match="3 pages; the maximum is 2"),
    ):
        read(THREE, name="long.pdf", parser=small, limits=Limits(pages=2))


@pytest.mark.slow
def test_a_decompression_bomb_is_refused(parser):
    data = bomb(100_000_000)
    assert len(data) < 500_000
    with pytest.raises(DataError, match=r"bomb\.pdf has no readable text"):
        read(data, name="bomb.pdf", parser=parser)
