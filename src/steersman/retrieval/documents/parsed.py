"""What a parser found in one file: plain values, so that it can come from another process."""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgspec

from steersman.errors import InputError
from steersman.retrieval.documents.document import MAX_TITLE

_LONGEST_S = 86_400


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps that hold before memory is taken; what goes beyond one is refused, never cut off.

    Args:
        document_bytes: of one document, packed or unpacked, and of its text; ≥ 1.
        total_bytes: of all that one call reads, unpacked; ≥ 1.
        documents: that one call may return, and files of a folder; ≥ 1.
        pages: of one PDF; ≥ 1.
        parse_s: seconds that the parser may take for one document, > 0 and at most 86,400.
        parser_bytes: memory that the parser may take (on Linux; elsewhere nothing bounds it),
            ≥ 268,435,456.

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

    parsed: ParsedFile | None = None
    refused: str = ""


def one_line(text: str) -> str:
    """Return a heading or title in one line, at most as long as one may be."""
    return " ".join(text.split())[:MAX_TITLE]
