"""Chunking: splits documents into passages along their structure.

A passage contains only one section and its subsections, so every heading of its lineage applies to
all of it. Long sections are split between paragraphs, else sentences, words or characters: at the
first boundary that fills at least half of the size.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from steersman.errors import InputError
from steersman.retrieval.documents.passage import Lineage, Passage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.retrieval.documents.document import Document, Section

_SMALLEST = 64
_LARGEST = 1 << 31
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
# Chinese and Japanese have no space after a full stop; a line of a list or of code is a sentence.
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？｡])[」』”’）]*\s*|\n\s*")
_WORD = re.compile(r"\s+")
_SPACE = re.compile(r"\s*")
_JOINER = "\u200d"
# Longer runs of combining marks do not occur in real text and may be split anywhere.
_LONGEST_GRAPHEME = 32


@dataclass(frozen=True, slots=True)
class Chunking:
    """Chunking settings.

    Sizes are in characters, like spans, so checking a size needs no tokenizer. MiniLM reads 256
    word pieces and ignores the rest. Median word pieces of 800 characters with title and headings:
    156 in Cranfield (none above 256), 170 in MTRAG (1.5 % above), 220 in this project's pages with
    much code and many tables (25 % above).

    Args:
        size: maximum passage length in characters, 64 to 2³¹; default 800.
        overlap: maximum number of characters repeated from the previous passage of a split section,
            0 to half of `size`; default 80. It begins at a sentence, else a word.

    Raises:
        InputError: a value is out of range.

    >>> Chunking(500, 80).name
    'characters-500-80'
    """

    size: int = 800
    overlap: int = 80

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.size <= _LARGEST:
            raise InputError(f"size is {self.size}; allowed: {_SMALLEST} to {_LARGEST:,}")
        if not 0 <= self.overlap <= self.size // 2:
            message = f"overlap is {self.overlap}; allowed: 0 to {self.size // 2}"
            raise InputError(f"{message}, half of size")

    @property
    def name(self) -> str:
        """Name of these settings in a lineage."""
        return f"characters-{self.size}-{self.overlap}"


WHOLE = Chunking(_LARGEST, 0)


def cut(document: Document, chunking: Chunking | None = None) -> tuple[Passage, ...]:
    r"""Return the passages of a document, in order; deterministic.

    A document that fits is one passage with its whole text, outer white space included. In a longer
    one, every character except white space is in at least one passage.

    Args:
        chunking: chunking settings; None: `Chunking()`. `WHOLE` returns one passage of any length.

    Returns:
        The passages; none without a title and without text other than white space.

    >>> from steersman.retrieval.documents.document import Document, Section
    >>> text = "# Pumps\nThey hum.\n\n# Valves\n" + "A valve opens. It closes. " * 4
    >>> manual = Document("m", text, sections=(Section(0, 1, "Pumps"), Section(19, 1, "Valves")))
    >>> for passage in cut(manual, Chunking(size=64, overlap=12)):
    ...     print(passage.id, passage.lineage.headings, repr(passage.text))
    m#0 ('Pumps',) '# Pumps\nThey hum.'
    m#1 ('Valves',) '# Valves\nA valve opens. It closes. A valve opens. It closes.'
    m#2 ('Valves',) 'It closes. A valve opens. It closes. A valve opens. It closes.'
    """
    chunking = chunking or Chunking()
    return tuple(
        _passage(document, number, span, chunking.name)
        for number, span in enumerate(_spans(document, chunking))
    )


class _Span(NamedTuple):
    start: int
    end: int
    headings: tuple[str, ...]


def _passage(document: Document, number: int, span: _Span, chunker: str) -> Passage:
    page = bisect_right(document.pages, span.start) or None
    lineage = Lineage(document.sha256, span.start, span.end, span.headings, page, chunker)
    return Passage(
        document.doc_id,
        number,
        document.text[span.start : span.end],
        document.title,
        document.meta,
        document.source,
        lineage=lineage,
    )


def _spans(document: Document, chunking: Chunking) -> Iterator[_Span]:
    text = document.text
    if not (document.title or text.strip()):
        return
    starts = [section.start for section in document.sections] + [len(text)]
    paths = list(_paths(document.sections))
    bare = [_is_bare(text[start:end]) for start, end in pairwise(starts)]
    if len(text) <= chunking.size:
        before = [()] if text[: starts[0]].strip() else []
        yield _Span(0, len(text), _common(before + _held(paths, bare)))
        return
    yield from _split(text, _Span(0, starts[0], ()), chunking)
    first = 0
    while first < len(paths):
        behind = _group(starts, paths, bare, first, chunking.size)
        headings = _common(_held(paths[first:behind], bare[first:behind]))
        yield from _split(text, _Span(starts[first], starts[behind], headings), chunking)
        first = behind


def _split(text: str, span: _Span, chunking: Chunking) -> Iterator[_Span]:
    for start, end in _pieces(text, span.start, span.end, chunking):
        yield _Span(start, end, span.headings)


def _paths(sections: tuple[Section, ...]) -> Iterator[tuple[str, ...]]:
    above: list[Section] = []
    for section in sections:
        while above and above[-1].level >= section.level:
            above.pop()
        above.append(section)
        yield tuple(one.title for one in above)


def _held(paths: list[tuple[str, ...]], bare: list[bool]) -> list[tuple[str, ...]]:
    """Return the paths of the sections with text; all paths if no section has text."""
    return [path for path, is_bare in zip(paths, bare, strict=True) if not is_bare] or paths


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    if not paths:
        return ()
    # A prefix shared by the smallest and the largest path is shared by all.
    pairs = zip(min(paths), max(paths), strict=False)
    return tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _group(
    starts: list[int], paths: list[tuple[str, ...]], bare: list[bool], first: int, size: int
) -> int:
    """Return the end of the group of sections below the first; extend a group without text."""
    depth = len(paths[first])
    behind = first + 1
    while behind < len(paths) and len(paths[behind]) > depth:
        if starts[behind + 1] - starts[first] > size:
            break
        behind += 1
    says_nothing = all(bare[first:behind])
    while behind < len(paths) and says_nothing and len(paths[behind]) > depth:
        says_nothing = bare[behind]
        behind += 1
    return behind


def _is_bare(section: str) -> bool:
    """Return whether a section has only its heading, and perhaps an underline."""
    return not section.strip().partition("\n")[2].strip().strip("=-")


def _pieces(text: str, start: int, end: int, chunking: Chunking) -> Iterator[tuple[int, int]]:
    """Yield trimmed spans of at most `size` that cover all text except white space."""
    start, end = _trim(text, start, end)
    done = start
    while end - start > chunking.size:
        middle = start + chunking.size // 2
        behind = _cut_at(text, start, middle, start + chunking.size)
        piece_end = _trim(text, start, behind)[1]
        if start < done and piece_end <= done:
            # The piece would contain only the overlap, so start without overlap.
            start = _trim(text, done, end)[0]
            continue
        yield start, piece_end
        done = piece_end
        ahead = _trim(text, behind, end)[0]
        # Start after the previous start, or the loop would never end.
        again = max(behind - chunking.overlap, start + 1)
        start = _overlap_at(text, again, behind) if chunking.overlap and ahead < end else ahead
        start = _trim(text, start, end)[0]
    if start < end:
        yield start, end


def _cut_at(text: str, start: int, middle: int, limit: int) -> int:
    """Return the last split position in (middle, limit], by order of preference."""
    for boundary in (_PARAGRAPH, _SENTENCE, _WORD):
        found = _last(boundary, text, middle, limit)
        if found is not None:
            return found
    found = _last(_WORD, text, start + 1, middle)
    if found is not None:
        return found
    for place in range(limit, max(middle, limit - _LONGEST_GRAPHEME), -1):
        if not _within_grapheme(text, place):
            return place
    return limit


def _last(boundary: re.Pattern[str], text: str, begin: int, limit: int) -> int | None:
    last = None
    for match in boundary.finditer(text, begin, limit):
        if match.end() > begin and not _within_grapheme(text, match.end()):
            last = match.end()
    return last


def _overlap_at(text: str, begin: int, behind: int) -> int:
    """Return the start of the next piece: the first sentence from `begin`, else a word."""
    for boundary in (_SENTENCE, _WORD):
        for match in boundary.finditer(text, begin, behind):
            if match.end() < behind and not _within_grapheme(text, match.end()):
                return match.end()
    return behind


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    space = _SPACE.match(text, start, end)
    ahead = space.end() if space else start
    # A combining mark after a space: keep both together.
    if start < ahead < end and _within_grapheme(text, ahead):
        ahead -= 1
    while end > ahead and text[end - 1].isspace():
        end -= 1
    return ahead, end


def _within_grapheme(text: str, place: int) -> bool:
    """Return whether a position is inside a grapheme (UAX 29, without Indic joins)."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if _JOINER in (before, after) or unicodedata.category(after) in {"Mn", "Mc", "Me"}:
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff" or (
        _is_flag(after) and _flags_before(text, place) % 2 == 1
    )


def _flags_before(text: str, place: int) -> int:
    count = 0
    while count < _LONGEST_GRAPHEME and count < place and _is_flag(text[place - 1 - count]):
        count += 1
    return count


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
