"""A server of embeddings is believed nothing: order, number, size and length are checked."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from steersman.errors import BackendAnswerError, BackendError, BackendUnavailableError, InputError
from steersman.retrieval.embedders import Embedders
from steersman.retrieval.http_embedder import HttpEmbedder
from tests.retrieval.hashed_words import HashedWords


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.asked.append((self.path, dict(self.headers), body))
        status, headers, answer = server.answers.pop(0) if server.answers else (200, {}, None)
        if answer is None:
            rows = server.words.encode(body["input"]) * 3.0  # of no particular length
            data = [{"index": n, "embedding": row.tolist()} for n, row in enumerate(rows)]
            answer = json.dumps({"data": data[::-1]}).encode()  # in no particular order
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if server.drops_s:
            self._drop(answer)
        else:
            self.wfile.write(answer)

    def _drop(self, answer):
        """Send the answer in single bytes."""
        with suppress(OSError):
            for place in range(len(answer)):
                self.wfile.write(answer[place : place + 1])
                time.sleep(self.server.drops_s)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def embeddings_server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.asked, server.answers, server.words = [], [], HashedWords(size=8)
    server.drops_s = 0.0
    server.url = f"http://127.0.0.1:{server.server_port}/v1#tiny"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server():
    """Return a server of vectors of eight numbers."""
    with embeddings_server() as made:
        yield made


def test_vectors_come_in_the_order_of_the_texts_and_of_length_one(server):
    embedder = HttpEmbedder(server.url, key="secret")
    assert (embedder.size, embedder.name) == (8, f"served:{server.url}")
    texts = [f"text {number}" for number in range(150)]
    np.testing.assert_allclose(embedder.encode(texts), server.words.encode(texts), atol=1e-6)
    assert embedder.encode([]).shape == (0, 8)
    assert [len(body["input"]) for _, _, body in server.asked] == [1, 64, 64, 22]
    path, headers, body = server.asked[-1]
    assert (path, body["model"]) == ("/v1/embeddings", "tiny")
    assert headers["authorization"] == "Bearer secret"
    embedder.encode([""])
    assert server.asked[-1][2]["input"] == [" "]


def test_a_busy_server_is_asked_again(server):
    waits = []
    embedder = HttpEmbedder(server.url, size=8, sleep=waits.append)
    server.answers += [(429, {"retry-after": "2.5"}, b"busy"), (503, {}, b"later")]
    assert embedder.encode(["a"]).shape == (1, 8)
    assert waits == [2.5, 1.0]
    server.answers += [(500, {}, b"broken")] * 3
    with pytest.raises(BackendUnavailableError, match="answered 500: 'broken'"):
        embedder.encode(["a"])
    assert len(server.asked) == 6


@pytest.mark.parametrize("after", ["\u00b2", "1.", "1e400", "-1", "soon", "9" * 400])
def test_a_wait_that_is_no_number_of_seconds_is_the_usual_one(server, after):
    waits = []
    embedder = HttpEmbedder(server.url, size=8, sleep=waits.append)
    server.answers.append((429, {"retry-after": after}, b"busy"))
    assert embedder.encode(["a"]).shape == (1, 8)
    assert waits == [0.5]


def test_half_of_a_surrogate_pair_is_told_and_not_sent(server):
    embedder = HttpEmbedder(server.url, size=8)
    with pytest.raises(InputError, match=r"text 0, .* holds a lone surrogate"):
        embedder.encode(["\ud83d"])
    assert server.asked == []


def test_a_refusal_is_not_tried_again(server):
    embedder = HttpEmbedder(server.url, size=8, key="secret")
    server.answers.append((401, {}, b"who are you?"))
    with pytest.raises(BackendAnswerError, match="STEERSMAN_EMBEDDINGS_API_KEY") as refused:
        embedder.encode(["a"])
    assert "secret" not in str(refused.value)
    assert len(server.asked) == 1


KEY = "sk/s3cret" + "x" * 40


@pytest.mark.parametrize("status", [401, 503])
@pytest.mark.parametrize("form", [KEY, KEY.replace("/", "\\/"), KEY.replace("/", "\\u002F")])
@pytest.mark.parametrize("before", [0, 170])  # then the end of the quote is within the key
def test_a_key_that_the_server_repeats_is_blotted_out(server, status, form, before):
    embedder = HttpEmbedder(server.url, size=8, key=KEY, tries=1)
    server.answers.append((status, {}, f'{"y" * before}{{"error": "no key {form}"}}'.encode()))
    with pytest.raises(BackendError, match=rf"no key \*\*\*|{'y' * 170}") as refused:
        embedder.encode(["a"])
    assert "s3cret" not in str(refused.value)


def test_a_key_in_what_is_no_http_is_blotted_out():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            taken, _ = listening.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(f"no key {KEY}\r\n\r\n".encode())

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1#m"
        with pytest.raises(BackendUnavailableError, match="no key") as refused:
            HttpEmbedder(url, size=8, key=KEY, tries=1).encode(["a"])
        thread.join()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("key", ["s3cret\n", "s3 cret", "s3cret\u20ac", "s3cret" * 1000])
def test_a_key_that_is_none_is_told_and_not_shown(key):
    with pytest.raises(InputError, match="STEERSMAN_EMBEDDINGS_API_KEY must be") as refused:
        HttpEmbedder("http://127.0.0.1:9/v1#m", size=8, key=key).encode(["a"])
    assert "s3" not in str(refused.value)


def vectors(*rows):
    data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
    return json.dumps({"data": data}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"not JSON",
        b"{}",
        vectors(),
        vectors([1.0] * 7),  # another size
        vectors([0.0] * 8),  # no direction
        vectors([1e308] * 8),  # of infinite length
        json.dumps({"data": [{"index": 1, "embedding": [1.0] * 8}]}).encode(),
        json.dumps({"data": [{"index": 0, "embedding": ["x"] * 8}]}).encode(),
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_no_embedding_is_refused(server, answer):
    embedder = HttpEmbedder(server.url, size=8)
    server.answers.append((200, {}, answer))
    with pytest.raises(BackendAnswerError):
        embedder.encode(["a"])


def test_a_server_that_is_gone_is_told():
    with pytest.raises(BackendUnavailableError, match="check the address"):
        HttpEmbedder("http://127.0.0.1:9/v1#m", sleep=lambda _: None)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9/v1", "has no model"),
        ("http://me:secret@127.0.0.1/v1#m", "holds a password"),
        ("ftp://me:secret@127.0.0.1/v1#m", "holds a password"),
        ("http://me:secret/x@127.0.0.1/v1#m", "invalid embedder URL; expected"),
        ("http://[secret/v1#m", "invalid embedder URL; expected"),
        ("http://127.0.0.1:9/v1?api-version=2#m", "has a query"),
        ("http://127.0.0.1:9/v1?key=secret", "has a query"),
        ("ftp://127.0.0.1/v1#m", "invalid embedder URL"),
        ("http://#m", "invalid embedder URL"),
    ],
)
def test_a_bad_address_is_told(url, why):
    with pytest.raises(InputError, match=why) as refused:
        HttpEmbedder(url, size=8)
    assert "secret" not in str(refused.value)


def test_it_is_found_by_its_address(server):
    embedders = Embedders()
    assert embedders.get(server.url) is embedders.get(server.url)
    assert embedders.get(server.url).size == 8
