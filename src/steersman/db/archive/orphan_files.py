"""Cold files that are not registered in ``cold_export``.

A file with a generation below the valid one is obsolete. A file with a higher generation, or of a
day without a valid file, comes from a killed run or is newer than a restored backup, and may have
the only copy of its rows. So it is not removed; the next generation takes in its rows and replaces
it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from steersman.db.archive.ledger import Erased
from steersman.db.archive.parquet_files import read_rows
from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from steersman.db.archive.datasets import Dataset
    from steersman.db.archive.ledger import Export

_PART = re.compile(r"day=(\d{4}-\d\d-\d\d)/part-([1-9]\d{0,8})\.parquet")
_NOBODY = Erased(frozenset(), frozenset())


class Unnamed(NamedTuple):
    """Unregistered file.

    Attributes:
        generation: generation in its name.
        path: relative to the destination.
    """

    generation: int
    path: str


def sorted_out(
    folder: str, paths: Iterable[str], current: Mapping[date, Export]
) -> tuple[list[str], dict[date, list[Unnamed]]]:
    """Return the obsolete files, and by day the files whose rows to take in.

    >>> sorted_out("event/t", ["event/t/day=2026-03-01/part-7.parquet"], {})[1][date(2026, 3, 1)]
    [Unnamed(generation=7, path='event/t/day=2026-03-01/part-7.parquet')]
    """
    there = set(paths)
    found: dict[date, list[Unnamed]] = defaultdict(list)
    for path in there - {export.path for export in current.values()}:
        match = _PART.fullmatch(path.removeprefix(f"{folder}/"))
        day = _day(match[1]) if match else None
        if match and day:
            found[day].append(Unnamed(int(match[2]), path))
    replaced: list[str] = []
    ahead: dict[date, list[Unnamed]] = {}
    for day, files in found.items():
        export = current.get(day)
        newest = max(files).generation
        if export is None or (newest >= export.generation and export.path not in there):
            ahead[day] = sorted(files)  # lower generations too: their replacement is missing
        elif export.path in there:
            replaced += [file.path for file in files if file.generation < export.generation]
            if newest >= export.generation:
                ahead[day] = sorted(f for f in files if f.generation >= export.generation)
    return sorted(replaced), ahead


def check_whole(path: Path, dataset: Dataset, place: str) -> None:
    """Read an unregistered file completely, to reject a damaged one.

    Raises:
        DataError: the file cannot be read, or its rows are not in order.
    """
    last = None
    try:
        for row in read_rows(path, dataset, _NOBODY):
            key = dataset.key_of(row)
            if None in key or (last is not None and key <= last):
                raise ValueError(f"row {key} comes after {last}")  # noqa: TRY301 (told below)
            last = key
    except (DataError, KeyError, TypeError, ValueError) as error:
        message = (
            f"{place} is not registered in table cold_export, as after restoring an old backup, "
            f"and cannot be read: {error}; it may be the only copy of its rows: put an intact copy "
            "in its place, or move it out of the cold store to continue without it"
        )
        raise DataError(message) from error


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
