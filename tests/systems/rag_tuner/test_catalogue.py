"""The collection that every machine has."""

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.passage import passage_text
from steersman_systems.assistant.recorded_engines import Recording
from steersman_systems.rag_tuner.catalogue import RecordedVectors, catalogue_collection


@pytest.fixture
def drawn():
    def draw(**asked):
        try:
            return catalogue_collection(**asked)
        except DataError as missing:
            pytest.skip(str(missing))

    return draw


@pytest.mark.slow
def test_requests_are_questions_and_right_tools_are_gold(drawn):
    collection, _vectors = drawn(most=100)
    assert (len(collection.passages), len(collection.questions)) == (729, 100)
    ids = {one.doc_id for one in collection.passages}
    assert all(set(one.gains) <= ids and len(one.gains) == 1 for one in collection.questions)
    again, _ = drawn(most=100)
    assert [one.id for one in again.questions] == [one.id for one in collection.questions]
    other, _ = drawn(most=100, seed=1)
    assert [one.id for one in other.questions] != [one.id for one in collection.questions]


@pytest.mark.slow
def test_the_vectors_are_those_that_were_recorded(drawn):
    collection, vectors = drawn()
    recording = Recording.load()
    assert len(collection.questions) == len(recording.truth)
    tools = vectors.encode([passage_text(one) for one in collection.passages])
    asked = vectors.encode([one.text for one in collection.questions])
    place = {one.doc_id: number for number, one in enumerate(collection.passages)}
    truth = np.array([place[next(iter(one.gains))] for one in collection.questions])
    assert truth.tolist() == recording.truth.tolist()
    assert np.abs(tools - recording.tool_embedding.astype(float)).max() < 1e-3
    assert 0.6 < ((asked @ tools.T).argmax(axis=1) == truth).mean() < 0.7


def test_other_texts_are_refused():
    known = RecordedVectors({"a": np.array([1.0, 0.0], np.float32)})
    with pytest.raises(InputError, match="'b' is not in the recording"):
        known.encode(["a", "b"])
