"""Servers that never stop, crawl, lie about lengths send elsewhere: bounds on bytes and time."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from contextlib import contextmanager

import pytest
from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    SlowRetrievalError,
)

from steersman.errors import InputError
from steersman.registry.fetch import HttpFetcher, PlaceFetcher, open_source
from steersman.registry.storage import DirectoryPlace
from tests.registry.conftest import Quiet, served

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def saying(*begin, again=b"", pause_s=0.0):
    """Run a server that sends some pieces to whoever asks, and then one again for ever."""
    server = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def answer(connection):
        with connection:
            try:
                connection.recv(65536)
                for piece in begin:
                    connection.sendall(piece)
                while again and not stop.is_set():
                    connection.sendall(again)
                    if pause_s:
                        stop.wait(pause_s)
            except OSError:
                return

    def accept():
        while not stop.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


ENDLESS = {
    "without a length": ((OK, b"\r\n"), b"x" * 65536),
    "with a huge length": ((OK, b"Content-Length: 999999999999\r\n\r\n"), b"x" * 65536),
    "in chunks": (
        (OK, b"Transfer-Encoding: chunked\r\n\r\n"),
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_data_is_cut_at_what_is_allowed(kind):
    begin, again = ENDLESS[kind]
    with saying(*begin, again=again) as url:
        fetcher = HttpFetcher(url)
        tracemalloc.start()
        try:
            with (
                fetcher.within(30),
                pytest.raises(DownloadLengthMismatchError, match="longer than"),
            ):
                fetcher.download_bytes("timestamp.json", 100_000)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert most < 4_000_000


CRAWLING = {
    "body": ((OK, b"Content-Length: 1000000\r\n\r\n"), b"x"),
    "status line": ((), b"H"),
    "a header": ((OK, b"X-Long: "), b"x"),
    "headers": ((OK,), b"X-One: 1\r\n"),
    "chunk size": ((OK, b"Transfer-Encoding: chunked\r\n\r\n"), b"0"),
    "chunks": ((OK, b"Transfer-Encoding: chunked\r\n\r\n"), b"1\r\nx\r\n"),
    "trailers": ((OK, b"Transfer-Encoding: chunked\r\n\r\n", b"0\r\n"), b"X-One: 1\r\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CRAWLING)
def test_a_transfer_that_crawls_is_cut_when_its_time_is_over(kind):
    begin, again = CRAWLING[kind]
    with saying(*begin, again=again, pause_s=0.02) as url:
        fetcher = HttpFetcher(url)
        begun = time.monotonic()
        with fetcher.within(0.5), pytest.raises(DownloadError):
            fetcher.download_bytes("timestamp.json", 10_000_000)
        assert time.monotonic() - begun < 6


def test_silence_is_cut_when_its_time_is_over():
    with saying(again=b"", pause_s=1) as url:
        fetcher = HttpFetcher(url)
        begun = time.monotonic()
        with fetcher.within(0.3), pytest.raises(DownloadError):
            fetcher.download_bytes("timestamp.json", 100)
        assert time.monotonic() - begun < 6


def test_when_the_time_is_over_nothing_more_is_asked(world, web):
    fetcher = HttpFetcher(web)
    with fetcher.within(0.001):
        time.sleep(0.01)
        with pytest.raises(SlowRetrievalError, match="timeout while"):
            fetcher.download_bytes("metadata/timestamp.json", 16384)
    with fetcher.within(30):
        assert fetcher.download_bytes("metadata/timestamp.json", 16384)


@pytest.mark.slow
def test_a_consumer_of_a_crawling_server_goes_on_serving(world):
    world.publish("0.1.0")
    world.consumer().load("assistant", "route")
    with saying(OK, b"Content-Length: 9999\r\n\r\n", again=b"x", pause_s=0.02) as url:
        consumer = world.consumer(url, timeout_s=0.5)
        begun = time.monotonic()
        assert not consumer.refresh().online
        assert time.monotonic() - begun < 6
        assert consumer.load("assistant", "route").source == "cache"


def test_a_consumer_of_an_endless_server_goes_on_serving(world):
    world.publish("0.1.0")
    world.consumer().load("assistant", "route")
    with saying(OK, b"\r\n", again=b"x" * 65536) as url:
        consumer = world.consumer(url)
        refreshed = consumer.refresh()
        assert "is longer than 512,000 bytes; the rest was not read" in refreshed.reasons[0]
        assert consumer.load("assistant", "route").source == "cache"


@pytest.mark.parametrize("source", ["directory", "http"])
def test_oversized_metadata_is_not_read(world, request, source):
    world.publish("0.1.0")
    consumer = world.consumer(
        world.folder if source == "directory" else request.getfixturevalue("web")
    )
    consumer.load("assistant", "route")
    for name, most in (("timestamp.json", "16,384"), ("2.root.json", "512,000")):
        (world.metadata / name).write_bytes(b" " * 600_000)
        refreshed = consumer.refresh()
        assert not refreshed.online
        assert f"longer than {most} bytes" in refreshed.reasons[0]
        assert consumer.load("assistant", "route").source == "cache"


def test_a_body_that_ends_early_is_refused(world):
    world.publish("0.1.0")
    with saying(OK, b"Content-Length: 500\r\n\r\n{") as url:
        fetcher = HttpFetcher(url)
        with pytest.raises(DownloadError, match="cannot be fetched"):
            fetcher.download_bytes("timestamp.json", 1000)


def test_nothing_is_decompressed_on_the_way():
    body = b"\x1f\x8b" + bytes(10)
    head = b"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n"
    with saying(OK, head + body) as url:
        assert HttpFetcher(url).download_bytes("timestamp.json", 1000) == body


@pytest.mark.parametrize("status", [403, 404, 410, 500, 503])
def test_statuses_are_told(status):
    with saying(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status) as url:
        with pytest.raises(DownloadHTTPError) as caught:
            HttpFetcher(url).download_bytes("timestamp.json", 1000)
        assert caught.value.status_code == status


def test_redirects_are_followed_a_few_times(world, web):
    world.publish("0.1.0")

    class Elsewhere(Quiet):
        def do_GET(self):  # noqa: N802
            self.send_response(302)
            self.send_header("Location", web + self.path.removeprefix("/moved"))
            self.send_header("Content-Length", "0")
            self.end_headers()

    with served(Elsewhere) as url:
        consumer = world.consumer(f"{url}/moved")
        assert consumer.refresh().online
        assert consumer.load("assistant", "route").source == "registry"


@pytest.mark.parametrize(
    "location", ["/again", "file:///etc/passwd", "ftp://example.org/x", "http:///"]
)
def test_redirects_that_lead_nowhere_are_refused(location):
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    with saying(head.encode()) as url:
        fetcher = HttpFetcher(url)
        with fetcher.within(20), pytest.raises(DownloadError):
            fetcher.download_bytes("timestamp.json", 1000)


def test_a_server_that_is_away_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(DownloadError, match="cannot be fetched"):
        HttpFetcher(url).download_bytes("timestamp.json", 1000)


def test_a_server_without_a_certificate_that_is_trusted_is_refused():
    with saying(OK, b"\r\n") as url, pytest.raises(DownloadError):
        HttpFetcher(url.replace("http:", "https:")).download_bytes("timestamp.json", 1000)


def test_connections_are_kept(world, web):
    fetcher = HttpFetcher(web)
    for _ in range(5):
        fetcher.download_bytes("metadata/timestamp.json", 16384)
    (pool,) = fetcher._pools.values()
    assert pool.num_connections == 1


def test_a_place_is_read_with_the_same_limits(tmp_path):
    place = DirectoryPlace(tmp_path)
    place.write_new("a", bytes(100))
    fetcher = PlaceFetcher(place)
    with fetcher.within(1):
        assert fetcher.download_bytes("a", 100) == bytes(100)
    assert b"".join(fetcher.fetch("a")) == bytes(100)
    with pytest.raises(DownloadLengthMismatchError):
        fetcher.download_bytes("a", 99)
    with pytest.raises(DownloadHTTPError, match="b not found"):
        fetcher.download_bytes("b", 99)


def test_reading_a_small_file_takes_little_memory(tmp_path):
    place = DirectoryPlace(tmp_path)
    place.write_new("a", b"x")
    tracemalloc.start()
    try:
        place.read("a")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_sources_are_opened_by_url(tmp_path):
    assert isinstance(open_source("https://example.org/registry/acme"), HttpFetcher)
    assert isinstance(open_source(f"file://{tmp_path}"), PlaceFetcher)
    for url in ("https://", "https://example.org/?query", "https://user@example.org/x"):
        with pytest.raises(InputError):
            open_source(url)
