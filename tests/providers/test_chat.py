"""The chat backend against a real server, sound and in every way broken."""

import copy
import datetime as dt
import ipaddress
import logging
import socket
import ssl
import time
import traceback
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from steersman.errors import (
    BackendAnswerError,
    BackendError,
    BackendUnavailableError,
    InputError,
    SteersmanError,
)
from steersman.platform.breaker import Breaker
from steersman.providers.chat import FAILURES, ChatBackend
from tests.providers.chat_server import chat_server, settled_threads

if TYPE_CHECKING:
    from steersman.providers.backend import Backend

KEY = "sk-very-secret-1234567890"


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


def _breaker(now):
    return Breaker("model", lambda: now[0], failures=FAILURES, open_s=1.0, longest_s=60.0)


def _backend(server, mode="ok", **given):
    return ChatBackend(server.url(mode), "small", **given)


def test_a_prompt_is_answered(server):
    backend: Backend = _backend(server, api_key=KEY)
    server.answer = lambda prompt: f"you said {prompt}"
    assert backend.complete("héllo", max_tokens=7, timeout_s=20) == "you said héllo"
    path, headers, body = server.asked[-1]
    assert path == "/ok/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("small", 7, 0)
    assert body["messages"] == [{"role": "user", "content": "héllo"}]


def test_without_a_key_none_is_sent(server):
    server.answer = ""
    assert not _backend(server).complete("x", timeout_s=20)
    assert "authorization" not in server.asked[-1][1]


@pytest.mark.parametrize("mode", ["silent", "drip", "drip_last", "drip_headers"])
def test_the_whole_call_ends_in_time_and_leaves_no_thread(server, mode):
    begun = time.monotonic()
    with pytest.raises(BackendUnavailableError, match=r"no complete answer within 0\.3 s"):
        _backend(server, mode).complete("x", timeout_s=0.3)
    assert time.monotonic() - begun < 3.0  # 10,000 pieces at .02 s would be minutes
    assert settled_threads("steersman-llm") == 0


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("busy", BackendUnavailableError, "429: 'slow down'; retry in 7 s"),
        ("broken", BackendUnavailableError, "the server answered 500; retry later"),
        ("moved", BackendAnswerError, "302"),
        ("garbage", BackendAnswerError, "not JSON"),
        ("deep", BackendAnswerError, "not JSON"),
        ("shape", BackendAnswerError, r"no choices\[0\]"),
        ("null", BackendAnswerError, "NoneType"),
        ("huge", BackendAnswerError, "more than 1048576 bytes"),
        ("cut", BackendUnavailableError, "ends 994 bytes too early"),
        ("nonsense", BackendUnavailableError, "BadStatusLine"),
    ],
)
def test_what_goes_wrong_is_one_clear_error(server, mode, kind, words):
    with pytest.raises(kind, match=words) as caught:
        _backend(server, mode).complete("x", timeout_s=20)
    assert server.url(mode) in str(caught.value)
    assert isinstance(caught.value, BackendError)
    assert isinstance(caught.value, SteersmanError)
    assert settled_threads("steersman-llm") == 0


@pytest.mark.parametrize(
    ("mode", "of_prompt"),
    [("unauthorized", False), ("garbage", False), ("too_long", True), ("null", True)],
)
def test_a_refusal_tells_whether_it_is_of_the_prompt(server, mode, of_prompt):
    with pytest.raises(BackendAnswerError) as caught:
        _backend(server, mode).complete("x", timeout_s=20)
    for error in (caught.value, copy.copy(caught.value)):
        assert error.of_prompt is of_prompt


def test_an_answer_with_a_character_that_is_not_taken_is_told_as_that(server):
    server.answer = "a\x00b"
    with pytest.raises(BackendAnswerError, match=r"JSON outside the limits: .*U\+0000") as caught:
        _backend(server).complete("x", timeout_s=20)
    assert "not JSON" not in str(caught.value)


def test_when_to_try_again_is_known(server):
    with pytest.raises(BackendUnavailableError) as caught:
        _backend(server, "busy").complete("x", timeout_s=20)
    assert caught.value.retry_after_s == 7.0


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BackendUnavailableError, match=r"refused.*check the address"):
        ChatBackend(f"http://127.0.0.1:{port}", "small").complete("x", timeout_s=20)


@pytest.mark.parametrize("mode", ["unauthorized", "busy", "garbage", "silent", "cut"])
def test_the_key_is_nowhere_to_be_read(server, mode, caplog):
    caplog.set_level(logging.DEBUG)
    backend = _backend(server, mode, api_key=KEY)
    with pytest.raises(BackendError) as caught:
        backend.complete("x", timeout_s=0.5 if mode == "silent" else 20)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(backend)
    assert KEY not in told
    # Nor a piece of it, cut where a quotation ends.
    assert KEY[:8] not in told
    assert KEY not in backend.name


