"""MiniLM gives the vectors of the model it says it is."""

import re
import sys

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.retrieval.dense import MiniLM


def test_minilm_says_which_extra_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DataError, match=re.escape(how_to_install("rag"))):
        MiniLM(tmp_path)


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("onnxruntime")
    try:
        return MiniLM()
    except DataError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
def test_cosines_are_those_the_model_was_published_with(encoder):
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person"]
    vectors = encoder.encode([*texts, "Today is a sunny day"])
    # The model card's example; its weights are 32-bit floats, ours 8-bit integers.
    np.testing.assert_allclose(vectors @ vectors[0], [1.0, 0.695, 0.943, 0.257], atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "word " * 5_000, "\x00", "서울 날씨 ✨"])
def test_any_text_has_a_unit_vector(encoder, text):
    (vector,) = encoder.encode([text])
    assert vector.shape == (384,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_half_of_a_surrogate_pair_is_told(encoder):
    with pytest.raises(InputError, match=r"text 1, .* holds a lone surrogate at offset 4"):
        encoder.encode(["fine", "half\udcff"])


@pytest.mark.slow
def test_a_vector_does_not_depend_on_its_batch(encoder):
    texts = ["find a flight", "a much longer request about restaurants in Paris tonight"]
    np.testing.assert_array_equal(encoder.encode(texts)[0], encoder.encode(texts[:1])[0])


@pytest.mark.slow
def test_no_texts_give_no_rows(encoder):
    assert encoder.encode([]).shape == (0, 384)
