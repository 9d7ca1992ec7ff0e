"""JSON lines reader: returns all documents, or raises at the first invalid line."""

from __future__ import annotations

import json
import logging
from typing import IO, TYPE_CHECKING, Any

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.text_encoding import storable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.retrieval.documents.parsed import Limits

_log = logging.getLogger(__name__)
_IDS = ("doc_id", "id", "_id")
_MARK = b"\xef\xbb\xbf"


def read_lines(stream: IO[bytes], name: str, limits: Limits) -> list[Document]:
    r"""Return the document of each line.

    A line is an object with ``doc_id`` (or ``id`` or ``_id``; a string or an integer) and ``text``;
    ``title``, ``source`` and ``meta`` are optional. Other fields are added to ``meta``. Lines are
    UTF-8; empty lines are skipped. A text may be empty, as in some collections.

    Args:
        stream: uncompressed bytes.
        limits: limits of bytes per line, total bytes and lines.

    Raises:
        DataError: a line is invalid, repeats an id, or exceeds a limit.

    >>> import io
    >>> from steersman.retrieval.documents.parsed import Limits
    >>> lines = io.BytesIO(b'{"id": 7, "text": "Pumps hum.", "year": 1951}\n')
    >>> [document] = read_lines(lines, "manuals.jsonl", Limits())
    >>> document.doc_id, document.source, document.meta
    ('7', 'manuals.jsonl:1', {'year': 1951})
    """
    found: dict[str, int] = {}
    documents: list[Document] = []
    for number, line in _lines(stream, name, limits):
        place = f"{name}, line {number}"
        document = _document(line, place, f"{name}:{number}")
        if document.doc_id in found:
            before = found[document.doc_id]
            message = f"{place}: the id {document.doc_id!r} is already used in line {before}"
            raise DataError(f"{message}; give each document a unique id")
        if len(documents) == limits.documents:
            raise DataError(
                f"{name} has more than {limits.documents:,} documents, the maximum; split it"
            )
        found[document.doc_id] = number
        documents.append(document)
    if not documents:
        raise DataError(f"{name} is empty: it has no line with a document; omit it")
    return documents


def _lines(stream: IO[bytes], name: str, limits: Limits) -> Iterator[tuple[int, bytes]]:
    total = number = 0
    while line := stream.readline(limits.document_bytes + 1):
        number += 1
        total += len(line)
        if len(line) > limits.document_bytes:
            message = (
                f"{name}, line {number}: more than {limits.document_bytes:,} bytes, the maximum"
            )
            raise DataError(f"{message}; split the document")
        if total > limits.total_bytes:
            raise DataError(
                f"{name} has more than {limits.total_bytes:,} bytes, the maximum; split it"
            )
        line = line.removeprefix(_MARK) if number == 1 else line
        if line.strip():
            yield number, line


def _document(line: bytes, place: str, source: str) -> Document:
    try:
        return _made(json.loads(line.decode()), source)
    except UnicodeDecodeError as error:
        message = f"{place}: byte {error.start} is not UTF-8 ({error.reason})"
        raise DataError(f"{message}; JSON lines must be UTF-8: convert the file") from error
    except RecursionError as error:
        raise DataError(f"{place}: the JSON is nested too deeply; flatten it") from error
    except json.JSONDecodeError as error:
        message = f"{place}: invalid JSON: {error.msg} at character {error.pos}"
        raise DataError(f"{message}; every line must be one object") from error
    except InputError as error:
        raise DataError(f"{place}: {error}") from error
    except ValueError as error:
        # An integer with more digits than Python reads.
        raise DataError(f"{place}: {error}") from error


def _made(row: Any, source: str) -> Document:
    if not isinstance(row, dict):
        raise InputError(f"the line is {type(row).__name__}; every line must be an object")
    row, replaced = _cleaned(row)
    if replaced:
        _log.warning(
            "%s: replaced %d characters that cannot be stored with U+FFFD", source, replaced
        )
    key = next((one for one in _IDS if one in row), None)
    if key is None or type(row[key]) not in {str, int}:
        seen = sorted(row)[:8] if key is None else f"{key} as {type(row[key]).__name__}"
        raise InputError(f"id missing: add doc_id, id or _id, a string or an integer; found {seen}")
    if not isinstance(row.get("text"), str):
        seen = type(row["text"]).__name__ if "text" in row else "none"
        raise InputError(f"text missing: add text, a string; found {seen}")
    meta = row.get("meta") or {}
    if not isinstance(meta, dict):
        raise InputError(f"meta is {type(meta).__name__}; it must be an object")
    given = row.get("source")
    used = {key, "text", "title", "meta"} | ({"source"} if isinstance(given, str) else set())
    others = {name: value for name, value in row.items() if name not in used}
    if replaced:
        others["reading"] = {"replaced": replaced}
    title = "" if row.get("title") is None else row["title"]
    where = given if isinstance(given, str) and given else source
    return Document(str(row[key]), row["text"], title, where, {**others, **meta})


def _cleaned(value: Any) -> tuple[Any, int]:
    """Return a value with storable texts, and the number of replaced characters."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        pairs = [(_cleaned(name), _cleaned(inner)) for name, inner in value.items()]
        replaced = sum(name[1] + inner[1] for name, inner in pairs)
        return {name[0]: inner[0] for name, inner in pairs}, replaced
    if isinstance(value, list):
        parts = [_cleaned(inner) for inner in value]
        return [part for part, _ in parts], sum(count for _, count in parts)
    return value, 0
