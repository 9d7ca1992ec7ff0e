"""HTML parser: text with sections, without navigation and scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steersman.retrieval.documents.parsed import ParsedFile, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LEFT_OUT = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "nav",
        "iframe",
        "object",
        "embed",
        "svg",
        "math",
        "canvas",
        "audio",
        "video",
        "select",
        "button",
        "textarea",
        "dialog",
        "datalist",
        "title",
    ]
)
# Elements without an end tag; HTML ignores the slash in all others.
_VOID = frozenset(
    [
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param"),
        *("source", "track", "wbr"),
    ]
)
_EMPTY = re.compile(r"""<([A-Za-z][\w:.-]*+)((?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+)(?<=/)>""")
_ROLES = frozenset({"navigation", "banner", "contentinfo", "search"})
_CONTENT = frozenset({"article", "section", "main"})
_GAPS = ("", " ", " | ", "\n", "\n\n")
_LINES = frozenset({"li", "tr", "dt", "dd", "br", "option", "summary", "caption"})
_CELLS = frozenset({"td", "th"})
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "details",
        "div",
        "dl",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "legend",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "ul",
    ]
) | frozenset(_HEADINGS)


def parse_html(text: str) -> ParsedFile:
    r"""Return the text of a page with its title and sections.

    It reads ``main``, if the page has exactly one with text, else the body. It leaves out scripts,
    styles, navigation, form controls, page footers and hidden elements. Paragraphs are separated by
    an empty line, items and rows by a new line, cells by a bar.

    >>> page = "<title>Manual</title><nav>Home</nav><h1>Pumps</h1><p>They <b>hum</b>.<p>Cold."
    >>> parse_html(page).text, parse_html(page).sections
    ('Pumps\n\nThey hum.\n\nCold.', [(0, 1, 'Pumps')])
    """
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - an extra

    page = LexborHTMLParser(text)
    written = _main(page) or _write(page.body)
    head = page.head.css_first("title") if page.head else None
    title = one_line(head.text()) if head else ""
    first = next((name for _, level, name in written.sections if level == 1), "")
    return ParsedFile("".join(written.parts), title or first, written.sections)


def as_html(text: str) -> str:
    """Return an XHTML page with end tags for empty elements.

    An HTML parser reads ``<script/>`` as a start tag, and the rest of the page as a script.

    >>> as_html('<script src="a.js"/><p>They hum.<br/></p>')
    '<script src="a.js"></script><p>They hum.<br/></p>'
    """
    return _EMPTY.sub(_ended, text)


def _ended(element: re.Match[str]) -> str:
    if element[1].lower() in _VOID:
        return element[0]
    return f"<{element[1]}{element[2][:-1]}></{element[1]}>"


def _main(page: LexborHTMLParser) -> _Writer | None:
    mains = page.css("main, [role=main]")
    if len(mains) != 1:
        return None
    written = _write(mains[0])
    return written if written.length else None


def _write(root: LexborNode | None) -> _Writer:
    writer = _Writer()
    # Not recursive: a page may be nested deeper than Python's stack.
    for node, entered in _walk(root):
        if node.is_text_node:
            writer.write(node.text_content or "")
        elif entered:
            writer.enter(node.tag or "")
        else:
            writer.leave(node.tag or "")
    return writer


def _walk(root: LexborNode | None) -> Iterator[tuple[LexborNode, bool]]:
    """Yield nodes in page order: text once, elements at their start and end."""
    open_elements: list[LexborNode] = []
    node = root
    while node is not None:
        below = None
        if node.is_text_node:
            yield node, True
        elif node.is_element_node and not _is_left_out(node, open_elements):
            yield node, True
            below = node.first_child
            open_elements.append(node)
        following = below
        if below is None and open_elements and open_elements[-1] is node:
            yield open_elements.pop(), False
        while following is None:
            following = node.next if open_elements else None
            if following is None:
                if not open_elements:
                    return
                node = open_elements.pop()
                yield node, False
        node = following


def _is_left_out(node: LexborNode, above: list[LexborNode]) -> bool:
    tag = node.tag or ""
    if tag in _LEFT_OUT:
        return True
    attributes = node.attributes
    if (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") in _ROLES
    ):
        return True
    # A footer within an article holds notes; the page footer is boilerplate.
    return tag == "footer" and not any(one.tag in _CONTENT for one in above)


class _Writer:
    """Text writer with the pending separator before the next word."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.length = 0
        self.sections: list[tuple[int, int, str]] = []
        self._gap = 0
        self._verbatim = 0
        self._in_heading = False
        # Position of the heading's first word: in the text, and in `parts`.
        self._heading: tuple[int, int] | None = None

    def enter(self, tag: str) -> None:
        self._part(tag)
        self._verbatim += tag == "pre"
        self._in_heading = self._in_heading or tag in _HEADINGS

    def leave(self, tag: str) -> None:
        if tag in _HEADINGS and self._heading is not None:
            start, part = self._heading
            title = one_line("".join(self.parts[part:]))
            self.sections.append((start, _HEADINGS[tag], title))
        if tag in _HEADINGS:
            self._in_heading, self._heading = False, None
        self._verbatim -= tag == "pre"
        self._part(tag)

    def write(self, text: str) -> None:
        if self._verbatim and not self._in_heading and text.strip():
            self._put(text)
            return
        words = text.split()
        if text[:1].isspace():
            self._want(1)
        if words:
            self._put(" ".join(words))
            self._want(int(text[-1].isspace()))

    def _part(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._want(4)
        elif tag in _LINES:
            self._want(3)
        elif tag in _CELLS:
            self._want(2)

    def _want(self, gap: int) -> None:
        # A heading is always one line.
        self._gap = max(self._gap, min(gap, 1) if self._in_heading else gap)

    def _put(self, text: str) -> None:
        if self.length and self._gap:
            self.parts.append(_GAPS[self._gap])
            self.length += len(_GAPS[self._gap])
        self._gap = 0
        if self._in_heading and self._heading is None:
            self._heading = (self.length, len(self.parts))
        self.parts.append(text)
        self.length += len(text)
