"""Parser limits, requests and responses; plain values, exchanged between processes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgspec

from steersman.errors import InputError
from steersman.retrieval.documents.document import MAX_TITLE

_LONGEST_S = 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading; larger input is refused before it is loaded, never truncated.

    Args:
        document_bytes: maximum bytes of a document, compressed and uncompressed, and of its text,
            ≥ 1; default 64 MiB.
        total_bytes: maximum uncompressed bytes per call, ≥ 1; default 1 GiB.
        documents: maximum documents per call, and files of a folder, ≥ 1; default 1,000,000.
        pages: maximum pages of a PDF, ≥ 1; default 5,000.
        parse_s: timeout of the parser per document in seconds, > 0, at most 86,400; default 60.
        parser_bytes: memory limit of the parser, ≥ 268,435,456; default 2 GiB; Linux only.

    Raises:
        InputError: a value is out of range.
    """

    document_bytes: int = 64 << 20
    total_bytes: int = 1 << 30
    documents: int = 1_000_000
    pages: int = 5_000
    parse_s: float = 60.0
    parser_bytes: int = 2 << 30

    def __post_init__(self) -> None:
        least = {"parser_bytes": 256 << 20}
        for name in (field.name for field in fields(self)):
            value, floor = getattr(self, name), least.get(name, 1)
            # Written so that NaN is refused too.
            if name == "parse_s" and not 0 < value <= _LONGEST_S:
                message = f"parse_s is {value!r}; allowed: above 0, at most {_LONGEST_S:,}"
                raise InputError(message)
            if name != "parse_s" and not value >= floor:
                raise InputError(f"{name} is {value!r}; the minimum is {floor:,}")


class ParsedFile(msgspec.Struct):
    """Text of a file and its structure; offsets are in characters of this text.

    Attributes:
        text: extracted text.
        title: title; "" without one.
        sections: start, level and title of each heading, in order.
        pages: start of each page.
        notes: counts of problems, such as pages without text.
    """

    text: str
    title: str = ""
    sections: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    pages: list[int] = msgspec.field(default_factory=list)
    notes: dict[str, int] = msgspec.field(default_factory=dict)


class Refusal(Exception):  # noqa: N818 - an outcome, which its caller turns into a DataError
    """The file cannot be read; the message gives the reason and what to do."""


class ParserRequest(msgspec.Struct):
    """Request to the parser process: one file with its limits.

    Attributes:
        kind: markdown, html or pdf.
        data: text in UTF-8, or PDF bytes.
        pages: maximum pages.
        text_bytes: maximum characters of the text.
        parse_s: maximum processor time in seconds.
    """

    kind: str
    data: bytes
    pages: int
    text_bytes: int
    parse_s: float


class ParserResponse(msgspec.Struct):
    """Response of the parser process: one of both.

    Attributes:
        parsed: parsed file.
        refused: reason of the refusal.
    """

    parsed: ParsedFile | None = None
    refused: str = ""


def one_line(text: str) -> str:
    """Return a heading or title as one line, truncated to the maximum length."""
    return " ".join(text.split())[:MAX_TITLE]
