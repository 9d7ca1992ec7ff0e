"""Recorded evaluations: the measures by their definitions, and a file that is whole or refused."""

import json

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.ranking_metrics import ndcg_at, recall_at
from steersman_systems.rag_tuner.recorded import Recorded, graded, load_recorded
from tests.systems.rag_tuner.worlds import SPACE, world

RANKINGS = [["d3", "d1", "d9", "d2"], ["d7", "d8", "d6", "d5"]]
GAINS = [{"d1": 2.0, "d2": 1.0, "missing": 1.0}, {"d5": 1.0}]


def small(**changed):
    ideal = np.zeros((2, 10), np.float32)
    ideal[0, :3], ideal[1, :1] = [2, 1, 1], [1]
    given = {
        "collection": "small",
        "queries": ("q1", "q2"),
        "categories": ("a", ""),
        "splits": ("", ""),
        "keys": (("bm25", False, 0.5, False),),
        "gains": np.concatenate([graded([r], g, 4) for r, g in zip(RANKINGS, GAINS, strict=True)])[
            None
        ],
        "ideal": ideal,
        "relevant": np.array([3, 1]),
        "latency_ms": np.array([[1.5, 2.5]], np.float32),
        "about": {"embedder": "none"},
    }
    return Recorded(**given | changed)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_quality_is_recall_and_ndcg_as_defined(k):
    found = small().evaluate(Configuration("bm25", k=k), np.array([0, 1]))
    for row, (ranked, gains) in enumerate(zip(RANKINGS, GAINS, strict=True)):
        assert found.quality[row, 0] == pytest.approx(recall_at(ranked, gains, k))
        assert found.quality[row, 1] == pytest.approx(ndcg_at(ranked, gains, min(k, 10)))
    assert found.measures == ("recall", "ndcg")
    assert found.latency_ms.tolist() == [1.5, 2.5]
    assert found.cost.tolist() == [k / 16, k / 16]


def test_ndcg_looks_at_ten_places_and_recall_at_all():
    recorded = world(queries=20)
    ten, all_ = (recorded.evaluate(Configuration("bm25", k=k), np.arange(20)) for k in (10, 32))
    assert (ten.quality[:, 1] == all_.quality[:, 1]).all()
    assert all_.quality[:, 0].sum() > ten.quality[:, 0].sum()


def test_what_was_not_recorded_is_refused():
    recorded = small()
    assert recorded.holds(Configuration("bm25", k=4))
    for absent in (Configuration("bm25", k=5), Configuration("dense", k=3)):
        assert not recorded.holds(absent)
        with pytest.raises(InputError, match="steersman tune record"):
            recorded.evaluate(absent, np.array([0]))


def test_it_comes_back_from_its_file(tmp_path):
    recorded, file = world(queries=10), tmp_path / "deep" / "a.npz"
    recorded.save(file)
    again = load_recorded(file)
    assert list(file.parent.iterdir()) == [file]
    assert (again.queries, again.categories, again.keys) == (
        recorded.queries, recorded.categories, recorded.keys)  # fmt: skip
    assert again.about == {"made": "by hand"}
    for one in SPACE.all[::97]:
        mine, its = (r.evaluate(one, np.arange(10)) for r in (recorded, again))
        assert (mine.quality == its.quality).all()
        assert (mine.latency_ms == its.latency_ms).all()


def test_what_is_no_recording(tmp_path):
    file = tmp_path / "a.npz"
    with pytest.raises(DataError, match="steersman tune record"):
        load_recorded(file)
    small().save(file)
    whole = file.read_bytes()
    for damaged in (b"", b"no zip", whole[:-40], whole[:60] + bytes(40) + whole[100:]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz"):
            load_recorded(file)


@pytest.mark.parametrize(
    ("format_", "arrays", "says"),
    [
        (1, {"gains": np.array([{"a": 1}], dtype=object)}, r"a\.npz"),  # never unpickled
        (2, {}, "format 2, expected 1"),
    ],
)
def test_load_recorded_of_objects_or_another_format_is_refused(tmp_path, format_, arrays, says):
    file = tmp_path / "a.npz"
    head = np.frombuffer(json.dumps({"format": format_}).encode(), np.uint8)
    np.savez(file, head=head, **arrays)
    with pytest.raises(DataError, match=says):
        load_recorded(file)


@pytest.mark.parametrize(
    "changed",
    [
        {"queries": ()},
        {"categories": ("a",)},
        {"relevant": np.array([0, 1])},
        {"latency_ms": np.zeros((2, 2), np.float32)},
        {"keys": ()},
    ],
)
def test_what_does_not_fit_is_refused(changed):
    with pytest.raises(InputError):
        small(**changed)


def test_fewer_passages_are_told_by_the_same_evaluation():
    recorded = world(queries=20)
    batch = recorded.evaluate(Configuration("hybrid", k=20, expansion=True), np.arange(20))
    smaller = recorded.smaller(batch)
    assert [one.configuration.k for one in smaller] == [1, 2, 4, 6, 8, 13]
    for one in smaller:
        again = recorded.evaluate(one.configuration, one.queries)
        assert (one.quality == again.quality).all()
        assert one.configuration.expansion
    assert recorded.smaller(recorded.evaluate(Configuration("bm25", k=1), np.arange(3))) == []


@pytest.mark.parametrize("name", ["queries", "categories", "splits"])
def test_what_queries_are_split_by_tells_recordings_apart(name):
    assert small().sha256 == small().sha256
    assert small(**{name: ("x", "y")}).sha256 != small().sha256
