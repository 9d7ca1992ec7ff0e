"""Classification sets as bandit problems: the action is the class, its reward 1 if right.

The preparation is the one that every figure here is quoted with: categorical fields one-hot,
numeric fields standardised over the whole set, a column of ones, scaled to a mean squared norm of
1; then the first 2,000 rows of a seeded shuffle. A set is ``digits`` (from scikit-learn), one of
the UCI files below, or any ``NAME.csv`` in the folder ``uci`` with the label in the last column.
"""

from __future__ import annotations

import csv
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

DEFAULT_SETS = ("digits", "satimage", "mushroom", "adult")
_FILES = {
    "satimage": ("sat.trn", " ", 0, -1),
    "mushroom": ("agaricus-lepiota.data", ",", 1, 0),
    "adult": ("adult.data", ",", 0, -1),
}  # name -> file, delimiter, header rows, place of the label
_ORIGIN = "the UCI Machine Learning Repository"


def load(name: str, options: Options) -> tuple[Floats, Labels]:
    """Return X (n, d) and the classes (n,) in 0..K-1 of one set.

    Raises:
        DataError: the folder or file is missing.
    """
    if name == "digits":
        from sklearn.datasets import load_digits  # noqa: PLC0415 -- heavy, and for this set alone

        raw, labels = load_digits(return_X_y=True)
        return _finished(_standardised(np.asarray(raw, dtype=np.float64)), labels)
    file, delimiter, header, label = _FILES.get(name, (f"{name}.csv", ",", 1, -1))
    rows = _rows(options.folder("uci", _ORIGIN) / file, delimiter)[header:]
    place = label % len(rows[0])
    fields = [[*row[:place], *row[place + 1 :]] for row in rows]
    return _finished(_columns(fields), [row[place] for row in rows])


def stream(X: Floats, classes: Labels, seed: int, rows: int = 2000) -> tuple[Floats, Labels]:
    """Return the first ``rows`` rows of a seeded shuffle."""
    order = np.random.default_rng(seed).permutation(len(X))[:rows]
    return X[order], classes[order]


def _rows(file: Path, delimiter: str) -> list[list[str]]:
    if not file.is_file():
        raise DataError(f"{file} is missing; the original is at {_ORIGIN}")
    with file.open(newline="") as lines:
        read = csv.reader(lines, delimiter=delimiter)
        return [[cell.strip() for cell in row] for row in read if len(row) > 3]


def _columns(rows: Sequence[Sequence[str]]) -> Floats:
    parts: list[Floats] = []
    for column in zip(*rows, strict=True):
        try:
            parts.append(_standardised(np.array(column, dtype=np.float64)[:, None]))
        except ValueError:
            names, codes = np.unique(column, return_inverse=True)
            parts.append(np.eye(len(names))[codes])
    return np.hstack(parts)


def _standardised(X: Floats) -> Floats:
    spread = X.std(axis=0)
    standard: Floats = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return standard


def _finished(X: Floats, labels: Sequence[object] | Labels) -> tuple[Floats, Labels]:
    with_bias = np.hstack([X, np.ones((len(X), 1))])
    scaled = with_bias / np.sqrt((with_bias**2).sum(axis=1).mean())
    return scaled, np.unique(np.asarray(labels), return_inverse=True)[1]
