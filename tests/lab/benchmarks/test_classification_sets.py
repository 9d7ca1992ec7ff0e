"""Classification sets: any table of two classes or more, and what is wrong in one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import classification_sets
from benchmarks.classification_sets import load
from benchmarks.report import Options
from steersman.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, content: str | bytes) -> Options:
    file = folder / "uci" / "own.csv"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return Options(data=folder)


def test_numbers_are_standardised_and_kinds_one_hot_with_ones_beside_them(tmp_path: Path) -> None:
    options = write(
        tmp_path, "size,colour,always,label\n1,rot,0.1,b\n3,grün,0.1,a\n\n5,rot,0.1,b\n"
    )
    X, classes = load("own", options)
    raw = np.array([[-1, 0, 1, 0, 1], [0, 1, 0, 0, 1], [1, 0, 1, 0, 1]], float)
    raw[:, 0] *= np.sqrt(1.5)
    np.testing.assert_allclose(X, raw / np.sqrt((raw**2).sum(axis=1).mean()), atol=1e-12)
    assert classes.tolist() == [1, 0, 1]


def test_two_fields_are_enough_and_26_classes_not_too_many(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},{chr(65 + i % 26)}\n" for i in range(52))
    X, classes = load("own", write(tmp_path, "a,label\n" + rows))
    assert X.shape == (52, 2)
    assert classes.max() == 25


def test_a_first_line_that_is_no_heading_is_a_row(tmp_path: Path) -> None:
    X, classes = load("own", write(tmp_path, "1,2,x\n3,4,y\n5,6,x\n"))
    assert (len(X), classes.tolist()) == (3, [0, 1, 0])
    X, classes = load("own", write(tmp_path, "0,1,2\n3,4,0\n5,6,1\n7,8,1\n"))
    assert (len(X), classes.tolist()) == (3, [0, 1, 1])


@pytest.mark.parametrize("missing", ["?", "", "NA", "nan"])
def test_a_number_that_is_missing_is_the_mean_of_the_others(tmp_path: Path, missing: str) -> None:
    rows = [f"{value},x,{'ab'[i % 2]}\n" for i, value in enumerate(["1.5", missing, "2.5", "3.5"])]
    X, _ = load("own", write(tmp_path, "size,kind,label\n" + "".join(rows)))
    assert X.shape == (4, 3)
    assert np.isfinite(X).all()
    assert X[1, 0] == 0.0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "own.csv holds no row of data"),
        ("a,b,label\n", "own.csv holds no row of data"),
        ("a,b,label\n1,2,x\n\n3,y\n", "line 4: 2 columns, and 3 in the first row"),
        ("label\nx\ny\n", "line 1: 1 columns"),
        ("a,b,label\n1,2,x\n3,4,\n", "line 3: the label is empty"),
        ("a,b,label\n1,2,x\n3,4,x\n", "all 2 labels are 'x'; there must be two"),
        ("a,b,label\n1,inf,x\n3,4,y\n", "field 2 holds an infinite number"),
        ("a,b,label\n1,é,x\n".encode("latin-1"), "own.csv cannot be read: .*utf-8"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load("own", write(tmp_path, content))


def test_a_field_of_too_many_kinds_is_refused_before_it_takes_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classification_sets, "_WIDEST", 20)
    rows = "".join(f"name {i},{'ab'[i % 2]}\n" for i in range(21))
    with pytest.raises(DataError, match="field 1 has 21 kinds; 20 features are allowed in all"):
        load("own", write(tmp_path, "who,label\n" + rows))
