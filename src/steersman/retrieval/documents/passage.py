"""Passage: a span of a document, with its lineage."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.retrieval.documents.document import MAX_TITLE, check_id, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHA256 = re.compile(r"[0-9a-f]{64}")
# Markdown characters around a heading.
_MARKUP = " \t#=-*_`"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of a passage, exact enough to check a citation.

    Args:
        sha256: SHA-256 of the document's text in UTF-8, 64 hexadecimal digits.
        start: start offset in that text, in characters, ≥ 0.
        end: end offset, exclusive, ≥ `start`.
        headings: headings above the passage, outermost first; each applies to all of it.
        page: first page, from 1; None: the document has no pages.
        chunker: chunking settings, see `Chunking.name`.

    Raises:
        InputError: a value is out of range.
    """

    sha256: str
    start: int
    end: int
    headings: tuple[str, ...] = ()
    page: int | None = None
    chunker: str = ""

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise InputError(f"sha256 is {self.sha256[:70]!r}; it must be 64 hexadecimal digits")
        if not 0 <= self.start <= self.end:
            raise InputError(f"the span is {self.start} to {self.end}; allowed: 0 ≤ start ≤ end")
        if self.page is not None and self.page < 1:
            raise InputError(f"page is {self.page}; the minimum is 1")
        for heading in self.headings:
            check_text(heading, "a heading", MAX_TITLE)


@dataclass(frozen=True, slots=True)
class Passage:
    """Span of a document, the unit of ranking and citation.

    Args:
        doc_id: id of the document.
        chunk: number of the passage in the document, from 0.
        text: exactly the document's text from `lineage.start` to `lineage.end`.
        title: title of the document; "" if it has none.
        meta: meta of the document.
        source: source of the document; "" if unknown.
        lineage: origin in the document.

    Raises:
        InputError: a value is out of range, or text and span have different lengths.
    """

    doc_id: str
    chunk: int
    text: str
    title: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: str = ""
    lineage: Lineage = field(kw_only=True)

    def __post_init__(self) -> None:
        check_id(self.doc_id)
        if self.chunk < 0:
            raise InputError(f"chunk of {self.doc_id!r} is {self.chunk}; the minimum is 0")
        check_text(self.text, f"the text of passage {self.id}")
        check_text(self.title, f"the title of passage {self.id}", MAX_TITLE)
        span = self.lineage.end - self.lineage.start
        if len(self.text) != span:
            raise InputError(
                f"passage {self.id} has {len(self.text)} characters, but its span "
                f"{self.lineage.start} to {self.lineage.end} has {span}"
            )

    @property
    def id(self) -> str:
        """Unique id in the corpus: document id, ``#`` and passage number."""
        return f"{self.doc_id}#{self.chunk}"


def passage_text(passage: Passage) -> str:
    r"""Return the ranked text of a passage: title, headings and text.

    A passage rarely names the subject of its chapter, but the headings do. Headings equal to the
    title or to the passage's first line are omitted.

    >>> lineage = Lineage("0" * 64, 90, 101, ("Manual", "Cooling", "Pumps"))
    >>> passage = Passage("manual", 3, "They hum.\n\n", title="Manual", lineage=lineage)
    >>> passage_text(passage)
    'Manual\nCooling\nPumps\nThey hum.\n\n'
    """
    repeated = {passage.title, passage.text.lstrip().partition("\n")[0].strip(_MARKUP)}
    above = [heading for heading in passage.lineage.headings if heading not in repeated]
    return "\n".join(part for part in (passage.title, *above, passage.text) if part)
