"""Registries that hang: after some failures the cache serves at once, and one asks now and then."""

from __future__ import annotations

import threading
import time

import pytest
from tuf.api.exceptions import DownloadError, SlowRetrievalError

from steersman.platform.breaker import Breaker
from steersman.registry.consumer import Circuit
from steersman.registry.fetch import HttpFetcher, PlaceFetcher
from steersman.registry.storage import DirectoryPlace
from tests.registry.conftest import Clock, Quiet, served

TIMEOUT_S = 0.4
PLACE = "assistant", "route", "0.1.0"


class Hanging(Quiet):
    """A static server that now and then answers nobody."""

    let_go = threading.Event()
    hangs = False
    asked = 0
    status = 0

    def do_GET(self):  # noqa: N802 (named by http.server)
        type(self).asked += 1
        if self.hangs:
            self.let_go.wait(30)
            self.close_connection = True
        elif self.status:
            self.send_error(self.status)
        else:
            super().do_GET()


@pytest.fixture
def web(world):
    """Return a server of the registry, and its address."""
    kind = type("OfOneTest", (Hanging,), {"let_go": threading.Event()})
    with served(lambda *given: kind(*given, directory=str(world.folder))) as url:
        yield kind, url
        kind.let_go.set()


def made(clock, **options):
    return Breaker("registry", clock, failures=3, open_s=5.0, **options)


@pytest.mark.slow
def test_what_is_in_the_cache_serves_at_once_while_the_registry_hangs(world, web):
    kind, url = web
    world.publish("0.1.0")
    clock = Clock()
    breaker = made(clock)

    def loading():
        """Load as a tenant's first request does; return how long it took, and where from."""
        consumer = world.consumer(url, timeout_s=TIMEOUT_S, breaker=breaker)
        begun = time.monotonic()
        loaded = consumer.load(*PLACE)
        return time.monotonic() - begun, loaded.source

    assert loading()[1] == "registry"
    kind.hangs = True
    slow = [loading() for _ in range(3)]
    assert {source for _, source in slow} == {"cache"}
    assert all(took >= TIMEOUT_S for took, _ in slow)
    assert breaker.state == "open"
    asked = kind.asked
    quick = [loading() for _ in range(5)]
    assert {source for _, source in quick} == {"cache"}
    assert all(took < TIMEOUT_S for took, _ in quick)
    assert kind.asked == asked
    clock.now += 5.1
    assert loading()[0] >= TIMEOUT_S  # the probe
    assert kind.asked > asked
    assert breaker.state == "open"
    clock.now += 5.1
    kind.hangs = False
    assert loading()[1] == "registry"
    assert breaker.state == "closed"


@pytest.mark.slow
def test_the_reason_says_that_it_was_not_asked(world, web):
    kind, url = web
    world.publish("0.1.0")
    breaker = made(Clock())
    consumer = world.consumer(url, timeout_s=TIMEOUT_S, breaker=breaker)
    consumer.load(*PLACE)
    kind.hangs = True
    for _ in range(3):
        consumer.refresh()
    asked = kind.asked
    refreshed = consumer.refresh()
    assert not refreshed.online
    assert "will be retried soon" in refreshed.reasons[0]
    assert kind.asked == asked


@pytest.mark.parametrize(("status", "opens"), [(404, False), (403, False), (500, True)])
def test_a_refusal_is_an_answer_and_a_broken_server_is_none(web, status, opens):
    kind, url = web
    kind.status = status
    breaker = made(Clock())
    fetcher = Circuit(HttpFetcher(url), breaker)
    for _ in range(3):
        with pytest.raises(DownloadError, match=str(status)):
            fetcher.download_bytes("metadata/timestamp.json", 100)
    assert (breaker.state == "open") is opens


def test_a_file_that_is_too_long_is_an_answer(world, web):
    _, url = web
    breaker = made(Clock())
    fetcher = Circuit(HttpFetcher(url), breaker)
    for _ in range(4):
        with pytest.raises(DownloadError, match="longer"):
            fetcher.download_bytes("metadata/timestamp.json", 3)
    assert breaker.state == "closed"
    assert len(b"".join(fetcher.fetch("metadata/timestamp.json"))) > 3


class Share(DirectoryPlace):
    """A network share whose server not found: who reads is held until it is back."""

    def __init__(self, root):
        super().__init__(root)
        self.back = threading.Event()
        self.back.set()
        self.reads = 0

    def read(self, path, **limits):
        self.reads += 1
        self.back.wait(30)
        return super().read(path, **limits)


def test_a_share_that_hangs_is_left_and_asked_by_one_reader_at_a_time(tmp_path):
    share = Share(tmp_path)
    share.write_new("a", b"x")
    breaker = made(Clock())
    place = PlaceFetcher(share)
    fetcher = Circuit(place, breaker)
    share.back.clear()
    begun = time.monotonic()
    with fetcher.within(0.3), pytest.raises(SlowRetrievalError, match="timeout while"):
        fetcher.download_bytes("a", 10)
    with fetcher.within(0.3), pytest.raises(SlowRetrievalError, match="still pending"):
        fetcher.download_bytes("a", 10)
    assert time.monotonic() - begun < 2
    assert share.reads == 1
    share.back.set()
    place._aside.join(5)
    with fetcher.within(5):
        assert fetcher.download_bytes("a", 10) == b"x"
    assert breaker.state == "closed"


def test_what_a_reader_aside_meets_is_raised_where_it_is_waited_for(tmp_path):
    share = Share(tmp_path)
    share.write_new("a", b"long")
    fetcher = PlaceFetcher(share)
    with fetcher.within(5):
        with pytest.raises(DownloadError, match="longer"):
            fetcher.download_bytes("a", 1)
        with pytest.raises(DownloadError, match="b not found"):
            fetcher.download_bytes("b", 1)
