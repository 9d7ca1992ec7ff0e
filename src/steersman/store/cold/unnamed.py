"""Files that table ``cold_export`` does not name: which were replaced, and which may be needed.

A generation lower than the one that counts was replaced by it. One that is higher, or of a day that
none counts for, was left by a run that was killed, or is newer than the backup which the database
was restored from: then its rows may be nowhere else. So it is never removed as it is; its rows are
taken into the next generation, which replaces it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from steersman.errors import DataError
from steersman.store.cold.files import read_rows
from steersman.store.cold.ledger import Erased

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from steersman.store.cold.datasets import Dataset
    from steersman.store.cold.ledger import Export

_PART = re.compile(r"day=(\d{4}-\d\d-\d\d)/part-([1-9]\d{0,8})\.parquet")
_NOBODY = Erased(frozenset(), frozenset())


class Unnamed(NamedTuple):
    """A file that no export names.

    Attributes:
        generation: from its name.
        path: relative to the destination.
    """

    generation: int
    path: str


def sorted_out(
    folder: str, paths: Iterable[str], current: Mapping[date, Export]
) -> tuple[list[str], dict[date, list[Unnamed]]]:
    """Return which files were replaced, and which rows are to be taken in from.

    Args:
        folder: of one tenant's files of one dataset.
        paths: of all files below it; what has not got the name of a file of ours is left alone.
        current: the files that count, by day.

    Returns:
        Paths of replaced files; and by day the other unnamed ones, the lowest generation first.

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
            ahead[day] = sorted(files)  # the lower ones too: what replaced them is gone
        elif export.path in there:
            replaced += [file.path for file in files if file.generation < export.generation]
            if newest >= export.generation:
                ahead[day] = sorted(f for f in files if f.generation >= export.generation)
    return sorted(replaced), ahead


def check_whole(path: Path, dataset: Dataset, place: str) -> None:
    """Read all of an unnamed file, so that nothing is taken in from one that is damaged.

    Args:
        path: of the file, here.
        dataset: whose it is.
        place: its path in the cold store.

    Raises:
        DataError: it cannot be read, or its rows are not in order.
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
