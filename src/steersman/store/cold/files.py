"""Parquet files: written in order with bounded memory, the same bytes for the same rows."""

from __future__ import annotations

import asyncio
from array import array
from hashlib import file_digest
from heapq import merge
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.store.cold.datasets import EVENT, schema
from steersman.store.extras import extra

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from steersman.store.cold.datasets import Dataset, Row
    from steersman.store.cold.ledger import Erased

_GROUP_ROWS = 10_000
_GROUP_BYTES = 32 << 20
_READ_ROWS = 1_000


class Writer:
    """Writes rows to one file, in row groups that depend on the rows alone.

    Args:
        path: where; what is there is overwritten.
        dataset: whose columns the rows have.
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
        """Append all rows; the event loop is left free while a group is encoded."""
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
        """Close the file as it is; it is not to be used."""
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
    """Return outcomes as a map; they come as a dict from the database, as pairs from a file."""
    if value is None:
        return None
    pairs = value.items() if isinstance(value, dict) else value
    return [(name, float(number)) for name, number in pairs]


def digest_of(path: Path) -> bytes:
    """Return the SHA-256 of a file.

    Args:
        path: of the file.
    """
    with path.open("rb") as file:
        return file_digest(file, "sha256").digest()


def read_rows(path: Path, dataset: Dataset, erased: Erased) -> Iterator[Row]:
    """Yield the rows of a file in order, without those that were erased since.

    Args:
        path: a file that `Writer` wrote.
        dataset: whose it is.
        erased: what must not be kept.

    Yields:
        Values in the order of today's columns; None in those that the file is older than.

    Raises:
        DataError: the file is damaged.
    """
    names = [column.name for column in dataset.columns]
    for row in _rows(path, names):
        if not _is_gone(dataset, row, erased):
            yield tuple(row.get(name) for name in names)


def read_keys(path: Path, dataset: Dataset, erased: Erased) -> Iterator[Row]:
    """Yield the keys of the rows that `read_rows` yields; much quicker.

    Args:
        path: a file that `Writer` wrote.
        dataset: whose it is.
        erased: what must not be kept.

    Raises:
        DataError: the file is damaged.
    """
    keys = [column.name for column in dataset.columns[: dataset.key]]
    for row in _rows(path, list(dict.fromkeys([*keys, *_owners(dataset)]))):
        if not _is_gone(dataset, row, erased):
            yield tuple(row[name] for name in keys)


def mentions(path: Path, dataset: Dataset, erased: Erased) -> bool:
    """Return whether a file holds anything that was erased since; reads two columns at most.

    Args:
        path: a file that `Writer` wrote.
        dataset: whose it is.
        erased: what must not be kept.

    Raises:
        DataError: the file is damaged.
    """
    return any(_is_gone(dataset, row, erased) for row in _rows(path, _owners(dataset)))


def _owners(dataset: Dataset) -> list[str]:
    """Return the columns that tell to whom a row belongs."""
    return [dataset.decision, *(["episode"] if dataset is EVENT else [])]


def _is_gone(dataset: Dataset, row: dict[str, Any], erased: Erased) -> bool:
    decision = row[dataset.decision]
    if decision is None:
        return row["episode"] in erased.episodes
    return decision in erased.decisions


def episodes(path: Path, erased: Erased) -> dict[str, str]:
    """Return the episodes of erased decisions that a file of decisions still holds.

    Args:
        path: a file that `Writer` wrote.
        erased: what must not be kept.

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
                # A file that has none of the columns has rows all the same.
                for row in zip(*columns, strict=True) if columns else [()] * len(batch):
                    yield dict(zip(batch.schema.names, row, strict=True))
    except (pa.ArrowException, OSError) as error:
        message = f"cannot read {path}: {error}; restore it from a backup of the cold store"
        raise DataError(message) from error


def _values(pa: Any, column: Any) -> list[Any]:
    """Return the values of a column as the database gives them.

    Features of many candidates are most of a file: as objects of their own, numbers take eight
    times the memory.
    """
    if not pa.types.is_list(column.type) or column.type.value_type != pa.float32():
        return list(column.to_pylist())
    return [
        array("f", each.values.to_numpy().tobytes()) if each.is_valid else None for each in column
    ]


def united(dataset: Dataset, files: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Yield the rows of several files as one sorted stream; of rows with the same key, the last.

    Args:
        dataset: whose rows they are.
        files: the rows of each, sorted by key; the newest file last.

    Yields:
        Each row once.
    """
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
    """Yield two sorted streams as one; of two rows with the same key, the new one.

    Args:
        dataset: whose rows they are.
        old: sorted by key.
        new: likewise.
    """
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


class NotCovered(Exception):  # noqa: N818 (nothing is wrong)
    """A file has a row that is not among the new ones; they must be merged."""


async def covering(
    dataset: Dataset, old_keys: Iterator[Row], new: AsyncIterator[Row]
) -> AsyncIterator[Row]:
    """Yield the new rows, as long as every old key is among them: then nothing is to be merged.

    Args:
        dataset: whose rows they are.
        old_keys: sorted.
        new: sorted by key.

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
