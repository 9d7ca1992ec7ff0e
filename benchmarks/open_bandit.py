"""The Open Bandit Dataset (small version): rows of the random and the Thompson-sampling logs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["CAMPAIGNS", "ORIGIN", "BanditLog", "load_log"]

CAMPAIGNS = ("all", "men")
"""Campaigns of the small version; other campaigns in its format can be named."""
ORIGIN = "https://github.com/st-tech/zr-obp (obd folder of the obp wheel on PyPI, Apache-2.0)"
_COLUMNS = ("item_id", "click", "propensity_score")
_AFFINITY = "user-item_affinity_"


@dataclass(frozen=True, eq=False)
class BanditLog:
    """One policy's log of one campaign.

    Args:
        items: Item shown, in [0, K), shape (n,).
        clicks: 1 where it was clicked, shape (n,).
        propensities: Logged probability of the item at its position, shape (n,).
        actions: K, the number of items.
    """

    items: NDArray[np.int64]
    clicks: Floats
    propensities: Floats
    actions: int


def load_log(folder: Path, policy: str, campaign: str) -> BanditLog:
    """Return one log in the published CSV format.

    Args:
        folder: Directory that holds ``random/`` and ``bts/``.
        policy: ``"random"`` or ``"bts"``.
        campaign: Campaign name, such as ``"all"`` (80 items) or ``"men"`` (34).

    Returns:
        The rows in order. The number of items is that of the affinity columns; without these,
        that of the rows of ``item_context.csv`` beside the log.

    Raises:
        DataError: The file is missing, has other columns or no row, or an invalid value: an
            unknown item, or a propensity outside (0, 1]. The message names file and line.
    """
    file = folder / policy / campaign / f"{campaign}.csv"
    if not file.is_file():
        message = f"{file} is missing; the original is at {ORIGIN}"
        raise DataError(message)
    header, *rows = _read(file)
    if missing := [name for name in _COLUMNS if name not in header]:
        message = f"{file} has no column {', '.join(missing)}; the original is at {ORIGIN}"
        raise DataError(message)
    if not rows:
        message = f"{file} holds no row; the original is at {ORIGIN}"
        raise DataError(message)
    actions = sum(name.startswith(_AFFINITY) for name in header)
    actions = actions or len(_read(file.with_name("item_context.csv"))) - 1
    at = [header.index(name) for name in _COLUMNS]
    items, clicks, propensities = _numbers(file, rows, at, actions).T
    return BanditLog(items.astype(np.int64), clicks, propensities, actions)


def _read(file: Path) -> list[list[str]]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as wrong:
        message = f"{file} cannot be read: {wrong}; the original is at {ORIGIN}"
        raise DataError(message) from wrong
    if not rows:
        message = f"{file} is empty; the original is at {ORIGIN}"
        raise DataError(message)
    return rows


def _numbers(file: Path, rows: Sequence[Sequence[str]], at: Sequence[int], actions: int) -> Floats:
    """Return (n, 3) item, click and propensity of each row."""
    found = np.zeros((len(rows), len(at)))
    for place, row in enumerate(rows):
        try:
            found[place] = item, click, propensity = [float(row[column]) for column in at]
        except (ValueError, IndexError):
            item, click, propensity = -1.0, 0.0, 0.0
        sound = item in range(actions) and click in {0, 1} and 0 < propensity <= 1
        if not sound:
            told = ", ".join(
                f"{name} {row[column] if column < len(row) else 'absent'!r}"
                for name, column in zip(_COLUMNS, at, strict=True)
            )
            message = f"{file}, row {place + 1} below the headings: {told}; allowed are items 0 to "
            raise DataError(f"{message}{actions - 1}, clicks 0 and 1, and propensities in (0, 1]")
    return found
