"""The retrieval benchmark takes any collection in the documented format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import retrieval
from benchmarks.report import Options
from steersman.errors import DataError
from tests.retrieval.hashed_words import HashedWords

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("bm25s")

PASSAGES = [
    {"id": "a", "title": "Ada Byron", "text": "She wrote for Charles Babbage."},
    {"id": "b", "title": "Charles Babbage", "text": "He designed an engine of brass."},
    {"id": "c", "title": "Brass", "text": "Copper and zinc."},
    {"id": "d", "title": "Tin", "text": "A soft metal."},
]
QUESTIONS = [
    {"id": "1", "question": "for whom did Ada write, and of what", "gold": ["a", "b"]},
    {"id": "2", "question": "what is brass made of", "gold": ["c"]},
    {"id": "3", "question": "which metal is soft", "gold": ["d", "gone"]},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "metals"
    folder.mkdir()
    for name, rows in (("passages", PASSAGES), ("questions", QUESTIONS)):
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(content, encoding="utf-8")
    return tmp_path


def figures(data: Path) -> dict[str, retrieval.Figure]:
    judged = retrieval._judged("metals", Options(data=data), HashedWords())
    return {one.name: one for one in retrieval._quality("metals", judged)}


def test_a_set_of_ones_own_is_measured_without_goals(data: Path) -> None:
    found = figures(data)
    about = "metals (all, 3 questions)"
    bm25 = found[f"{about}, bm25: nDCG@10"]
    assert 0 < bm25.value < 1
    assert bm25.low is not None
    assert bm25.low < bm25.value
    assert (bm25.goal, bm25.holds) == (None, None)
    compared = found[f"{about}, convex over bm25: nDCG@10"]
    assert compared.value == pytest.approx(found[f"{about}, convex: nDCG@10"].value - bm25.value)


def test_gold_that_is_missing_is_counted_as_missed(data: Path) -> None:
    whole = figures(data)["metals (all, 3 questions), convex, expanded: all gold@10"]
    assert whole.value == pytest.approx(2 / 3)


def test_a_set_that_is_not_there_is_named(data: Path) -> None:
    with pytest.raises(DataError, match="'woods' is not in"):
        retrieval._judged("woods", Options(data=data), HashedWords())


def test_vectors_beyond_those_of_texts_lie_between_them() -> None:
    rows = retrieval._vectors(["a wing", "brass", "tin"], HashedWords())
    assert rows.shape == (retrieval.VECTORS, 32)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-5)


def test_both_ways_are_timed_for_every_query() -> None:
    asked: list[tuple[str, int]] = []
    one, other = retrieval._paired_ms(
        [1, 2, 3], lambda query: asked.append(("one", query)), lambda q: asked.append(("other", q))
    )
    assert (one.shape, other.shape) == ((3,), (3,))
    assert (one > 0).all()
    # Three to warm up, then in turns.
    assert asked[6:] == [
        ("other", 1),
        ("one", 1),
        ("one", 2),
        ("other", 2),
        ("other", 3),
        ("one", 3),
    ]


def test_turns_of_one_conversation_are_no_questions_of_their_own() -> None:
    values, unit = np.repeat([0.0, 1.0, 1.0, 0.0, 1.0], 8), np.repeat(np.arange(5), 8)
    low, high = retrieval._interval(values, unit)
    alone = retrieval._interval(values, np.arange(40))
    assert high - low > 2 * (alone[1] - alone[0])


def test_no_mean_is_certain_because_all_questions_were_alike() -> None:
    low, high = retrieval._interval(np.ones(10), np.arange(10))
    assert (round(low, 3), high) == (0.692, 1.0)
    low, high = retrieval._interval(np.zeros(10), np.arange(10), least=-1.0)
    assert -0.32 < low < -0.3
    assert high == -low
    assert np.isnan(retrieval._interval(np.array([0.5, 1.0]), np.zeros(2, np.intp))).all()
    low, high = retrieval._interval(np.array([0.0, 1.0, 1.0]), np.arange(3))
    assert (low, high) == (0.0, 1.0), "no mean of shares is outside"
