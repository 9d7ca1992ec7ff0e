"""PDF parser: text by page; the outline becomes sections."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from steersman.retrieval.documents.parsed import ParsedFile, Refusal, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypdf import PdfReader

_BETWEEN = "\n\n"
_MOST_BOOKMARKS = 10_000


def parse_pdf(data: bytes, pages: int, text_bytes: int) -> ParsedFile:
    """Return the text of a PDF with its pages, title and sections.

    A section begins at the outline's words on their page, else with the page. Scanned pages
    are not read.

    Raises:
        Refusal: it is encrypted, too long, or has no text.
    """
    from pypdf import PdfReader  # noqa: PLC0415 - an extra

    reader = PdfReader(io.BytesIO(data), strict=False)
    # Many files forbid printing with an empty password, which every viewer tries.
    if reader.is_encrypted and not reader.decrypt(""):
        raise Refusal("is encrypted; pass a copy without a password")
    count = len(reader.pages)
    if count > pages:
        raise Refusal(f"has {count:,} pages; the maximum is {pages:,}: split it")
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for page in reader.pages:
        starts.append(length)
        parts.append(page.extract_text().strip())
        length += len(parts[-1]) + len(_BETWEEN)
        if length > text_bytes:
            raise Refusal(f"has more than {text_bytes:,} characters of text, the maximum; split it")
    empty = sum(not part for part in parts)
    if empty == count:
        raise Refusal(
            f"has no readable text on its {count} pages: if it is scanned, run OCR; "
            "if it is broken, repair it"
        )
    text = _BETWEEN.join(parts)
    starts = [min(start, len(text)) for start in starts]
    notes = {"pages_without_text": empty} if empty else {}
    sections = sorted(_sections(reader, text, starts), key=lambda section: section[0])
    return ParsedFile(text, _title(reader), sections, starts, notes)


def _title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata else None
    return one_line(title) if isinstance(title, str) else ""


def _sections(reader: PdfReader, text: str, starts: list[int]) -> Iterator[tuple[int, int, str]]:
    for bookmark, level in _bookmarks(reader):
        page = reader.get_destination_page_number(bookmark)
        title = one_line(str(bookmark.title or ""))
        if not title or page is None or not 0 <= page < len(starts):
            continue
        end = starts[page + 1] if page + 1 < len(starts) else len(text)
        found = text.find(title, starts[page], end)
        yield max(found, starts[page]), level, title


def _bookmarks(reader: PdfReader) -> Iterator[tuple[Any, int]]:
    waiting: list[tuple[Any, int]] = [(reader.outline, 0)]
    for _ in range(_MOST_BOOKMARKS):
        if not waiting:
            return
        entry, level = waiting.pop()
        if isinstance(entry, list):
            waiting += [(one, min(level + 1, 6)) for one in reversed(entry)]
        else:
            yield entry, level
