"""The classifier out of the wheel runs anywhere, and knows swear words from a museum."""

import re
import sys

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.providers.detectors.toxicity import Toxicity, in_plain_locale, toxicity


@pytest.fixture(scope="module")
def detector():
    pytest.importorskip("onnxruntime")
    try:
        return toxicity()
    except DataError as missing:
        pytest.skip(str(missing))


def test_insults_are_flagged_and_plain_words_are_not(detector):
    (flag,) = detector.detect("You are a stupid bitch.")
    assert (flag.detector, flag.kind) == ("toxicity", "offensive")
    assert flag.score > 0.9
    assert detector.detect("YOU ARE A STUPID BITCH.") == (flag,)
    for text in ("The museum opens at nine.", "", "\x00", "Straße ✨", "\ud800"):
        assert detector.detect(text) == ()


def test_rows_are_distributions(detector):
    found = detector.probabilities(["One.", "Two damn words.", "x" * 100_000])
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-5)
    assert detector.probabilities([]).shape == (0, 3)


def test_what_is_no_model_is_refused():
    pytest.importorskip("onnxruntime")
    for wrong in (b"", b"no model", b"\x3a\xff\xff\xff\xff\x0f"):
        with pytest.raises(DataError):
            Toxicity(wrong)
    with pytest.raises(InputError, match="threshold is 2"):
        Toxicity(b"", threshold=2)


def test_a_model_that_folds_no_case_is_left_as_it_is():
    graph = b"\x0a\x05\x22\x03Add"  # one node, its operator
    model = b"\x08\x0a\x3a" + bytes([len(graph)]) + graph
    assert in_plain_locale(model) == model


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DataError, match=re.escape(how_to_install("rag"))):
        Toxicity(b"")
