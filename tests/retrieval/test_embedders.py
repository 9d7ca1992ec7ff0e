"""Embedders are made once, beside who asks, and one that fails is left alone for a while."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from steersman.errors import BackendAnswerError, BackendUnavailableError, DataError, InputError
from steersman.retrieval.embedders import CorpusEmbedder, Embedders, check_embedder_name
from tests.retrieval.hashed_words import HashedWords
from tests.retrieval.test_served_embedder import embeddings_server


class Failing(HashedWords):
    """An embedder that is away until it is told otherwise."""

    away, calls = True, 0

    def encode(self, texts):
        self.calls += 1
        if self.away:
            raise BackendUnavailableError("the embedder is away")
        return super().encode(texts)


class Slow:
    """Stands where MiniLM is made: it takes a while, or fails."""

    name, size = "slow", 4
    gate, made = threading.Event(), 0
    error = None

    def __init__(self, home):
        type(self).made += 1
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def slow(monkeypatch):
    """Return what MiniLM is made by."""

    class Own(Slow):
        gate = threading.Event()

    monkeypatch.setattr("steersman.retrieval.embedders.MiniLM", Own)
    yield Own
    Own.gate.set()


def test_who_does_not_wait_is_told_and_it_is_made_once(slow):
    embedders = Embedders()
    for _ in range(3):
        with pytest.raises(DataError, match="is still loading"):
            embedders.get("minilm", wait_s=0.0)
    slow.gate.set()
    assert embedders.get("minilm") is embedders.get("minilm", wait_s=0.0)
    assert slow.made == 1
    assert "minilm" in embedders


def test_what_failed_is_made_again_once_a_minute_and_at_once_for_who_waits(slow):
    now = [0.0]
    embedders = Embedders(clock=lambda: now[0])
    slow.error = DataError("no wheel")
    slow.gate.set()
    for _ in range(3):
        with pytest.raises(DataError, match="no wheel"):
            embedders.get("minilm", wait_s=30.0)
    assert slow.made == 1
    now[0] = 61.0
    with pytest.raises(DataError, match="no wheel"):
        embedders.get("minilm", wait_s=30.0)
    with pytest.raises(DataError, match="no wheel"):
        embedders.get("minilm")
    assert slow.made == 3
    slow.error = None
    assert embedders.get("minilm").name == "slow"


def test_whatever_fails_while_one_is_made_is_told_as_an_embedder_that_cannot_be_had(slow):
    slow.error = PermissionError(13, "Permission denied")
    slow.gate.set()
    with pytest.raises(DataError, match="minilm cannot be loaded: PermissionError") as told:
        Embedders().get("minilm", wait_s=30.0)
    assert told.value.__cause__ is slow.error


def test_one_that_is_away_is_left_alone_for_a_moment():
    now = [0.0]
    failing = Failing()
    embedders = Embedders(own={"x": failing})
    embedder = CorpusEmbedder(embedders, "x", failing.name, failing.size, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(BackendUnavailableError, match="is away"):
            embedder.encode(["a"])
    assert failing.calls == 1
    failing.away = False
    now[0] = 5.0
    np.testing.assert_array_equal(embedder.encode(["a"]), HashedWords().encode(["a"]))


def test_one_refused_query_keeps_nobody_else_from_asking():
    with embeddings_server() as server:
        embedders = Embedders()
        made = embedders.get(server.url)
        embedder = CorpusEmbedder(embedders, server.url, made.name, made.size)
        server.answers.append((400, {}, b"more than 512 tokens"))
        with pytest.raises(BackendAnswerError, match="more than 512 tokens"):
            embedder.encode(["long " * 500])
        assert embedder.encode(["pumps"]).shape == (1, 8)


def test_a_server_in_drops_does_not_hold_who_asks():
    with embeddings_server() as server:
        server.drops_s = 0.05
        embedders = Embedders(served={"timeout_s": 0.3, "tries": 1})
        begun = time.monotonic()
        with pytest.raises(BackendUnavailableError):
            embedders.get(server.url)
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("use", "name", "says"),
    [
        *(
            (use, name, "allowed: minilm")
            for use in (check_embedder_name, Embedders().get)
            for name in ("", "word2vec", "MINILM", "ftp://x")
        ),
        (Embedders().get, "none", "choose an embedder"),
    ],
)
def test_embedder_with_a_bad_name_says_what_is_allowed(use, name, says):
    with pytest.raises(InputError, match=says):
        use(name)
