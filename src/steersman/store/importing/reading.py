"""Rows of logs: JSON lines, CSV and Parquet, each with the number to find it again."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steersman.errors import DataError
from steersman.store.extras import extra
from steersman.wire import Refused, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["jsonl", "csv", "parquet"]
_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
_LONGEST_LINE = 1 << 20


class Raw(NamedTuple):
    """One row of a file.

    Attributes:
        number: the line in a text, the row in a Parquet file; from 1.
        row: its fields; empty if it could not be read.
        problem: why it could not be read.
    """

    number: int
    row: dict[str, Any]
    problem: str | None = None


def read_rows(path: Path, kind: Kind | None) -> Iterator[Raw]:
    """Yield the rows of a file, one after the other.

    Args:
        path: of the file.
        kind: what it is; None: by the end of its name.

    Raises:
        DataError: the file cannot be read at all, or nothing tells what kind it is.
    """
    kind = kind or _KINDS.get(path.suffix.lower())
    if kind is None:
        ends = ", ".join(_KINDS)
        message = f"{path}: no known kind of file; known are {ends}; say rows: in the mapping"
        raise DataError(message)
    try:
        yield from {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}[kind](path)
    except OSError as error:
        message = f"{path}: cannot be read: {error}; check the path and its permissions"
        raise DataError(message) from error


def _json_lines(path: Path) -> Iterator[Raw]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                    continue
                yield Raw(number, {}, f"longer than {_LONGEST_LINE:,} bytes; allowed is less")
            elif line.strip():
                yield _json_line(number, line)


def _json_line(number: int, line: bytes) -> Raw:
    try:
        row = read(line.removeprefix(b"\xef\xbb\xbf"), max_bytes=_LONGEST_LINE + 1)
    except Refused as error:
        return Raw(number, {}, str(error))
    if not isinstance(row, dict):
        return Raw(number, {}, f"a {type(row).__name__}; allowed is an object with fields")
    return Raw(number, row)


def _csv(path: Path) -> Iterator[Raw]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            lines = csv.DictReader(file, strict=True, restkey="", restval=None)
            names = lines.fieldnames or []
            if len(set(names)) < len(names) or not all(names):
                message = f"{path}:1: the header names a column twice or not at all; correct it"
                raise DataError(message)
            yield from _csv_rows(lines)
        except csv.Error as error:
            message = f"{path}:1: the header is no row of CSV: {error}; correct it"
            raise DataError(message) from error
        except UnicodeDecodeError as error:
            message = f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8"
            raise DataError(message) from error


def _csv_rows(lines: csv.DictReader[str]) -> Iterator[Raw]:
    while True:
        before = lines.reader.line_num
        try:
            row = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            # A quote that is not closed takes all with it that follows: where does it begin?
            ended = lines.reader.line_num
            what = f" up to line {ended}; is a quote not closed?" if ended > before + 1 else ""
            yield Raw(before + 1, {}, f"no row of CSV: {error}{what}")
            continue
        if "" in row or None in row.values():
            given = len([value for value in row.values() if value is not None])
            what = "more" if "" in row else f"{given}"
            columns = len(lines.fieldnames or [])
            yield Raw(lines.line_num, {}, f"{what} values for {columns} columns; quote commas")
            continue
        yield Raw(lines.line_num, row)


def _parquet(path: Path) -> Iterator[Raw]:
    pa, parquet = extra("pyarrow", "data"), extra("pyarrow.parquet", "data")
    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(1_000):
                for row in batch.to_pylist(maps_as_pydicts="lossy"):
                    number += 1
                    yield Raw(number, row)
    except pa.ArrowException as error:
        message = f"{path}: no Parquet file that can be read: {error}; check it"
        raise DataError(message) from error
