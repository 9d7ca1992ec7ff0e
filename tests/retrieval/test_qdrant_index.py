"""Qdrant, within this process, finds what comparing all vectors finds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.qdrant_index import QdrantIndex
from tests.retrieval.real_vectors import real_vectors

edge = pytest.importorskip("qdrant_edge")


def unit(count, size=24, seed=0):
    rows = np.random.default_rng(seed).standard_normal((count, size))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("count", [3, 2_500])
def test_it_finds_what_comparing_all_finds(count):
    rows = unit(count)
    index, exact = QdrantIndex(rows), ExactIndex(rows)
    assert (len(index), index.size) == (count, 24)
    shared = total = 0
    for query in unit(30, seed=1):
        found, scores = index.search(query, 10)
        right, cosines = exact.search(query, 10)
        assert len(found) == min(10, count)
        np.testing.assert_allclose(scores[0], cosines[0], atol=1e-3)
        assert (np.diff(scores) <= 0).all()
        shared += len(set(found.tolist()) & set(right.tolist()))
        total += len(right)
    assert shared / total >= 0.95
    index.close()


def test_it_finds_real_texts():
    rows, queries = real_vectors()
    index, exact = QdrantIndex(rows), ExactIndex(rows)
    shared = sum(
        len(set(index.search(one, 10)[0].tolist()) & set(exact.search(one, 10)[0].tolist()))
        for one in queries
    )
    index.close()
    assert shared / (10 * len(queries)) >= 0.95


def test_no_vectors_find_nothing(tmp_path):
    index = QdrantIndex(np.zeros((0, 4), np.float32), folder=tmp_path / "shard")
    positions, scores = index.search(np.array([1, 0, 0, 0], np.float32), 5)
    assert (len(index), positions.tolist(), scores.tolist()) == (0, [], [])
    index.close()


def test_bad_vectors_and_numbers_are_told():
    index = QdrantIndex(unit(3))
    with pytest.raises(InputError, match="dimension 24"):
        index.search(np.ones(3, np.float32), 5)
    with pytest.raises(InputError, match="k is 0"):
        index.search(unit(1)[0], 0)
    index.close()
    for wrong in (np.zeros(3), np.zeros((3, 0)), np.full((1, 2), np.nan)):
        with pytest.raises(InputError, match="vectors have shape"):
            QdrantIndex(wrong)
    with pytest.raises(InputError, match="breadth is 0"):
        QdrantIndex(unit(1), breadth=0)


def test_without_the_extra_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "qdrant_edge", None)
    with pytest.raises(DataError, match=re.escape(how_to_install("qdrant"))):
        QdrantIndex(unit(1))
