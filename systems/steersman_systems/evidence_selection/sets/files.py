"""Reader of data files by entry; errors name file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from steersman.errors import DataError
from steersman_systems.evidence_selection.sets.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WHOLE_CAP = 4_000_000_000
_LINE_CAP = 50_000_000
_SPLIT = re.compile(r"(?<![a-z])(train|dev|valid|test)")
_UNKEEPABLE = re.compile(r"\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000)")
"""JSON escapes of NUL and of surrogate halves; whole surrogate pairs are valid."""


def find(folder: Path, *patterns: str) -> Path | None:
    """Return the first existing file, plain or compressed; patterns in alphabetical order."""
    for pattern in patterns:
        written = (pattern, f"{pattern}l") if pattern.endswith(".json") else (pattern,)
        for glob in (f"{one}{packed}" for one in written for packed in ("", ".gz")):
            if found := sorted(_matching(folder, glob)):
                return found[0]
    return None


def all_needed(folder: Path, what: str, *patterns: str) -> list[Path]:
    """Return all files of the first pattern with a match, plain or compressed, in order.

    Raises:
        DataError: the file does not exist.
    """
    for pattern in patterns:
        plain = list(_matching(folder, pattern))
        packed = [
            one for one in _matching(folder, f"{pattern}.gz") if one.with_suffix("") not in plain
        ]
        if plain or packed:
            return sorted([*plain, *packed])
    return [needed(folder, what, *patterns)]


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield visible files; archives add hidden ``._x`` and ``__MACOSX/x``."""
    for one in folder.glob(pattern):
        parts = one.relative_to(folder).parts
        if one.is_file() and not any(part.startswith((".", "__MACOSX")) for part in parts):
            yield one


def needed(folder: Path, what: str, *patterns: str) -> Path:
    """Return `find`, or raise an error without a match.

    Raises:
        DataError: the file does not exist.
    """
    file = find(folder, *patterns)
    if file is None:
        looked = " or ".join(dict.fromkeys(one.removeprefix("**/") for one in patterns))
        below = " or below it" if any(one.startswith("**/") for one in patterns) else ""
        raise DataError(f"{folder} has no {looked} (or .gz), {what}; put it there{below}")
    return file


def split_of(file: Path) -> str:
    """Return the split in a file name: train, dev or test; "" without one.

    >>> from pathlib import Path
    >>> (
    ...     split_of(Path("topiocqa_valid.jsonl.gz")),
    ...     split_of(Path("scai-qrecc21-training-turns.json")),
    ... )
    ('dev', 'train')
    """
    told = _SPLIT.search(file.name)
    return told[1].replace("valid", "dev") if told else ""


def entries(file: Path) -> Iterator[Entry]:
    """Read objects from JSON lines or one JSON list.

    JSON lines are streamed, so a file may be larger than memory.

    Raises:
        DataError: the file cannot be read, a line is not a JSON object, or it is too large.
    """
    with _opened(file) as stream:
        first = stream.read(1)
        while first in {" ", "\n", "\r", "\t"}:
            first = stream.read(1)
    if first == "[":
        yield from _listed(file)
        return
    for number, line in lines(file):
        where = f"{file}, line {number}"
        try:
            value = _parsed(line)
        except (ValueError, RecursionError) as wrong:
            raise DataError(f"{where} is not JSON: {wrong}; copy the file again") from wrong
        if not isinstance(value, dict):
            raise DataError(f"{where} is {line[:40]!r}; it must be an object")
        yield Entry(where, value)


def document(file: Path) -> Entry:
    """Read a file with one JSON object.

    Raises:
        DataError: the file cannot be read, has another type, or is too large.
    """
    value = _whole(file)
    if not isinstance(value, dict):
        raise DataError(f"{file} holds {type(value).__name__}; it must be one JSON object")
    return Entry(str(file), value)


def table(file: Path, *, columns: int, quoted: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Read tab-separated rows, as (file and line, values).

    Raises:
        DataError: the file cannot be read, or a row has a wrong number of columns.
    """
    csv.field_size_limit(
        max(csv.field_size_limit(), _LINE_CAP)
    )  # global to the process, so never lowered
    rows = csv.reader(
        (line for _, line in _every_line(file)),
        delimiter="\t",
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    number = 1
    try:
        for row in rows:
            where, number = f"{file}, line {number}", rows.line_num + 1
            if len(row) == columns:
                yield where, row
            elif any(one.strip() for one in row):
                told = f"{len(row)} columns; there must be {columns}, between tabs"
                raise DataError(f"{where}: {told}")
    except csv.Error as wrong:
        raise DataError(f"{file}, line {number}: {wrong}; copy the file again") from wrong


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Read non-blank lines with their numbers from 1.

    Raises:
        DataError: the file cannot be read, or a line is longer than 50 million characters.
    """
    for number, line in _every_line(file):
        if line.strip():
            yield number, line.rstrip("\n")


def _every_line(file: Path) -> Iterator[tuple[int, str]]:
    with _opened(file) as stream:
        number = 0
        while line := stream.readline(_LINE_CAP):
            number += 1
            if len(line) == _LINE_CAP:
                message = f"{file}, line {number} is longer than {_LINE_CAP:,} characters"
                raise DataError(f"{message}; is this the right file?")
            yield number, line


def _listed(file: Path) -> Iterator[Entry]:
    value = _whole(file)
    for place, one in enumerate(value, 1):
        where = f"{file}, entry {place}"
        if not isinstance(one, dict):
            raise DataError(f"{where} is {str(one)[:40]!r}; it must be an object")
        yield Entry(where, one)


def _parsed(content: str) -> Any:
    """Return parsed JSON, with U+FFFD for invalid characters, which web pages contain."""
    value = json.loads(content)
    return _keepable(value) if _UNKEEPABLE.search(content) else value


def _keepable(value: Any) -> Any:
    if isinstance(value, str):
        whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return whole.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_keepable(one) for one in value]
    if isinstance(value, dict):
        return {_keepable(name): _keepable(one) for name, one in value.items()}
    return value


def _whole(file: Path) -> Any:
    with _opened(file) as stream:
        content = stream.read(_WHOLE_CAP + 1)
    if len(content) > _WHOLE_CAP:
        raise DataError(f"{file} holds more than {_WHOLE_CAP:,} characters; split it")
    try:
        return _parsed(content)
    except json.JSONDecodeError as wrong:
        where = f"{file}, line {wrong.lineno}, column {wrong.colno}"
        raise DataError(f"{where} is not JSON: {wrong.msg}; copy the file again") from wrong
    except RecursionError as wrong:
        raise DataError(f"{file} is nested too deeply to be one of these; copy it again") from wrong


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as raw:
            # utf-8-sig: some editors write a byte order mark, which is not part of the text.
            yield io.TextIOWrapper(cast("IO[bytes]", raw), encoding="utf-8-sig", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as wrong:
        raise DataError(f"{file} cannot be read: {wrong}; copy it from its origin again") from wrong
