"""Hosts of many addresses, names that are looked up for ever: a call takes no longer for them."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from steersman.client import AsyncClient, Client
from steersman_client.async_http import AsyncTransport
from steersman_client.connect import Names, connect
from steersman_client.exchange import Request, Send
from tests.db.test_tls import certificate

HOST = "steersman.test"


@pytest.fixture
def silent():
    """Return a port, and addresses at it that take no connection and refuse none."""
    with ExitStack() as stack:
        port, addresses = 0, [f"127.0.0.{number}" for number in range(11, 17)]
        for address in addresses:
            listener = stack.enter_context(socket.socket())
            listener.bind((address, port))
            port = listener.getsockname()[1]
            listener.listen(0)
            for _ in range(3):  # what does not fit into its queue is not answered
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex((address, port))
        yield port, addresses


@pytest.fixture
def resolves(monkeypatch):
    """Return what says which addresses `HOST` has, or what is done to find them."""
    real = socket.getaddrinfo

    def say(told):
        def look_up(host, port, *more):
            if host != HOST or (more[3:] and more[3]):
                return real(host, port, *more)
            found = told() if callable(told) else told
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return say


def took_s(work):
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


async def decide_and_close(url, folder):
    async with AsyncClient(url, "key", queue_dir=folder, timeout_ms=500) as client:
        begun = time.monotonic()
        assert (await client.decide("mail", "tone", {}, default="plain")).degraded
        assert time.monotonic() - begun < 1.0


def test_many_addresses_that_say_nothing_take_no_longer_than_one(silent, resolves, tmp_path):
    port, addresses = silent
    resolves(addresses)
    client = Client(f"http://{HOST}:{port}", "key", queue_dir=tmp_path, timeout_ms=500)
    assert took_s(lambda: client.decide("mail", "tone", {}, default="plain")) < 1.0
    client.close()
    asyncio.run(decide_and_close(f"http://{HOST}:{port}", tmp_path / "async"))


def test_an_address_that_answers_is_found_behind_others(silent, resolves):
    port, addresses = silent
    with socket.socket() as listener:
        listener.bind(("127.0.0.21", port))
        listener.listen()
        resolves(["127.0.0.22", addresses[0], "127.0.0.21"])
        until = time.monotonic() + 5.0
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        with connect(HOST, port, until, options) as found:
            assert found.getpeername()[0] == "127.0.0.21"
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert 3.0 < found.gettimeout() < 5.0


def test_what_refuses_is_told_at_once(resolves):
    with socket.socket() as free:
        free.bind(("127.0.0.31", 0))
        resolves(["127.0.0.31", "127.0.0.32"])
        port = free.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            connect(HOST, port, time.monotonic() + 30.0)
        resolves([])
        with pytest.raises(OSError, match="no address"):
            connect(HOST, port, time.monotonic() + 30.0)


def test_a_name_is_looked_up_once_at_a_time_and_not_waited_for(resolves, tmp_path):
    asked = []

    def slowly():
        asked.append(1)
        time.sleep(3.0)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    resolves(slowly)
    url = f"http://{HOST}:8080"
    client = Client(url, "key", queue_dir=tmp_path, timeout_ms=500)
    assert took_s(lambda: client.decide("mail", "tone", {}, default="plain")) < 1.0
    # The loop's own threads are waited for when it ends.
    assert took_s(lambda: asyncio.run(decide_and_close(url, tmp_path / "async"))) < 2.2
    client.close()
    assert len(asked) == 1
    names = Names()
    assert names.find(HOST, 1) is names.find(HOST, 1)
    assert names.find(HOST, 1) is not names.find(HOST, 2)


async def health(url):
    transport = AsyncTransport(url, "key")
    heard = await transport.send(Send(Request("GET", "/healthz"), 5.0))
    await transport.close()
    return heard


def test_a_lookup_without_a_thread_fails_and_the_next_one_works(server, resolves, tmp_path):
    resolves(["127.0.0.1"])
    url = f"http://{HOST}:{server.port}"
    with Client(url, "key", queue_dir=tmp_path, retries=0) as client:
        usual = threading.stack_size(1 << 48)  # more than an address space holds
        try:
            assert client.decide("mail", "tone", {}, default="plain").degraded
            reason = asyncio.run(health(url)).reason
        finally:
            threading.stack_size(usual)
        assert f"cannot look up host '{HOST}': can't start new thread" in reason
        assert not client.decide("mail", "tone", {}, default="plain").degraded
        assert asyncio.run(health(url)).status == 200


FORKED = """
import os, socket, sys, time
from steersman_client.connect import names

def look_up(host, port, family, kind, protocol, flags):
    if flags:
        raise socket.gaierror(socket.EAI_NONAME, "a name")
    time.sleep(30)

socket.getaddrinfo = look_up
sought = names.find("steersman.test", 80)
child = os.fork()
if not child:
    os._exit(names.find("steersman.test", 80) is sought)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_ends_while_a_name_is_looked_up_and_a_forked_one_asks_anew():
    assert took_s(lambda: subprocess.run([sys.executable, "-c", FORKED], check=True)) < 15.0


def test_a_proxy_that_the_environment_names_is_not_asked(make, server, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        client = make()
        client.submit_feedback(client.decide("mail", "tone", {}), outcomes={"stars": 5})
        assert client.flush(10) == 0
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


ASKS_BOTH = """
import asyncio, sys
from steersman.client import AsyncClient, Client
url, folder = sys.argv[1:]
async def later():
    async with AsyncClient(url, "key", queue_dir=folder) as client:
        return await client.decide("mail", "tone", {}, default="plain")
with Client(url, "key", queue_dir=folder) as client:
    now = client.decide("mail", "tone", {}, default="plain")
print(now.degraded, asyncio.run(later()).degraded)
"""


def test_a_certificate_is_of_an_authority_that_the_environment_names(server, tmp_path):
    certificate(tmp_path, "own")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.crt", tmp_path / "own.key")
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)

    def ask(**environment):
        url = server.url.replace("http:", "https:")
        return subprocess.run(
            [sys.executable, "-c", ASKS_BOTH, url, str(tmp_path / "queue")],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )

    assert ask(SSL_CERT_FILE=str(tmp_path / "own.crt")).stdout.split() == ["False", "False"]
    refused = ask()
    assert refused.stdout.split() == ["True", "True"]
    assert refused.stderr.count("CERTIFICATE_VERIFY_FAILED") >= 2
