"""The intent classifier: deterministic, exact in its state, and right on what it has seen."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError, StateError
from steersman_systems.assistant.intents import IntentClassifier, tool_families
from steersman_systems.assistant.lexical import hashed_counts, hashed_vector, ngrams

EXAMPLES = {
    "music": ["play some jazz", "put on the new album", "skip this song", "louder please"],
    "weather": ["is it raining in Oslo", "forecast for tomorrow", "how cold is it outside"],
    "bank": ["transfer money to my savings", "what is my balance", "pay the electricity bill"],
}
TEXTS = [text for texts in EXAMPLES.values() for text in texts]
LABELS = [intent for intent, texts in EXAMPLES.items() for _ in texts]


@pytest.fixture(scope="module")
def model() -> IntentClassifier:
    return IntentClassifier.fit(TEXTS, LABELS)


def test_examples_get_their_own_intents(model) -> None:
    intents, confidence = model.predict_many(TEXTS)
    assert intents == LABELS
    assert np.all(confidence > 0.5)


def test_texts_far_from_every_example_have_less_confidence(model) -> None:
    near = model.predict("is it raining tomorrow")
    far = model.predict("zebra xylophone")
    assert near[0] == "weather"
    assert far[1] < near[1] / 2


@pytest.mark.parametrize("text", ["", "   ", "?!…", "\x00"])
def test_texts_without_words_have_no_confidence(model, text) -> None:
    assert model.predict(text) == ("bank", 0.0)


def test_votes_agree_with_a_dense_second_implementation(model) -> None:
    asked = ["play my savings album", "how much money is outside"]
    examples = hashed_counts(TEXTS, 4096).toarray()
    idf = 1 + np.log((len(TEXTS) + 1) / ((examples != 0).sum(axis=0) + 1))

    def unit(rows):
        return rows * idf / np.linalg.norm(rows * idf, axis=1, keepdims=True)

    cosines = np.clip(unit(hashed_counts(asked, 4096).toarray()) @ unit(examples).T, 0, None)
    votes = (cosines / cosines.max(axis=1, keepdims=True)) ** 6
    names = sorted(EXAMPLES)
    shares = votes @ (np.array(LABELS)[:, None] == np.array(names))
    intents, confidence = model.predict_many(asked)
    assert intents == [names[k] for k in shares.argmax(axis=1)]
    expected = shares.max(axis=1) / shares.sum(axis=1) * cosines.max(axis=1)
    np.testing.assert_allclose(confidence, expected, rtol=1e-12)


@pytest.mark.slow
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8))
def test_confidence_stays_within_its_range(texts) -> None:
    model = IntentClassifier.fit(texts, [str(k % 3) for k in range(len(texts))], dim=64)
    _, confidence = model.predict_many([*texts, "something else"])
    assert np.all((confidence >= 0) & (confidence <= 1))


def test_the_state_restores_every_answer(model) -> None:
    copy = IntentClassifier.from_state(model.state())
    asked = ["play the forecast", *TEXTS]
    np.testing.assert_array_equal(copy.predict_many(asked)[1], model.predict_many(asked)[1])
    assert copy.predict_many(asked)[0] == model.predict_many(asked)[0]
    assert all(isinstance(part, np.ndarray) for part in model.state().values())


def test_states_are_not_shared_with_the_model(model) -> None:
    before = model.predict("play some jazz")
    model.state()["values"][:] = 0
    assert model.predict("play some jazz") == before


INVALID = "invalid state of an intent classifier"


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("labels", np.array([7] * len(TEXTS)), INVALID),
        ("labels", np.array([], dtype=np.int64), INVALID),
        ("idf", np.full(4096, np.nan), INVALID),
        ("columns", np.array([10**9]), INVALID),
        ("ends", np.array([0, 1]), INVALID),
        ("meta", np.frombuffer(b'{"format": "other"}', dtype=np.uint8), INVALID),
        ("meta", np.frombuffer(b"\xff", dtype=np.uint8), INVALID),
        ("idf", None, "idf"),
    ],
)
def test_from_state_with_a_damaged_or_missing_part_is_refused(model, part, value, says) -> None:
    changed = {**model.state(), part: value}
    state = {name: array for name, array in changed.items() if array is not None}
    with pytest.raises(StateError, match=says):
        IntentClassifier.from_state(state)


@pytest.mark.slow
def test_vectors_do_not_depend_on_the_process() -> None:
    code = (
        "from steersman_systems.assistant.lexical import hashed_vector as h;"
        "print(h('Größe und 天気', 64).tobytes().hex())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == hashed_vector("Größe und 天気", 64).tobytes().hex()


@given(text=st.text(max_size=80))
def test_the_dense_vector_is_the_sparse_row_at_length_one(text) -> None:
    row = hashed_counts([text], 128).toarray()[0]
    length = np.linalg.norm(row)
    np.testing.assert_allclose(hashed_vector(text, 128), row / (length or 1.0), atol=1e-6)


def test_case_and_spacing_do_not_matter() -> None:
    assert list(ngrams("Play  SOME\njazz!")) == list(ngrams("play some jazz"))
    assert list(ngrams(" ! ")) == []


def test_families_gather_tools_that_read_alike() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    texts = [
        "weather forecast for a city",
        "weather today in a city",
        "forecast of rain in a city",
        "play a song by an artist",
        "play an album by an artist",
        "pause the song that is playing by the artist",
    ]
    families = tool_families(names, texts, 2, np.random.default_rng(0))
    assert len(set(families[:3])) == len(set(families[3:])) == 1
    assert set(families) <= set(names)
    assert families == tool_families(names, texts, 2, np.random.default_rng(0))


def test_identical_tools_share_a_family() -> None:
    families = tool_families(["a", "b", "c"], ["same text"] * 3, 3, np.random.default_rng(0))
    assert len(set(families)) == 1


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="2 texts and 1 labels"):
        IntentClassifier.fit(["a", "b"], ["x"])
    with pytest.raises(InputError, match="0 texts"):
        IntentClassifier.fit([], [])
    with pytest.raises(InputError, match="dim 8"):
        IntentClassifier.fit(["a"], ["x"], dim=8)
    with pytest.raises(InputError, match="power 0"):
        IntentClassifier.fit(["a"], ["x"], power=0.0)
    with pytest.raises(InputError, match="n_families 3"):
        tool_families(["a", "b"], ["a", "b"], 3, np.random.default_rng(0))
