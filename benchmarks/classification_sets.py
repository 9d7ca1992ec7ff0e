"""Classification sets as bandit problems: the action is the class, its reward 1 if right.

All figures use one preparation: categorical fields one-hot, numeric fields standardised over the
whole set, a column of ones, scaled to a mean squared norm of 1; then the first 2,000 rows of a
seeded shuffle. A missing numeric value (empty, ``?``, ``NA``, ``nan``) is replaced by the mean; a
missing categorical value is a separate category.

A set is ``digits`` (from scikit-learn), one of the UCI files below, or any ``NAME.csv`` in the
folder ``uci`` with the label in the last column. Its first line is a header, unless its last field
is also the label of another line.
"""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.report import Options

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Row = tuple[str, list[str]]

DEFAULT_SETS = ("digits", "satimage", "mushroom", "adult")
_FILES = {
    "satimage": ("sat.trn", " ", 0, -1),
    "mushroom": ("agaricus-lepiota.data", ",", 1, 0),
    "adult": ("adult.data", ",", 0, -1),
}  # name -> file, delimiter, header rows, column of the label
_ORIGIN = "the UCI Machine Learning Repository"
_MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
_WIDEST = 2_000
"""Maximum number of features: every arm stores its square."""


def load(name: str, options: Options) -> tuple[Floats, Labels]:
    """Return X (n, d) and the classes (n,) in 0..K-1 of one set.

    Raises:
        DataError: the folder or file is missing, or is not a table with at least two classes; the
            message names file and line.
    """
    if name == "digits":
        from sklearn.datasets import load_digits  # noqa: PLC0415 -- heavy, for this set alone

        raw, labels = load_digits(return_X_y=True)
        return _finished(_standardised(np.asarray(raw, dtype=np.float64)), labels)
    file, delimiter, header, label = _FILES.get(name, (f"{name}.csv", ",", 1, -1))
    path = options.folder("uci", _ORIGIN) / file
    rows = _rows(path, delimiter)
    if name not in _FILES and any(row[-1] == rows[0][1][-1] for _, row in rows[1:]):
        header = 0
    rows = rows[header:]
    if not rows:
        raise DataError(f"{path} holds no row of data; the original is at {_ORIGIN}")
    place = label % len(rows[0][1])
    fields = [[*row[:place], *row[place + 1 :]] for _, row in rows]
    return _finished(_columns(path, fields), _labels(path, rows, place))


def stream(X: Floats, classes: Labels, seed: int, rows: int = 2000) -> tuple[Floats, Labels]:
    """Return the first ``rows`` rows of a seeded shuffle."""
    order = np.random.default_rng(seed).permutation(len(X))[:rows]
    return X[order], classes[order]


def _rows(file: Path, delimiter: str) -> list[Row]:
    """Return the non-blank rows with file and line; all have the same number of columns."""
    if not file.is_file():
        raise DataError(f"{file} is missing; the original is at {_ORIGIN}")
    rows: list[Row] = []
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            read = csv.reader(lines, delimiter=delimiter)
            for row in read:
                cells = [cell.strip() for cell in row]
                if any(cells):
                    rows.append((f"{file}, line {read.line_num}", cells))
    except (OSError, UnicodeDecodeError, csv.Error) as wrong:
        raise DataError(f"{file} cannot be read: {wrong}; write it as CSV in UTF-8") from wrong
    for where, row in rows:
        if len(row) != len(rows[0][1]) or len(row) < 2:
            told = f"{len(row)} columns, and {len(rows[0][1])} in the first row"
            raise DataError(f"{where}: {told}; each row has two or more, and all as many")
    return rows


def _labels(file: Path, rows: Sequence[Row], place: int) -> list[str]:
    for where, row in rows:
        if not row[place]:
            raise DataError(f"{where}: the label is empty; name the class, or drop the row")
    labels = [row[place] for _, row in rows]
    if len(set(labels)) < 2:
        raise DataError(f"{file}: all {len(rows)} labels are {labels[0]!r}; there must be two")
    return labels


def _columns(file: Path, rows: Sequence[Sequence[str]]) -> Floats:
    parts: list[Floats] = []
    for number, column in enumerate(zip(*rows, strict=True), 1):
        numbers = _numbers(column)
        if numbers is not None:
            if np.isinf(numbers).any():
                raise DataError(f"{file}: field {number} holds an infinite number; leave it empty")
            parts.append(_standardised(numbers[:, None]))
            continue
        names, codes = np.unique(column, return_inverse=True)
        if len(names) + sum(part.shape[1] for part in parts) > _WIDEST:
            message = f"{file}: field {number} has {len(names):,} kinds"
            raise DataError(f"{message}; {_WIDEST:,} features are allowed in all, so leave it out")
        parts.append(np.eye(len(names))[codes])
    return np.hstack(parts)


def _numbers(column: Sequence[str]) -> Floats | None:
    """Return a numeric field with NaN for missing values; None for a categorical field."""
    try:
        found = [math.nan if cell.lower() in _MISSING else float(cell) for cell in column]
    except ValueError:
        return None
    numbers = np.array(found, dtype=np.float64)
    return None if np.isnan(numbers).all() else numbers


def _standardised(X: Floats) -> Floats:
    if np.isnan(X).any():
        X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    # Not by the deviation: rounding can make that of equal numbers differ from 0.
    spread = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
    standard: Floats = (X - X.mean(axis=0)) / spread
    return standard


def _finished(X: Floats, labels: Sequence[object] | Labels) -> tuple[Floats, Labels]:
    with_bias = np.hstack([X, np.ones((len(X), 1))])
    scaled = with_bias / np.sqrt((with_bias**2).sum(axis=1).mean())
    return scaled, np.unique(np.asarray(labels), return_inverse=True)[1]
