"""The exact index finds the nearest vectors, and takes none that are not of length one."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.retrieval.exact_index import ExactIndex, _LeadingComponents


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("count", "size"), [(1, 1), (7, 3), (500, 32)])
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_the_nearest_are_those_of_comparing_all(count, size, k):
    rng = np.random.default_rng(count)
    rows, queries = (unit(rng.standard_normal((n, size))) for n in (count, 20))
    index = ExactIndex(rows)
    assert (len(index), index.size) == (count, size)
    for query in queries:
        positions, cosines = index.search(query, k)
        exact = rows.astype(np.float64) @ query.astype(np.float64)
        assert len(positions) == min(k, count)
        np.testing.assert_allclose(cosines, exact[positions], atol=1e-6)
        np.testing.assert_allclose(cosines, np.sort(exact)[::-1][:k], atol=1e-6)


def test_equal_vectors_come_by_position():
    rows = np.tile(unit(np.ones((1, 4))), (9, 1))
    assert ExactIndex(rows).search(rows[0], 3)[0].tolist() == [0, 1, 2]


def test_no_vector_is_an_empty_answer():
    index = ExactIndex(np.zeros((0, 4), np.float32))
    positions, cosines = index.search(np.array([1, 0, 0, 0], np.float32), 5)
    assert (len(positions), len(cosines)) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (np.ones(4), "shape"),
        (np.ones((2, 0)), "shape"),
        (np.array([[1.0, 0.0], [1.0, 1.0]]), "vector 1 has norm 1.41"),
        (np.array([[np.nan, 0.0]]), "vector 0 has norm nan"),
        (np.array([[1.0, 0.0], [np.inf, 0.0]]), "vector 1 has norm inf"),
        (np.zeros((1, 3)), "vector 0 has norm 0"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(rows, says):
    with pytest.raises(InputError, match=says):
        ExactIndex(rows.astype(np.float32))


def test_a_query_of_another_size_is_refused():
    index = ExactIndex(np.eye(3, dtype=np.float32))
    with pytest.raises(InputError, match=r"\(2,\).*3: embed both with the same embedder"):
        index.search(np.array([1, 0], np.float32), 1)


def spread(count, size, decay, seed=0):
    """Return vectors whose directions differ in how much they vary, as those of texts do."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return unit(rng.standard_normal((count, size)) * np.arange(1, size + 1) ** -decay @ turn)


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_of_many_vectors_none_is_missed(decay, k):
    rows = spread(6000, 64, decay)
    index = ExactIndex(rows)
    for query in spread(30, 64, decay, seed=1):
        positions, cosines = index.search(query, k)
        exact = rows.astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(cosines, np.sort(exact)[::-1][:k], atol=2e-6)
        np.testing.assert_allclose(exact[positions], cosines, atol=2e-6)
        assert len(set(positions.tolist())) == k


@pytest.mark.parametrize(("decay", "spares"), [(1.0, True), (0.0, False)])
def test_most_vectors_are_spared_where_directions_differ(decay, spares):
    rows = spread(6000, 64, decay)
    near = _LeadingComponents(rows).near(rows, rows[7], 10)
    assert (near is not None) == spares
    if near is not None:
        assert len(near) < 600


def test_equal_vectors_among_many_come_by_position():
    rows = np.repeat(spread(10, 64, 1.0), 600, axis=0)
    assert ExactIndex(rows).search(rows[0], 5)[0].max() < 600
    everything = ExactIndex(rows).search(rows[0], 6000)[0]
    assert sorted(everything.tolist()) == list(range(6000))
