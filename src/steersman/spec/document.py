"""YAML parser that keeps the line of every value.

It reads parser events by the core schema of YAML 1.2, so ``off`` and ``on`` are texts. It refuses
more than 256 KiB, nesting deeper than 32, anchors and aliases (a small file could expand without
limit), tags, and several documents. Outside quotes it also refuses U+0085, U+2028 and U+2029: they
end a line for the parser but not in most editors, so a visible comment could be read as a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.parser import ParserError
from ruamel.yaml.reader import ReaderError

from steersman.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_BYTES = 1 << 18
MAX_DEPTH = 32

Path = tuple[str | int, ...]

_BREAKS = re.compile("[\x85\u2028\u2029]")
_HALF = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"^\ufeff?%YAML\b", re.MULTILINE)
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_BASED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,10})?")
_SPECIAL = re.compile(r"([-+]?\.(inf|Inf|INF))|\.(nan|NaN|NAN)")


class Fault(NamedTuple):
    """YAML error that does not stop the parser."""

    line: int
    path: Path
    text: str


@dataclass(frozen=True)
class Document:
    """Parsed document with the line of every value.

    Attributes:
        root: the top-level mapping.
        lines: 1-based line by path; for a mapping entry, the line of its key.
        faults: errors that do not stop the parser, such as duplicate keys.
    """

    root: Mapping[str, object]
    lines: dict[Path, int]
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of ``path``, or of its nearest enclosing part."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, source: str) -> Document:
    """Return the document in ``text``.

    Args:
        text: YAML 1.2, at most 256 KiB as UTF-8.

    Raises:
        SpecError: invalid YAML, too large, nested too deep, empty, not a mapping, or a refused
            feature.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        message = f"{source}: too large: {size:,} bytes; allowed at most {MAX_BYTES:,}; shorten it"
        raise SpecError(message)
    reader = _Reader(text, source)
    try:
        root = reader.read()
        reader.refuse_breaks(len(text))
    except SpecError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if mark and isinstance(error, ParserError):  # perhaps because of an invisible line end
            reader.refuse_breaks(mark.index)
        message = f"{source}:{line}: not valid YAML: {error.problem or error.context}; correct it"
        raise SpecError(message) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"not valid YAML: character U+{error.character:04X} is not allowed"
        message = f"{source}:{line}: {what}; remove it"
        raise SpecError(message) from None
    except AssertionError as error:  # the parser's error for an unknown YAML version
        line = text.count("\n", 0, found.start()) + 1 if (found := _VERSION.search(text)) else 1
        message = f"{source}:{line}: not valid YAML: {error}; remove the %YAML line"
        raise SpecError(message) from None
    except (YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        message = f"{source}:1: not valid YAML: {reason}; save it as UTF-8 text"
        raise SpecError(message) from None
    if not isinstance(root, dict):
        kind = "an empty document" if root is None else f"a {_kind(root)} at the top"
        message = f"{source}:1: {kind}; allowed: a mapping; begin with format: 1"
        raise SpecError(message)
    return Document(root, reader.lines, reader.faults)


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "single value"


class _Reader:
    """Builds values from parser events in one pass."""

    def __init__(self, text: str, source: str) -> None:
        self.source, self._text = source, text
        self._quoted: list[tuple[int, int]] = []
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []
        self._events: Iterator[Any] = YAML(typ="safe", pure=True).parse(text)

    def read(self) -> object:
        root: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refusal(event, "a second document", "keep one per file")
            elif isinstance(
                event, AliasEvent | ScalarEvent | MappingStartEvent | SequenceStartEvent
            ):
                root = self._value(event, ())
        return root

    def refuse_breaks(self, read: int) -> None:
        """Refuse unusual line ends outside quotes in the first ``read`` characters."""
        quoted, nowhere = iter(self._quoted), (len(self._text), len(self._text) + 1)
        begin, end = next(quoted, nowhere)
        for found in _BREAKS.finditer(self._text[:read]):
            while end <= found.start():
                begin, end = next(quoted, nowhere)
            if found.start() < begin:
                line = self._text.count("\n", 0, found.start()) + 1
                code = f"{ord(found[0]):04X}"
                raise SpecError(
                    f"{self.source}:{line}: line separator U+{code} is not allowed outside "
                    f'quotes; remove it, or write "\\u{code}" in double quotes'
                )

    def _value(self, event: Any, path: Path) -> object:
        self._check(event, path)
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self._list(path)
        return self._mapping(path)

    def _check(self, event: Any, path: Path) -> None:
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise self._refusal(event, "an anchor or alias", "write the value out")
        if event.tag is not None:
            raise self._refusal(event, f"the tag {event.tag!r}", "remove it")
        if len(path) > MAX_DEPTH:
            raise self._refusal(event, f"nesting deeper than {MAX_DEPTH}", "flatten it")

    def _list(self, path: Path) -> list[object]:
        values: list[object] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            values.append(self._value(event, (*path, len(values))))
        return values

    def _mapping(self, path: Path) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, path)
            entry = (*path, key)
            if key in values:
                first = self.lines[entry]
                what = f"duplicate key {key!r}, first on line {first}; remove one of the two"
                self.faults.append(Fault(event.start_mark.line + 1, entry, what))
                self._value(next(self._events), (*entry, "(again)"))
                continue
            self.lines[entry] = event.start_mark.line + 1
            values[key] = self._value(next(self._events), entry)
        return values

    def _key(self, event: Any, path: Path) -> str:
        self._check(event, path)
        if not isinstance(event, ScalarEvent):
            raise self._refusal(event, "a key that is a list or mapping", "use text as the key")
        value = self._scalar(event)
        if isinstance(value, str):
            return value
        what = f"key {event.value!r} is not text; put it in quotes"
        self.faults.append(Fault(event.start_mark.line + 1, (*path, event.value), what))
        return str(event.value)

    def _scalar(self, event: Any) -> object:
        value = _scalar(event)
        if event.style in {"'", '"'}:
            self._quoted.append((event.start_mark.index, event.end_mark.index))
        if not isinstance(value, str) or not _HALF.search(value):
            return value
        try:
            # JSON writes characters such as emoji as two escapes, and JSON is YAML.
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            half = "half of a surrogate pair (U+D800 to U+DFFF)"
            raise self._refusal(event, half, "remove it") from None

    def _refusal(self, event: Any, what: str, advice: str) -> SpecError:
        line = event.start_mark.line + 1
        return SpecError(f"{self.source}:{line}: {what} is not allowed here; {advice}")


def _scalar(event: Any) -> object:
    text: str = event.value
    if event.style is not None:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "", 1)) if _SPECIAL.fullmatch(text) else text
