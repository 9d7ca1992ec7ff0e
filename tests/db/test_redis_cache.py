"""Redis answer cache: isolation, expiry and lost connections."""

from __future__ import annotations

import logging
import re
import signal
import socket
import sys
import time
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.answer_cache import pack_vectors
from steersman.db.answer_cache_redis import RedisCache
from steersman.errors import DataError, InputError, StoreError
from steersman.errors.install_hint import how_to_install
from tests.db.test_tls import certificate
from tests.redis_server import PASSWORD, redis_server

redis = pytest.importorskip("redis")

KEY = "ab" * 32
LONGEST_S = 5.0  # far above two time limits of .25 s, for a machine that is busy


def vectors(seed=0, rows=12):
    return np.random.default_rng(seed).standard_normal((rows, 384)).astype(np.float16)


@pytest.fixture(scope="module")
def server():
    with redis_server() as made:
        yield made


@pytest.fixture
def tenant():
    return uuid4()


@pytest.fixture
def cache(server, tenant):
    with RedisCache(server.url, tenant) as made:
        yield made


@pytest.fixture
def raw(server):
    with redis.Redis.from_url(server.url) as client:
        yield client


def test_what_was_kept_is_found_to_the_bit(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, vectors())
    assert cache.get(KEY).tobytes() == vectors().tobytes()
    cache.put(KEY, vectors(1, rows=1))
    assert cache.get(KEY).shape == (1, 384)


def test_keys_begin_with_the_tenant_and_end_with_time(cache, tenant, raw):
    cache.put(KEY, vectors())
    place = f"steersman:answer:{tenant}:{KEY}"
    assert raw.keys(f"steersman:answer:{tenant}:*") == [place.encode()]
    assert 7 * 86_400 - 60 < raw.ttl(place) <= 7 * 86_400


@pytest.mark.slow
def test_an_answer_goes_after_its_time(server, tenant):
    with RedisCache(server.url, tenant, ttl_s=1) as cache:
        cache.put(KEY, vectors())
        until = time.monotonic() + 30
        while cache.get(KEY) is not None:
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.parametrize("key", ["", "*", "../x", "AB" * 32, "ab" * 65])
def test_what_is_no_key_is_refused(cache, key):
    with pytest.raises(InputError, match="hex digits"):
        cache.get(key)
    with pytest.raises(InputError, match="hex digits"):
        cache.put(key, vectors())


@pytest.mark.parametrize("value", [b"short", bytes(5_000_000), pack_vectors(vectors())[:-1]])
def test_what_somebody_else_wrote_is_not_believed(cache, tenant, raw, value):
    raw.set(f"steersman:answer:{tenant}:{KEY}", value)
    with pytest.raises(DataError, match="damaged"):
        cache.get(KEY)
    cache.put(KEY, vectors())
    assert cache.get(KEY) is not None


def test_another_type_of_value_is_no_answer(cache, tenant, raw):
    raw.lpush(f"steersman:answer:{tenant}:{KEY}", "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        cache.get(KEY)


def test_vectors_that_are_not_finite_are_not_kept(cache):
    with pytest.raises(InputError, match="finite"):
        cache.put(KEY, np.full((1, 4), np.inf, np.float16))
    assert cache.get(KEY) is None


def test_it_tells_the_servers_version(cache):
    assert cache.version()[0].isdigit()


def test_a_server_that_dies_and_comes_back():
    with redis_server() as server, RedisCache(server.url, uuid4()) as cache:
        cache.put(KEY, vectors())
        server.kill()
        begun = time.monotonic()
        with pytest.raises(StoreError, match="steersman doctor"):
            cache.get(KEY)
        assert time.monotonic() - begun < LONGEST_S
        server.start()
        assert cache.get(KEY) is None
        cache.put(KEY, vectors())
        assert cache.get(KEY) is not None


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up_in_time():
    with redis_server() as server, RedisCache(server.url, uuid4()) as cache:
        cache.put(KEY, vectors())
        server.signal(signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(StoreError, match="Timeout"):
            cache.get(KEY)
        assert time.monotonic() - begun < LONGEST_S
        server.signal(signal.SIGCONT)
        assert cache.get(KEY) is not None


def test_a_server_without_room_says_so():
    with (
        redis_server("--maxmemory", "1mb", "--maxmemory-policy", "noeviction") as server,
        RedisCache(server.url, uuid4()) as cache,
        pytest.raises(StoreError, match="maxmemory"),
    ):
        _fill(cache)


def _fill(cache):
    for n in range(300):
        cache.put(f"{n:04x}", vectors())


def test_the_password_is_shown_nowhere(server, tenant, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = server.url.replace(quote(PASSWORD, safe=""), "wr0ng-one")
    for url, kind in (
        (wrong, StoreError),
        (f"redis://:{PASSWORD}@127.0.0.1:1/0", (StoreError, InputError)),
        ("redis://:wr0ng-one@127.0.0.1:1/0", StoreError),
        ("redis://:wr0ng-one@127.0.0.1:nine/0", InputError),
        ("http://:wr0ng-one@127.0.0.1:1/0", InputError),
        ("wr0ng-one", InputError),
    ):
        with pytest.raises(kind) as told, RedisCache(url, tenant) as cache:
            cache.get(KEY)
        shown = f"{told.value!r} {told.value.__cause__!r} {caplog.text}"
        assert "wr0ng-one" not in shown
        assert PASSWORD not in shown
        assert "p@ss" not in shown


@pytest.mark.parametrize("wrong", [{"ttl_s": 0}, {"ttl_s": 10**9}, {"timeout_s": 0}])
def test_numbers_out_of_range_are_refused(tenant, wrong):
    with pytest.raises(InputError, match="allowed is"):
        RedisCache("redis://localhost", tenant, **wrong)


def test_it_says_which_extra_is_missing(tenant, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(StoreError, match=re.escape(how_to_install("redis"))):
        RedisCache("redis://localhost", tenant)


def test_it_works_over_tls_alone(tmp_path, tenant):
    for name in ("server", "other"):
        certificate(tmp_path, name)
    server_files = ("--tls-cert-file", tmp_path / "server.crt", "--tls-key-file")
    port = _free_port()
    options = [*server_files, tmp_path / "server.key", "--tls-auth-clients", "no"]
    with redis_server("--tls-port", str(port), "--port", "0", *options):
        base = f"rediss://:{quote(PASSWORD, safe='')}@localhost:{port}/0?ssl_ca_certs="
        with RedisCache(base + str(tmp_path / "server.crt"), tenant, timeout_s=5) as cache:
            cache.put(KEY, vectors())
            assert cache.get(KEY) is not None
        with (
            RedisCache(base + str(tmp_path / "other.crt"), tenant, timeout_s=5) as cache,
            pytest.raises(StoreError, match="certificate"),
        ):
            cache.get(KEY)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
