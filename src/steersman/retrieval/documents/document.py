"""Document: text with the offsets of its sections and pages."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# An id is an index key in the store, and the index refuses keys of 2,700 bytes.
MAX_ID = 512
# Every passage stores title, headings and meta, so their size is multiplied.
MAX_TITLE = 1_000
MAX_META_BYTES = 65_536

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Section:
    """Section: a heading and the text up to the next heading.

    Args:
        start: offset of the heading in the document's text, in characters, ≥ 0.
        level: heading level, 1 (outermost) to 6.
        title: heading without markup, at most 1,000 characters.

    Raises:
        InputError: a value is out of range.
    """

    start: int
    level: int
    title: str

    def __post_init__(self) -> None:
        if self.start < 0 or not 1 <= self.level <= 6:
            raise InputError(
                f"the section {self.title[:40]!r} starts at {self.start} with level {self.level}; "
                "allowed: starts ≥ 0 and levels 1 to 6"
            )
        check_text(self.title, "a section's title", MAX_TITLE)


@dataclass(frozen=True, slots=True)
class Document:
    """Document of a corpus; passages are spans of its text.

    NUL and lone surrogates are not allowed: PostgreSQL refuses NUL, and UTF-8 cannot encode
    surrogates. `read` replaces them by U+FFFD and reports how many.

    Args:
        doc_id: id, unique in its corpus; 1 to 512 characters without control characters and outer
            spaces.
        text: decoded text; spans are offsets into exactly this text, in characters.
        title: title, at most 1,000 characters; "" if it has none.
        source: path or URL; "" if unknown.
        meta: JSON values (no NaN or Infinity), at most 65,536 bytes.
        sections: sections in order; () if the structure is unknown.
        pages: start offset of each page, in order; () if it has no pages.

    Attributes:
        sha256: SHA-256 of the text in UTF-8, 64 hexadecimal digits.

    Raises:
        InputError: a value is out of range or cannot be stored.
    """

    doc_id: str
    text: str
    title: str = ""
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sections: tuple[Section, ...] = ()
    pages: tuple[int, ...] = ()
    sha256: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_id(self.doc_id)
        encoded = check_text(self.text, f"the text of document {self.doc_id!r}")
        check_text(self.title, f"the title of document {self.doc_id!r}", MAX_TITLE)
        check_text(self.source, f"the source of document {self.doc_id!r}")
        _check_meta(self.meta, self.doc_id)
        self._check_starts([section.start for section in self.sections], "sections")
        self._check_starts(self.pages, "pages")
        object.__setattr__(self, "sha256", hashlib.sha256(encoded).hexdigest())

    def _check_starts(self, starts: Sequence[int], what: str) -> None:
        ordered = all(one <= other for one, other in pairwise(starts))
        if starts and not (ordered and starts[0] >= 0 and starts[-1] <= len(self.text)):
            raise InputError(
                f"document {self.doc_id!r}: {what} start at {list(starts[:5])} …; they must come "
                f"in order and lie within 0 to {len(self.text)}, the length of the text"
            )


def check_id(doc_id: Any) -> None:
    """Raise unless a value is a valid document id.

    Raises:
        InputError: it is empty or too long, or has control characters or outer spaces.
    """
    named = isinstance(doc_id, str) and 1 <= len(doc_id) <= MAX_ID and doc_id == doc_id.strip()
    if not named or _CONTROL.search(doc_id):
        raise InputError(
            f"doc_id is {str(doc_id)[:60]!r}; allowed: 1 to {MAX_ID} characters without "
            "control characters and without leading or trailing spaces"
        )
    check_text(doc_id, "doc_id")


def check_text(text: Any, what: str, longest: int | None = None) -> bytes:
    """Return a text in UTF-8; raise if it cannot be stored.

    Args:
        longest: maximum number of characters; None: no limit.

    Raises:
        InputError: it is not text, too long, or holds NUL or a lone surrogate.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is {type(text).__name__}; it must be str: decode it first")
    if longest is not None and len(text) > longest:
        raise InputError(f"{what} has {len(text):,} characters; the maximum is {longest:,}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} holds a lone surrogate at offset {error.start}, which UTF-8 cannot "
            "encode; replace it by U+FFFD"
        ) from error
    if b"\0" in encoded:
        raise InputError(
            f"{what} holds NUL at offset {text.index(chr(0))}, which PostgreSQL refuses; replace "
            "it by U+FFFD"
        )
    return encoded


def _check_meta(meta: Mapping[str, Any], doc_id: str) -> None:
    what = f"the meta of document {doc_id!r}"
    try:
        size = len(msgspec.json.encode(dict(meta)))
        _check_inside(dict(meta), what)
    except InputError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{what} is not JSON: {error}; pass a mapping of plain values"
        raise InputError(message) from error
    if size > MAX_META_BYTES:
        message = f"{what} takes {size:,} bytes; the maximum is {MAX_META_BYTES:,}"
        raise InputError(f"{message}, because every passage carries it: move data into the text")


def _check_inside(value: Any, what: str) -> None:
    if isinstance(value, str):
        check_text(value, what)
    elif isinstance(value, float) and not math.isfinite(value):
        message = (
            f"{what} holds {value}, which JSON does not allow; remove it, or put None or a string "
        )
        raise InputError(message + "in its place")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check_inside(name, what)
            _check_inside(inner, what)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_inside(inner, what)
