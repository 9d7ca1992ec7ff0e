"""What a parser found in one file: plain values, so that it can come from another process."""

from __future__ import annotations

import msgspec

from steersman.retrieval.documents.document import MAX_TITLE


class Parsed(msgspec.Struct):
    """The text of a file and its structure; offsets are into exactly this text, in characters.

    Attributes:
        text: as it was extracted.
        title: "" if there is none.
        sections: start, level and title of each heading, in their order.
        pages: where each page begins.
        notes: what a reader should know, such as how many pages have no text.
    """

    text: str
    title: str = ""
    sections: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    pages: list[int] = msgspec.field(default_factory=list)
    notes: dict[str, int] = msgspec.field(default_factory=dict)


class Refusal(Exception):  # noqa: N818 - an outcome, which its caller turns into a DataError
    """A file that cannot be read; the message says why, and what to do."""


class Work(msgspec.Struct):
    """One file for the parser's process.

    Attributes:
        kind: markdown, html or pdf.
        data: in UTF-8, or of a PDF as it is.
        pages: the most pages.
        text_bytes: the most characters of its text.
        parse_s: the most seconds of processor time.
    """

    kind: str
    data: bytes
    pages: int
    text_bytes: int
    parse_s: float


class Outcome(msgspec.Struct):
    """What became of it: one of the two.

    Attributes:
        parsed: what was found.
        refused: why nothing was.
    """

    parsed: Parsed | None = None
    refused: str = ""


def one_line(text: str) -> str:
    """Return a heading or title in one line, at most as long as one may be."""
    return " ".join(text.split())[:MAX_TITLE]
