"""Markdown parser: unchanged text with the offsets of the file; headings become sections."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from steersman.retrieval.documents.parsed import ParsedFile, one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LINE = re.compile(r"\r\n?|\n")
# Initial lines of YAML, which CommonMark would read as a rule and a heading.
_FRONT = re.compile(r"---[^\S\n]*\n((?:.*?\n)??)(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
# A YAML key, perhaps after comments and empty lines.
_NAMED = re.compile(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\s:#-][^\n]*?:\s")
# A Markdown heading, which in YAML is a comment, with an empty line after it.
_HEADING = re.compile(r"^#{1,6}[^\S\n][^\n]*\n[^\S\n]*\n", re.MULTILINE)
_FRONT_TITLE = re.compile(
    r"""^title:[ \t]*(?:"((?:[^"\\]|\\.)+)"|'((?:[^']|'')+)'|(.+?))[ \t\r]*$""", re.MULTILINE
)
_TEXTS = frozenset({"text", "code_inline", "text_special"})


def parse_markdown(text: str) -> ParsedFile:
    r"""Return a Markdown text with its title and sections (CommonMark).

    Headings within quotations and lists do not begin sections. The title comes from the front
    matter, else from the first heading of level 1.

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
    front_title = _FRONT_TITLE.search(front[1]) if front else None
    outermost = (title for _, level, title in sections if level == 1)
    return ParsedFile(
        text,
        one_line(front_title[front_title.lastindex or 0]) if front_title else next(outermost, ""),
        sections,
    )


def _front(text: str) -> re.Match[str] | None:
    """Return the front matter; None for a text that only begins with a rule."""
    found = _FRONT.match(text)
    if found is None:
        return None
    content = found[1]
    if not content:
        return found
    # In a text, an empty line precedes the second rule, or the rule would make a heading. Front
    # matter may end with an empty line too; it counts as text if it seems to have headings.
    ends_empty = not content[:-1].rpartition("\n")[2].strip()
    is_text = ends_empty and _HEADING.search(content)
    return found if _NAMED.match(content) and not is_text else None


def _plain(inline: MarkdownIt, content: str) -> str:
    tokens = inline.parseInline(content)[0].children or []
    words = [
        token.content if token.type in _TEXTS else " " * ("break" in token.type) for token in tokens
    ]
    return one_line("".join(words))
