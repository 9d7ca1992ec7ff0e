"""Parquet files: ordered writes with bounded memory and reproducible bytes."""

from __future__ import annotations

import asyncio
from array import array
from hashlib import file_digest
from heapq import merge
from typing import TYPE_CHECKING, Any

from steersman.db.archive.datasets import EVENT, schema
from steersman.errors import DataError
from steersman.errors.install_hint import extra

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from steersman.db.archive.datasets import Dataset, Row
    from steersman.db.archive.ledger import ErasureRecord

_GROUP_ROWS = 10_000
_GROUP_BYTES = 32 << 20
_READ_ROWS = 1_000


class Writer:
    """Parquet writer whose row groups depend only on the rows.

    Args:
        path: output path; an existing file is overwritten.
        dataset: dataset of the rows.
    """

    def __init__(self, path: Path, dataset: Dataset) -> None:
        self.rows = 0
        self._path = path
        self._schema = schema(dataset)
        self._sized = [
            i for i, c in enumerate(dataset.columns) if c.type in ("json", "floats", "texts")
        ]
        self._maps = [i for i, c in enumerate(dataset.columns) if c.type == "numbers"]
        self._group: list[Row] = []
        self._bytes = 0
        parquet = extra("pyarrow.parquet", "data")
        self._file = parquet.ParquetWriter(path, self._schema, compression="zstd", version="2.6")

    async def write(self, rows: AsyncIterator[Row]) -> None:
        """Append all rows; encoding does not block the event loop."""
        async for row in rows:
            self._group.append(row)
            self._bytes += sum(len(row[place] or ()) for place in self._sized)
            if len(self._group) == _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                await asyncio.to_thread(self._flush)

    def close(self) -> bytes:
        """Finish the file.

        Returns:
            Its SHA-256.
        """
        self._flush()
        self._file.close()
        return digest_of(self._path)

    def abandon(self) -> None:
        """Close an incomplete file."""
        self._file.close()

    def _flush(self) -> None:
        if not self._group:
            return
        pa = extra("pyarrow", "data")
        columns = list(zip(*self._group, strict=True))
        for place in self._maps:
            columns[place] = tuple(_pairs(value) for value in columns[place])
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._file.write_table(
            pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=len(self._group)
        )
        self.rows += len(self._group)
        self._group, self._bytes = [], 0


def _pairs(value: Any) -> list[tuple[str, float]] | None:
    """Return outcomes as a map, from a dict (database) or pairs (file)."""
    if value is None:
        return None
    pairs = value.items() if isinstance(value, dict) else value
    return [(name, float(number)) for name, number in pairs]


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").digest()


def read_rows(path: Path, dataset: Dataset, erased: ErasureRecord) -> Iterator[Row]:
    """Yield the rows of a file in order, without rows erased since.

    Yields:
        Values in the current column order; None in columns that the file lacks.

    Raises:
        DataError: the file is damaged.
    """
    names = [column.name for column in dataset.columns]
    for row in _rows(path, names):
        if not _is_gone(dataset, row, erased):
            yield tuple(row.get(name) for name in names)


def read_keys(path: Path, dataset: Dataset, erased: ErasureRecord) -> Iterator[Row]:
    """Yield the keys of `read_rows`, faster.

    Raises:
        DataError: the file is damaged.
    """
    keys = [column.name for column in dataset.columns[: dataset.key]]
    for row in _rows(path, list(dict.fromkeys([*keys, *_owners(dataset)]))):
        if not _is_gone(dataset, row, erased):
            yield tuple(row[name] for name in keys)


def mentions(path: Path, dataset: Dataset, erased: ErasureRecord) -> bool:
    """Return whether a file has rows erased since; reads at most two columns.

    Raises:
        DataError: the file is damaged.
    """
    return any(_is_gone(dataset, row, erased) for row in _rows(path, _owners(dataset)))


def _owners(dataset: Dataset) -> list[str]:
    """Return the columns that identify the owner of a row."""
    return [dataset.decision, *(["episode"] if dataset is EVENT else [])]


def _is_gone(dataset: Dataset, row: dict[str, Any], erased: ErasureRecord) -> bool:
    decision = row[dataset.decision]
    if decision is None:
        return row["episode"] in erased.episodes
    return decision in erased.decisions


def episodes(path: Path, erased: ErasureRecord) -> dict[str, str]:
    """Return the episodes of erased decisions in a file of decisions.

    Raises:
        DataError: the file is damaged.
    """
    return {
        row["id"]: row["episode"]
        for row in _rows(path, ["id", "episode"])
        if row["id"] in erased.decisions and row["episode"] is not None
    }


def _rows(path: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    pa, parquet = extra("pyarrow", "data"), extra("pyarrow.parquet", "data")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_READ_ROWS, columns=names):
                columns = [_values(pa, column) for column in batch.columns]
                # A file without any of the columns still has rows.
                for row in zip(*columns, strict=True) if columns else [()] * len(batch):
                    yield dict(zip(batch.schema.names, row, strict=True))
    except (pa.ArrowException, OSError) as error:
        message = f"cannot read {path}: {error}; restore it from a backup of the cold store"
        raise DataError(message) from error


def _values(pa: Any, column: Any) -> list[Any]:
    """Return the values of a column as the database returns them.

    Features are most of a file. As Python objects, numbers would take eight times the memory.
    """
    if not pa.types.is_list(column.type) or column.type.value_type != pa.float32():
        return list(column.to_pylist())
    return [
        array("f", each.values.to_numpy().tobytes()) if each.is_valid else None for each in column
    ]


def united(dataset: Dataset, files: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Merge sorted files into one stream; for equal keys the last file wins."""
    last: Row | None = None
    newest_first = [((dataset.key_of(row), row) for row in rows) for rows in reversed(files)]
    # Of equal keys `merge` yields that of the first iterator first.
    for key, row in merge(*newest_first, key=lambda pair: pair[0]):
        if key != last:
            yield row
            last = key


async def merged(
    dataset: Dataset, old: Iterator[Row], new: AsyncIterator[Row]
) -> AsyncIterator[Row]:
    """Merge two sorted streams; for equal keys the new row wins."""
    key_of = dataset.key_of
    waiting = next(old, None)
    async for row in new:
        key = key_of(row)
        while waiting is not None and key_of(waiting) < key:
            yield waiting
            waiting = next(old, None)
        if waiting is not None and key_of(waiting) == key:
            waiting = next(old, None)
        yield row
    while waiting is not None:
        yield waiting
        waiting = next(old, None)


class NotCovered(Exception):  # noqa: N818 (not an error)
    """Raised if the file has a row that the new rows lack; a merge is needed."""


async def covering(
    dataset: Dataset, old_keys: Iterator[Row], new: AsyncIterator[Row]
) -> AsyncIterator[Row]:
    """Yield the new rows while they contain every old key, so that no merge is needed.

    Raises:
        NotCovered: an old row is not among the new ones.
    """
    waiting = next(old_keys, None)
    async for row in new:
        if waiting is not None and (key := dataset.key_of(row)) >= waiting:
            if key > waiting:
                raise NotCovered
            waiting = next(old_keys, None)
        yield row
    if waiting is not None:
        raise NotCovered
