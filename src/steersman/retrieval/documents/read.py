"""Document reader: one file, its bytes, or a folder of files."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import stat
import zlib
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Literal, cast

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.document import Document, Section, check_id
from steersman.retrieval.documents.html import as_html
from steersman.retrieval.documents.jsonl import read_lines
from steersman.retrieval.documents.parsed import Limits, ParsedFile
from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.text_encoding import decode, is_pdf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GZIP = b"\x1f\x8b"


@contextmanager
def opened(source: Path | bytes, name: str, most: int) -> Iterator[IO[bytes]]:
    """Open a file or bytes as a stream of uncompressed bytes.

    Args:
        source: file or its bytes, plain or compressed with gzip.
        most: maximum size in bytes, before decompression.

    Raises:
        DataError: the file does not exist, is not a regular file, is too large or damaged, or the
            disk fails.
    """
    try:
        with _raw(source, name, most) as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as stream:
                    yield cast("IO[bytes]", stream)
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is damaged: {error}; compress it again") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from error


def read_capped(stream: IO[bytes], name: str, most: int) -> bytes:
    """Return all bytes of a stream.

    Args:
        stream: uncompressed bytes.
        most: maximum number of bytes.

    Raises:
        DataError: the stream is longer.
    """
    data = stream.read(most + 1)
    if len(data) > most:
        raise DataError(f"{name} has more than {most:,} bytes uncompressed, the maximum; split it")
    return data


def _raw(source: Path | bytes, name: str, most: int) -> IO[bytes]:
    if isinstance(source, bytes):
        _check_size(len(source), name, most)
        return io.BytesIO(source)
    found = source.stat()
    # A pipe or a device may have no end.
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{name} is not a regular file; copy its content into a regular file")
    _check_size(found.st_size, name, most)
    return source.open("rb")


def _check_size(size: int, name: str, most: int) -> None:
    if size > most:
        raise DataError(f"{name} has {size:,} bytes; the maximum is {most:,}: split it")


Kind = Literal["jsonl", "text", "markdown", "html", "pdf"]

_log = logging.getLogger(__name__)
_SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
}
_KINDS = frozenset(_SUFFIXES.values())
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_XML_DECLARED = re.compile(
    rb"\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']\s*([\w.:-]{2,40})", re.IGNORECASE
)
_LOOKS_LIKE_HTML = re.compile(rb"\s*(<!doctype\s+html|<html[\s>])", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SHOWN = 10


def read(
    source: Path | bytes,
    *,
    name: str | None = None,
    kind: Kind | None = None,
    doc_id: str | None = None,
    include: Sequence[str] = (),
    limits: Limits | None = None,
    parser: BoundedParser | None = None,
) -> list[Document]:
    r"""Return the documents of a file, of its bytes, or of all files of a folder.

    Problems are logged, and stored in the document's meta under ``reading``: a guessed ``encoding``
    (with ``assumed``: true), the number of characters ``replaced`` by U+FFFD, and
    ``pages_without_text`` of a PDF. Files may be compressed with gzip.

    Args:
        name: file name for messages and the documents' source; None: the path. For bytes, its
            extension gives the kind.
        kind: file type; None: from the name, else from the first bytes.
        doc_id: id of the document; None: the file name; in a folder, the relative path. Not for
            JSON lines, which contain ids.
        include: file name patterns for a folder; empty: all known extensions.
        limits: limits of reading; None: `Limits()`.
        parser: parser process to share among calls, with its limits; None: a new one if needed.

    Raises:
        DataError: a file cannot be read; nothing is returned. For a folder, the message names the
            first ten such files.
        InputError: arguments conflict, or are out of range.

    >>> [document] = read(b"Pumps hum.\n", name="notes/pumps.txt")
    >>> document.doc_id, document.text, document.source
    ('pumps.txt', 'Pumps hum.\n', 'notes/pumps.txt')
    """
    _check_arguments(source, name, kind, doc_id)
    limits = limits or Limits()
    with nullcontext(parser) if parser else BoundedParser(limits) as shared:
        reader = _Reader(limits, shared)
        if isinstance(source, Path) and source.is_dir():
            if kind or doc_id or name:
                raise InputError(
                    "kind, doc_id and name apply to one file, not to a folder; remove them"
                )
            return reader.folder(source, include)
        if include:
            raise InputError("include applies to a folder, not to one file; remove it")
        shown = name or (str(source) if isinstance(source, Path) else doc_id or "these bytes")
        return reader.file(source, printable(shown), kind, doc_id or _own_id(shown))


def files(folder: Path, *, include: Sequence[str] = (), limits: Limits | None = None) -> list[Path]:
    """Return the files that `read` reads in a folder and its subfolders.

    Hidden files (names that begin with a dot) and symbolic links are skipped.

    Args:
        limits: limits with the number of files; None: `Limits()`.

    Raises:
        DataError: it is not a folder, cannot be read, has too many files, or no matching file.
        InputError: `include` is not a list of patterns.
    """
    if isinstance(include, str) or not all(include):
        raise InputError(f"include is {include!r}; pass a list of patterns such as ['*.md']")
    limits = limits or Limits()
    found: list[Path] = []
    for path in _walk(folder):
        if _fits(path.relative_to(folder), include):
            found.append(path)
        if len(found) > limits.documents:
            raise DataError(
                f"{folder} has more than {limits.documents:,} files, the maximum; split it"
            )
    if not found:
        wanted = ", ".join(include or sorted(f"*{suffix}" for suffix in _SUFFIXES))
        raise DataError(f"no files to read in {folder}; searched for: {wanted}")
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


class _Reader:
    """One call of `read`."""

    def __init__(self, limits: Limits, parser: BoundedParser) -> None:
        self._limits = limits
        self._parser = parser

    def folder(self, folder: Path, include: Sequence[str]) -> list[Document]:
        documents: dict[str, Document] = {}
        problems: list[str] = []
        total = 0
        for path in files(folder, include=include, limits=self._limits):
            inner = printable(path.relative_to(folder).as_posix())
            try:
                for document in self.file(path, printable(str(path)), None, inner):
                    _refuse_twice(document, documents)
                    documents[document.doc_id] = document
                    total += len(document.text)
            except DataError as error:
                problems.append(str(error))
            if total > self._limits.total_bytes:
                raise DataError(
                    f"{folder} has more than {self._limits.total_bytes:,} characters, the maximum"
                )
        if problems:
            listed = "\n".join(f"- {problem}" for problem in problems[:_SHOWN])
            raise DataError(
                f"{len(problems)} files of {folder} cannot be read; no file was read; omit them or "
                f"repair them:\n{listed}" + "\n- …" * (len(problems) > _SHOWN)
            )
        return list(documents.values())

    def file(
        self, source: Path | bytes, name: str, kind: Kind | None, doc_id: str
    ) -> list[Document]:
        limits = self._limits
        is_lines = (kind or _kind_by_name(name)) == "jsonl"
        most = limits.total_bytes if is_lines else limits.document_bytes
        with opened(source, name, most) as stream:
            if is_lines:
                return read_lines(stream, name, limits)
            data = read_capped(stream, name, most)
        kind = kind or _kind_by_name(name) or _kind_by_content(data, source, name)
        try:
            return [self._document(data, name, kind, doc_id)]
        except InputError as error:
            raise DataError(f"{name}: {error}") from error

    def _document(self, data: bytes, name: str, kind: Kind, doc_id: str) -> Document:
        if not data.strip():
            raise DataError(f"{name} is empty; omit it")
        parsed, notes = self._parsed(data, name, kind)
        if not parsed.text.strip():
            raise DataError(f"{name} has no text; omit it")
        notes.update(parsed.notes)
        if notes:
            _log.warning("%s: %s", name, notes)
        sections = tuple(Section(*section) for section in parsed.sections)
        meta = {"reading": notes} if notes else {}
        return Document(
            doc_id, parsed.text, parsed.title, name, meta, sections, tuple(parsed.pages)
        )

    def _parsed(self, data: bytes, name: str, kind: Kind) -> tuple[ParsedFile, dict[str, object]]:
        if kind == "pdf":
            return self._parser.parse("pdf", data, name), {}
        declared = None
        if kind == "html":
            declared = _XML_DECLARED.match(data) or _DECLARED.search(data[:4096])
        decoded = decode(data, name, declared[1].decode("ascii", "replace") if declared else None)
        notes: dict[str, object] = {}
        if decoded.assumed:
            notes |= {"encoding": decoded.encoding, "assumed": True}
        if decoded.replaced:
            notes |= {"encoding": decoded.encoding, "replaced": decoded.replaced}
        if kind == "text":
            return ParsedFile(decoded.text), notes
        formatted = cast("Literal['markdown', 'html']", kind)
        text = decoded.text
        if kind == "html" and (_suffix(name) == ".xhtml" or text.lstrip()[:5] == "<?xml"):
            text = as_html(text)
        return self._parser.parse(formatted, text.encode(), name), notes


def _check_arguments(
    source: Path | bytes, name: str | None, kind: Kind | None, doc_id: str | None
) -> None:
    if not isinstance(source, Path | bytes):
        raise InputError(f"source is {type(source).__name__}; pass a Path or bytes")
    if kind is not None and kind not in _KINDS:
        raise InputError(f"kind is {kind!r}; allowed: {', '.join(sorted(_KINDS))}")
    if doc_id is not None:
        check_id(doc_id)
    elif isinstance(source, bytes) and not name and kind != "jsonl":
        raise InputError("bytes need a name; pass name or doc_id")
    called = name or (source.name if isinstance(source, Path) else "")
    if doc_id is not None and (kind or _kind_by_name(called)) == "jsonl":
        raise InputError("doc_id does not apply to JSON lines, which contain ids; remove it")


def _refuse_twice(document: Document, documents: dict[str, Document]) -> None:
    if document.doc_id in documents:
        before = documents[document.doc_id].source
        message = f"{document.source}: the id {document.doc_id!r} is already used by {before}"
        raise DataError(f"{message}; give each document a unique id")


def _walk(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise DataError(f"folder not found: {folder}; pass an existing folder")
    for place, inner, names in os.walk(folder, onerror=_raise_unreadable):
        inner[:] = [one for one in inner if not one.startswith(".")]
        for one in names:
            path = Path(place, one)
            if not one.startswith(".") and not path.is_symlink():
                yield path


def _raise_unreadable(error: OSError) -> None:
    message = f"{error.filename} cannot be read: {error.strerror}; check its permissions"
    raise DataError(message) from error


def _fits(path: PurePath, include: Sequence[str]) -> bool:
    if include:
        return any(path.match(pattern) for pattern in include)
    return _kind_by_name(path.name) is not None


def _kind_by_name(name: str) -> Kind | None:
    return _SUFFIXES.get(_suffix(name))


def _suffix(name: str) -> str:
    return PurePath(name.lower().removesuffix(".gz")).suffix


def _kind_by_content(data: bytes, source: Path | bytes, name: str) -> Kind:
    suffix = _suffix(name)
    if isinstance(source, Path) and suffix:
        known = ", ".join(sorted(_SUFFIXES))
        message = f"{name} has the unknown extension {suffix!r}; known: {known}"
        raise DataError(f"{message}: convert it, or pass its kind")
    if is_pdf(data):
        return "pdf"
    return "html" if _LOOKS_LIKE_HTML.match(data[:512]) else "text"


def _own_id(name: str) -> str:
    return printable(PurePath(name).name).strip()


def printable(name: str) -> str:
    """Return a file name that can be shown and stored.

    Python represents bytes of a name that are not UTF-8 as lone surrogates.
    """
    return _CONTROL.sub(
        "\ufffd", name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