def test_a_server_that_fails_is_left_alone_and_tried_again(server):
    now = [0.0]
    backend = _backend(server, clock=lambda: now[0])
    server.answer, server.mode = "blue", "broken"
    try:
        for _ in range(3):
            with pytest.raises(BackendUnavailableError, match="500"):
                backend.complete("x", timeout_s=20)
        asked = len(server.asked)
        with pytest.raises(BackendUnavailableError, match="circuit breaker is open") as caught:
            backend.complete("x", timeout_s=20)
        assert caught.value.retry_after_s == 1.0
        assert len(server.asked) == asked
        now[0] = 1.1  # one probe, which fails: twice the pause
        with pytest.raises(BackendUnavailableError, match="500"):
            backend.complete("x", timeout_s=20)
        now[0] = 2.2
        with pytest.raises(BackendUnavailableError, match="circuit breaker is open"):
            backend.complete("x", timeout_s=20)
        assert len(server.asked) == asked + 1
        server.mode = None
        now[0] = 3.2
        assert backend.complete("x", timeout_s=20) == "blue"
        assert backend.complete("x", timeout_s=20) == "blue"
    finally:
        server.mode = None


def test_a_slow_failure_pauses_for_as_long_as_it_took():
    now = [0.0]
    breaker = _breaker(now)
    for _ in range(FAILURES):
        breaker.failed(breaker.turn(), took_s=20.0)
    assert breaker.turn().wait_s == 20.0
    now[0] += 20.0
    probe = breaker.turn()
    assert probe.wait_s == 0.0
    breaker.failed(probe, took_s=20.0)  # the probe: twice the pause
    assert breaker.turn().wait_s == 40.0


@pytest.mark.parametrize("ends", ["failed", "succeeded", "abandoned"])
def test_what_began_before_the_pause_is_not_taken_for_the_probe(ends):
    now = [0.0]
    breaker = _breaker(now)
    begun = [breaker.turn() for _ in range(FAILURES + 1)]
    for turn in begun[:-1]:
        breaker.failed(turn)
    now[0] = 1.5
    probe = breaker.turn()
    assert probe.wait_s == 0.0
    getattr(breaker, ends)(begun[-1])
    now[0] = 9.5
    assert breaker.turn().wait_s == 1.0  # one probe is out, and no second one
    breaker.failed(probe)
    assert breaker.turn().wait_s == 2.0
    now[0] = 11.5
    probe = breaker.turn()
    breaker.succeeded(probe)
    assert breaker.turn().wait_s == 0.0


def test_a_time_that_a_late_answer_names_is_kept():
    now = [0.0]
    breaker = _breaker(now)
    begun = [breaker.turn() for _ in range(FAILURES + 1)]
    for turn in begun[:-1]:
        breaker.failed(turn)
    breaker.failed(begun[-1], retry_after_s=9.0)
    now[0] = 8.0
    assert breaker.turn().wait_s == 1.0
    now[0] = 9.0
    assert breaker.turn().wait_s == 0.0


def test_a_time_that_is_named_while_one_is_probing_outlasts_its_success():
    now = [0.0]
    breaker = _breaker(now)
    first, slow = breaker.turn(), breaker.turn()
    breaker.failed(first, retry_after_s=5.0)
    now[0] = 6.0
    probe = breaker.turn()
    breaker.failed(slow, retry_after_s=60.0)
    breaker.succeeded(probe)
    assert breaker.turn().wait_s == 60.0
    now[0] = 66.0
    probe = breaker.turn()
    assert probe.wait_s == 0.0
    breaker.succeeded(probe)
    assert [breaker.turn().wait_s for _ in range(3)] == [0.0] * 3


def test_a_silent_server_is_left_alone_for_as_long_as_it_was_waited_for(server):
    # The clock runs a hundred times as fast as what is really waited.
    backend = _backend(server, "silent", clock=lambda: 100.0 * time.monotonic())
    for _ in range(FAILURES):
        with pytest.raises(BackendUnavailableError, match="no complete answer"):
            backend.complete("x", timeout_s=0.2)
    with pytest.raises(BackendUnavailableError, match="circuit breaker is open") as caught:
        backend.complete("x", timeout_s=0.2)
    assert caught.value.retry_after_s > 5.0


