"""HTTP answers in every framing, and what is not an answer."""

import socket
import ssl
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from steersman_client.exchange import Request
from steersman_client.http1 import AnswerParser, Origin
from tests.client.test_connecting import ASKS_BOTH
from tests.db.test_tls import certificate

OK = b'{"decision_id":"0199c5a0-0000-7000-8000-000000000000","action":"a","propensity":0.5,'
OK += b'"distribution":{"a":0.5},"snapshot":"s","update_seq":1,"stage":"live","arm":"control",'
OK += b'"logged":true,"degraded":false}'
HEAD = b"HTTP/1.1 200 OK\r\n"
SIZED = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(OK), OK)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"%x\r\n%b\r\n%x;e=1\r\n%b\r\n0\r\n\r\n" % (100, OK[:100], len(OK) - 100, OK[100:])
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nRetry-After: 5\r\n\r\n"
TO_THE_END = HEAD + b"Connection: close\r\n\r\n" + OK


def parsed(data, size):
    parser = AnswerParser()
    for begin in range(0, len(data), size):
        if parser.answer is None:
            parser.feed(data[begin : begin + size])
    return parser


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("data", [SIZED, CHUNKED, INTERIM + SIZED, INTERIM + CHUNKED])
def test_answers_are_parsed_in_pieces_of_any_size(data, size):
    parser = parsed(data, size)
    assert (parser.answer.status, parser.answer.body) == (200, OK)
    assert parser.answer.retry_after == ""
    assert parser.reusable


def test_an_answer_without_a_length_ends_with_its_connection():
    parser = parsed(TO_THE_END, 50)
    assert parser.answer is None
    parser.feed(b"")
    assert parser.answer.body == OK
    assert not parser.reusable


def test_the_connection_is_not_reused_when_it_says_so_or_carries_more():
    assert not parsed(SIZED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), 1000).reusable
    assert not parsed(SIZED + SIZED, 10_000).reusable
    assert not parsed(SIZED + b"junk", 10_000).reusable
    assert parsed(SIZED + SIZED, 10_000).answer.body == OK


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (SIZED[:-1], "before its answer was complete"),
        (CHUNKED[:-3], "before its answer was complete"),
        (HEAD, "before its answer was complete"),
        (b"", "before its answer was complete"),
        (INTERIM, "before its answer was complete"),
        (b"HTTP/1.1 099 Odd\r\n\r\nbody", "before its answer was complete"),
        (INTERIM * 2000, "headers of the answer exceed 65536 bytes"),
        (HEAD + b"X: " + b"x" * (65 << 10), "headers of the answer exceed 65536 bytes"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "."),
    ],
)
def test_what_is_not_a_whole_answer_is_an_error(data, message):
    parser = AnswerParser()

    def feed_all():
        parser.feed(data)
        parser.feed(b"")

    with pytest.raises(ConnectionError, match=message):
        feed_all()


def test_a_too_large_answer_is_refused(monkeypatch):
    monkeypatch.setattr("steersman_client.http1.MAX_ANSWER_BYTES", 100)
    with pytest.raises(ConnectionError, match="exceeds 100 bytes"):
        parsed(SIZED, 1000)


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://host", b"POST /v1/decide HTTP/1.1", b"host"),
        ("https://host:8443/a/b", b"POST /a/b/v1/decide HTTP/1.1", b"host:8443"),
        ("http://[::1]:80/%2Fü", b"POST /%2F%C3%BC/v1/decide HTTP/1.1", b"[::1]:80"),
        ("http://bücher.example", b"POST /v1/decide HTTP/1.1", b"xn--bcher-kva.example"),
    ],
)
def test_requests_name_path_and_host(url, line, host):
    headers = {"traceparent": "00-1"}
    sent = Origin(url, "key").encode(Request("POST", "/v1/decide", b"{}", headers))
    assert sent.startswith(line + b"\r\nHost: " + host + b"\r\n")
    assert sent.endswith(b"traceparent: 00-1\r\nContent-Length: 2\r\n\r\n{}")


def test_a_request_without_a_body_has_no_length():
    assert b"Content-Length" not in Origin("http://host", "key").encode(Request("GET", "/healthz"))


@pytest.fixture
def raw():
    """Serve connections with a function of the socket; count them."""
    servers, accepted = [], []

    def serve(answer, wrap=lambda listener: listener):
        listener = wrap(socket.create_server(("127.0.0.1", 0)))
        servers.append(listener)

        def run():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                accepted.append(sock)
                threading.Thread(target=handle, args=(sock,), daemon=True).start()

        def handle(sock):
            try:
                while sock.recv(1 << 16):
                    answer(sock)
            except OSError:
                pass
            finally:
                sock.close()

        threading.Thread(target=run, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}", accepted

    yield serve
    for server in servers:
        server.close()
    for sock in accepted:
        sock.close()


@pytest.mark.parametrize("data", [SIZED, CHUNKED, INTERIM + SIZED])
def test_a_connection_carries_one_call_after_another(make, raw, data):
    url, accepted = raw(lambda sock: sock.sendall(data))
    client = make(url)
    for _ in range(5):
        assert client.decide("mail", "tone", {}).action == "a"
    assert len(accepted) == 1


def test_a_connection_that_the_server_closed_is_not_used_again(make, raw):
    def answer_once(sock):
        sock.sendall(SIZED)
        sock.shutdown(socket.SHUT_RDWR)

    url, accepted = raw(answer_once)
    client = make(url, retries=0)
    for _ in range(3):
        assert client.decide("mail", "tone", {}).action == "a"
        time.sleep(0.05)
    assert len(accepted) == 3


def test_a_close_after_an_interim_answer_does_not_freeze_a_client(raw, tmp_path):
    def answer(sock):
        sock.sendall(INTERIM)
        sock.shutdown(socket.SHUT_RDWR)

    url, _ = raw(answer)
    command = [sys.executable, "-c", ASKS_BOTH, url, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert ended.stdout.split() == ["True", "True"]


def test_over_tls_an_unasked_answer_is_not_given_to_the_next_call(make, raw, tmp_path, monkeypatch):
    certificate(tmp_path, "own")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.crt", tmp_path / "own.key")
    unasked = SIZED.replace(b'"action":"a"', b'"action":"b"')
    answers = iter([[SIZED], [SIZED, unasked], [SIZED]])

    def answer(sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # two TLS records in one segment
        for data in next(answers):
            sock.sendall(data)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    url, accepted = raw(answer, partial(context.wrap_socket, server_side=True))
    client = make(url.replace("http:", "https:"))
    assert [client.decide("mail", "tone", {}).action for _ in range(3)] == ["a", "a", "a"]
    assert len(accepted) == 2


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_an_answer_that_drips_ends_at_the_timeout(make, raw, drip):
    def answer(sock):
        while True:
            sock.sendall(drip)
            time.sleep(0.02)

    url, _ = raw(answer)
    client = make(url, timeout_ms=400, retries=0)
    begun = time.monotonic()
    assert client.decide("mail", "tone", {}, default="plain").degraded
    assert time.monotonic() - begun < 1.5


def test_a_large_request_and_answer_pass(client, server):
    long = "x" * (2 << 20)
    server.answer = {"snapshot": long}
    assert client.decide("mail", "tone", {"text": long}, timeout_ms=20_000).snapshot == long
    assert server.calls[0]["body"]["context"]["text"] == long
