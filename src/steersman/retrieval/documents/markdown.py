"""Markdown: the text stays as it is, so offsets are those of the file; headings become sections."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from steersman.retrieval.documents.parsed import ParsedFile, one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LINE = re.compile(r"\r\n?|\n")
# Lines of YAML at the very beginning, which CommonMark would take for a rule and a heading.
_FRONT = re.compile(r"---[^\S\n]*\n((?:.*?\n)??)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
# It begins with a name, before which there may be comments and empty lines.
_NAMED = re.compile(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\s:#-][^\n]*?:\s")
# What in YAML is a comment with an empty line behind it.
_HEADING = re.compile(r"^#{1,6}[^\S\n][^\n]*\n[^\S\n]*\n", re.MULTILINE)
_FRONT_TITLE = re.compile(
    r"""^title:[ \t]*(?:"((?:[^"\\]|\\.)+)"|'((?:[^']|'')+)'|(.+?))[ \t\r]*$""", re.MULTILINE
)
_TEXTS = frozenset({"text", "code_inline", "text_special"})


def parse_markdown(text: str) -> ParsedFile:
    r"""Return a Markdown text with its title and sections (CommonMark).

    Headings within quotations and lists do not begin sections. The title is that of the front
    matter, else the first heading of level 1.

    >>> found = parse_markdown("# Pumps\n\nThey *hum*.\n\nCold `pump`\n---\n")
    >>> found.title, found.sections
    ('Pumps', [(0, 1, 'Pumps'), (22, 2, 'Cold pump')])
    """
    from markdown_it import MarkdownIt  # noqa: PLC0415 - an extra

    front = _front(text)
    ahead = front.end() if front else 0
    starts = [ahead, *(ahead + line.end() for line in _LINE.finditer(text[ahead:]))]
    blocks = MarkdownIt("commonmark").disable("inline").parse(text[ahead:])
    inline = MarkdownIt("commonmark")
    sections = [
        (starts[opening.map[0]], int(opening.tag[1]), _plain(inline, heading.content))
        for opening, heading in pairwise(blocks)
        if opening.type == "heading_open" and opening.level == 0 and opening.map
    ]
    said = _FRONT_TITLE.search(front[1]) if front else None
    outermost = (title for _, level, title in sections if level == 1)
    return ParsedFile(
        text, one_line(said[said.lastindex or 0]) if said else next(outermost, ""), sections
    )


def _front(text: str) -> re.Match[str] | None:
    """Return the front matter; a rule that begins a text and another one below it are none."""
    found = _FRONT.match(text)
    if found is None:
        return None
    said = found[1]
    if not said:
        return found
    # A text needs an empty line above its rule, which would make a heading of what it says there;
    # front matter may end with one as well, and is taken for a text if it seems to have headings.
    ends_empty = not said[:-1].rpartition("\n")[2].strip()
    is_text = ends_empty and _HEADING.search(said)
    return found if _NAMED.match(said) and not is_text else None


def _plain(inline: MarkdownIt, content: str) -> str:
    tokens = inline.parseInline(content)[0].children or []
    words = [
        token.content if token.type in _TEXTS else " " * ("break" in token.type) for token in tokens
    ]
    return one_line("".join(words))