def test_certificates_that_are_not_there_are_told(server, tmp_path):
    url = server.url().replace("http:", "https:")
    backend = ChatBackend(url, "small", ca_file=tmp_path / "missing.pem")
    with pytest.raises(BackendUnavailableError, match="ca_file"):
        backend.complete("x", timeout_s=20)


def test_a_server_that_asks_to_be_left_alone_is(server):
    now = [0.0]
    backend = _backend(server, "busy", clock=lambda: now[0])
    with pytest.raises(BackendUnavailableError, match="429"):
        backend.complete("x", timeout_s=20)
    asked = len(server.asked)
    now[0] = 6.5
    with pytest.raises(BackendUnavailableError, match="circuit breaker is open"):
        backend.complete("x", timeout_s=20)
    assert len(server.asked) == asked


def test_a_wrong_answer_does_not_close_the_door(server):
    backend = _backend(server, "shape")
    for _ in range(5):
        with pytest.raises(BackendAnswerError):
            backend.complete("x", timeout_s=20)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that only those trust who are told to."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


def test_a_certificate_is_verified(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with chat_server(tls) as secure:
        with pytest.raises(BackendUnavailableError, match="no secure connection"):
            _backend(secure, api_key=KEY).complete("x", timeout_s=20)
        assert not secure.asked  # the key did not leave this machine
        backend = _backend(secure, api_key=KEY, ca_file=certificate / "cert.pem")
        assert backend.complete("x", timeout_s=20) == "blue"


def test_a_plain_server_where_tls_is_expected(server):
    url = server.url().replace("http:", "https:")
    with pytest.raises(BackendUnavailableError, match="secure"):
        ChatBackend(url, "small", api_key=KEY).complete("x", timeout_s=20)


def test_a_plain_server_that_waits_for_more_is_told_from_a_busy_one(server):
    url = server.url().replace("http:", "https:")
    server.answers_tls = False
    try:
        with pytest.raises(BackendUnavailableError, match=r"2 s.*does not speak TLS"):
            ChatBackend(url, "small", api_key=KEY).complete("x", timeout_s=2)
    finally:
        server.answers_tls = True
    assert settled_threads("steersman-llm") == 0


def test_no_connection_in_time_is_told_from_a_busy_server():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = []
        # What the kernel takes without anybody accepting; after it, nothing is answered.
        for _ in range(8):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        with pytest.raises(BackendUnavailableError, match=r"0\.3 s: not connected yet"):
            ChatBackend(url, "small").complete("x", timeout_s=0.3)
        for one in waiting:
            one.close()


BAD_URLS = ["", "127.0.0.1:80", "ftp://host", "http://", "http://h:99999", "http://h/?a=1"]


@pytest.mark.parametrize(
    ("url", "model", "says"),
    [
        *((url, "small", "base_url") for url in BAD_URLS),
        # No name server knows how to write this one.
        (f"http://{'é' * 70}.example", "small", "base_url is not a URL"),
        *(("http://host", model, "model") for model in ("", "x" * 201, "a\nb")),
    ],
)
def test_backend_with_a_bad_url_or_model_names_it(url, model, says):
    with pytest.raises(InputError, match=says):
        ChatBackend(url, model)


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("/modèles/v1", "write it as /mod%C3%A8les/v1"),
        ("/v1 ", "write it as /v1"),
        ("/a b/v1", "write it as /a%20b/v1"),
        ("/v1\n", "write it as /v1"),
        ("/\ud800", "percent-encode"),
    ],
)
def test_a_path_that_cannot_be_sent_is_told_with_what_to_write(path, way):
    with pytest.raises(InputError, match=f"base_url has an invalid path .*{way}"):
        ChatBackend(f"http://host{path}", "small")
    assert ChatBackend("http://host/a%20b/v1/", "small").name == "http://host/a%20b/v1#small"


def test_a_password_in_the_address_is_refused_unseen():
    with pytest.raises(InputError, match="api_key") as caught:
        ChatBackend(f"http://user:{KEY}@host", "small")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", KEY + "\n", "ключ"])
def test_a_key_that_is_none_is_refused_unseen(key):
    with pytest.raises(InputError, match="api_key") as caught:
        ChatBackend("http://host", "small", api_key=key)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": ""},
        {"prompt": "x" * 200_001},
        {"prompt": "\ud800"},
        {"max_tokens": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
    ],
)
def test_nothing_is_asked_with_wrong_arguments(server, given):
    asked = len(server.asked)
    call = {"prompt": "x", "max_tokens": 5, "timeout_s": 5.0} | given
    with pytest.raises(InputError):
        _backend(server).complete(call.pop("prompt"), **call)
    assert len(server.asked) == asked
