"""Data files read entry by entry, with every complaint saying which file, line and field it is."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_WHOLE_CAP = 4_000_000_000
_LINE_CAP = 50_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a file.

    Args:
        where: file and line (or place in a list), as a person looks it up.
        fields: name -> value, as JSON has them.

    >>> Entry("dev.json, line 3", {"id": 7}).name("id")
    '7'
    """

    where: str
    fields: Mapping[str, Any]

    def text(self, field: str, *, default: str | None = None) -> str:
        """Return a field that must be a text.

        Args:
            field: its name.
            default: for one that is absent or null; None: it must be there.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def name(self, field: str) -> str:
        """Return a field that names something: a text that is not blank, or a whole number.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if type(value) is int:
            return str(value)
        if isinstance(value, str) and value.strip():
            return value
        raise self.wrong(field, "a name or whole number")

    def texts(self, field: str) -> list[str]:
        """Return a field that is a list of texts; [] if it is absent or null.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(field, "a list of texts")
        return value

    def names(self, field: str) -> list[str]:
        """Return a field that is a list of names or whole numbers; [] if it is absent or null.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(one) in {int, str} for one in value):
            raise self.wrong(field, "a list of names or whole numbers")
        return [str(one) for one in value]

    def whole(self, field: str) -> int:
        """Return a field that must be a whole number.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if type(value) is not int:
            raise self.wrong(field, "a whole number")
        return value

    def inner(self, field: str) -> Entry:
        """Return a field that must be an object.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Entry(f"{self.where}, {field}", value)

    def each(self, field: str) -> Iterator[Entry]:
        """Return the objects of a field that must be a list of them; none if it is absent.

        Args:
            field: its name.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return
        if not isinstance(value, list):
            raise self.wrong(field, "a list of objects")
        for place, one in enumerate(value, 1):
            where = f"{self.where}, {field} {place}"
            if not isinstance(one, dict):
                raise DataError(f"{where} is {str(one)[:40]!r}; it must be an object")
            yield Entry(where, one)

    def wrong(self, field: str, wanted: str) -> DataError:
        """Return the complaint that a field is not what it must be.

        Args:
            field: its name.
            wanted: what it must be.
        """
        seen = repr(self.fields[field])[:60] if field in self.fields else "absent"
        return DataError(f"{self.where}: {field} is {seen}; it must be {wanted}")


def find(folder: Path, *patterns: str) -> Path | None:
    """Return the first file there is, plain or compressed; in alphabetic order of a pattern.

    Args:
        folder: where to look.
        patterns: globs, the best first.
    """
    for pattern in patterns:
        for glob in (pattern, f"{pattern}.gz"):
            found = sorted(one for one in folder.glob(glob) if one.is_file())
            if found:
                return found[0]
    return None


def needed(folder: Path, what: str, *patterns: str) -> Path:
    """Return what `find` does, and complain if there is nothing.

    Args:
        folder: where to look.
        what: the file is, in a few words.
        patterns: globs, the best first.

    Raises:
        DataError: there is no such file.
    """
    file = find(folder, *patterns)
    if file is None:
        looked = " or ".join(patterns)
        raise DataError(f"{folder} has no {looked} (or .gz), {what}; put it there")
    return file


def entries(file: Path) -> Iterator[Entry]:
    """Read objects: one a line, or all of them in one JSON list, whichever the file holds.

    A file of lines is read line by line, so it may be larger than the memory.

    Args:
        file: plain or ``.gz``.

    Raises:
        DataError: it cannot be read, a line is no JSON object, or it is too large.
    """
    with _opened(file) as stream:
        first = stream.read(1)
        while first in {" ", "\n", "\r", "\t", "\ufeff"}:
            first = stream.read(1)
    if first == "[":
        yield from _listed(file)
        return
    for number, line in lines(file):
        where = f"{file}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            raise DataError(f"{where} is no JSON: {wrong}; copy the file again") from wrong
        if not isinstance(value, dict):
            raise DataError(f"{where} is {line[:40]!r}; it must be an object")
        yield Entry(where, value)


def document(file: Path) -> Entry:
    """Read a file that is one JSON object.

    Args:
        file: plain or ``.gz``.

    Raises:
        DataError: it cannot be read, is something else, or is too large.
    """
    value = _whole(file)
    if not isinstance(value, dict):
        raise DataError(f"{file} holds {type(value).__name__}; it must be one JSON object")
    return Entry(str(file), value)


def table(file: Path, *, columns: int) -> Iterator[tuple[str, list[str]]]:
    """Read rows of values between tabs, as (file and line, values).

    Args:
        file: plain or ``.gz``.
        columns: each row must have.

    Raises:
        DataError: it cannot be read, or a row has another number of columns.
    """
    rows = csv.reader((line for _, line in lines(file)), delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, 1):
        where = f"{file}, line {number}"
        if len(row) != columns:
            raise DataError(f"{where}: {len(row)} columns; there must be {columns}, between tabs")
        yield where, row


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Read lines that are not blank, with their numbers from 1.

    Args:
        file: plain or ``.gz``.

    Raises:
        DataError: it cannot be read, or a line is longer than 50 million characters.
    """
    with _opened(file) as stream:
        number = 0
        while line := stream.readline(_LINE_CAP):
            number += 1
            if len(line) == _LINE_CAP:
                message = f"{file}, line {number} is longer than {_LINE_CAP:,} characters"
                raise DataError(f"{message}; is this the right file?")
            if line.strip():
                yield number, line.rstrip("\n")


def _listed(file: Path) -> Iterator[Entry]:
    value = _whole(file)
    for place, one in enumerate(value, 1):
        where = f"{file}, entry {place}"
        if not isinstance(one, dict):
            raise DataError(f"{where} is {str(one)[:40]!r}; it must be an object")
        yield Entry(where, one)


def _whole(file: Path) -> Any:
    with _opened(file) as stream:
        content = stream.read(_WHOLE_CAP + 1)
    if len(content) > _WHOLE_CAP:
        raise DataError(f"{file} holds more than {_WHOLE_CAP:,} characters; split it")
    try:
        return json.loads(content.removeprefix("\ufeff"))
    except json.JSONDecodeError as wrong:
        where = f"{file}, line {wrong.lineno}, column {wrong.colno}"
        raise DataError(f"{where} is no JSON: {wrong.msg}; copy the file again") from wrong
    except RecursionError as wrong:
        raise DataError(f"{file} is nested too deeply to be one of these; copy it again") from wrong


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as raw:
            yield io.TextIOWrapper(cast("IO[bytes]", raw), encoding="utf-8", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as wrong:
        raise DataError(f"{file} cannot be read: {wrong}; copy it from its origin again") from wrong
