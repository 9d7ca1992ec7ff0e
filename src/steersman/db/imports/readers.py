"""Readers of JSON lines, CSV and Parquet logs with row numbers."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from steersman.errors import DataError
from steersman.errors.install_hint import extra
from steersman.wire import Refused, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
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
    """Row of a file.

    Attributes:
        number: line number, or row number in Parquet; from 1.
        row: fields; empty if unreadable.
        problem: why it is unreadable.
    """

    number: int
    row: dict[str, Any]
    problem: str | None = None


def read_rows(path: Path, kind: Kind | None) -> Iterator[Raw]:
    """Yield the rows of a file.

    `kind`: file type; None: from the file name.

    Raises:
        DataError: the file is unreadable or its type is unknown.
    """
    kind = kind or _KINDS.get(path.suffix.lower())
    if kind is None:
        ends = ", ".join(_KINDS)
        message = f"{path}: unknown file type; known are {ends}; set rows: in the mapping"
        raise DataError(message)
    try:
        yield from {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}[kind](path)
    except OSError as error:
        message = f"cannot read {path}: {error}; check the path and its permissions"
        raise DataError(message) from error


def _json_lines(path: Path) -> Iterator[Raw]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                    continue
                yield Raw(number, {}, f"longer than the maximum of {_LONGEST_LINE:,} bytes")
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
    # The field limit of csv is process-wide; here each row has its own limit.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))
    # Invalid UTF-8 becomes lone surrogates, so that the row can be reported.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        source = _Lines(file)
        try:
            lines = csv.DictReader(source, strict=True, restkey="", restval=None)
            names = lines.fieldnames or []
            if not _is_utf8(names):
                message = f"{path}:1: the header is not UTF-8; save the file as UTF-8"
                raise DataError(message)
            if len(set(names)) < len(names) or not all(names):
                message = f"{path}:1: the header has a duplicate or empty column name; correct it"
                raise DataError(message)
            yield from _csv_rows(lines, source)
        except csv.Error as error:
            message = f"{path}:1: the header is not valid CSV: {error}; correct it"
            raise DataError(message) from error


class _Lines:
    """Lines of a CSV file with a memory limit per row.

    Args:
        file: text file; lines keep their ends.

    Attributes:
        number: number of the last line, from 1.
    """

    def __init__(self, file: TextIO) -> None:
        self.number = 0
        self._file, self._room = file, _LONGEST_LINE

    def begin_row(self) -> None:
        self._room = _LONGEST_LINE

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._room + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) <= self._room:
            self._room -= len(line)
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self._file.readline(_LONGEST_LINE)
        raise csv.Error(f"longer than the maximum of {_LONGEST_LINE:,} characters")


def _csv_rows(lines: csv.DictReader[str], source: _Lines) -> Iterator[Raw]:
    while True:
        before = source.number
        source.begin_row()
        try:
            row = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            # An unclosed quote swallows the following lines; report where it begins.
            ended = source.number
            what = f" up to line {ended}; check for an unclosed quote" if ended > before + 1 else ""
            yield Raw(before + 1, {}, f"not a valid CSV row: {error}{what}")
            continue
        if "" in row or None in row.values():
            given = len([value for value in row.values() if value is not None])
            what = "more" if "" in row else f"{given}"
            columns = len(lines.fieldnames or [])
            yield Raw(source.number, {}, f"{what} values for {columns} columns; quote commas")
            continue
        if _is_utf8(row.values()):
            yield Raw(source.number, row)
        else:
            yield Raw(source.number, {}, "not UTF-8; save the file as UTF-8")


def _is_utf8(texts: Iterable[str]) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet(path: Path) -> Iterator[Raw]:
    pa, parquet = extra("pyarrow", "data"), extra("pyarrow.parquet", "data")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):  # otherwise a row would silently lose a value
                message = f"{path}: duplicate column name {_twice(names)!r:.60}; rename one"
                raise DataError(message)
            number = 0
            for batch in file.iter_batches(1_000):
                for row, problem in _plain_rows(_in_microseconds(pa, batch)):
                    number += 1
                    yield Raw(number, row, problem)
    except pa.ArrowException as error:
        message = f"{path}: not a readable Parquet file: {error}"
        raise DataError(message) from error


def _twice(names: Sequence[str]) -> str:
    return next(name for name in names if names.count(name) > 1)


def _plain_rows(batch: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield the rows of a batch as plain values, or a problem if Python cannot hold a value."""
    try:
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield row, None
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield {}, f"cannot read a value: {error}; correct it, or leave its column out"
            return
        for place in range(len(batch)):
            yield from _plain_rows(batch.slice(place, 1))


def _in_microseconds(pa: Any, batch: Any) -> Any:
    """Return a batch with times in microseconds; pandas writes nanoseconds."""
    fields = [field.with_type(_coarser(pa, field.type)) for field in batch.schema]
    schema = pa.schema(fields)
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


def _coarser(pa: Any, kind: Any) -> Any:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if pa.types.is_struct(kind):
        inner = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([field.with_type(_coarser(pa, field.type)) for field in inner])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_coarser(pa, kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_coarser(pa, kind.value_type)))
    return kind
