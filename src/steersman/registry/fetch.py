"""Bounded fetching from an untrusted registry: size limit and total timeout.

Content is never decompressed here. The timeout covers the whole transfer, so that slow servers
cannot hold it open.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from weakref import WeakSet

import urllib3
from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    SlowRetrievalError,
)
from tuf.ngclient.fetcher import FetcherInterface
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from steersman.errors import InputError, RegistryError, VerificationError
from steersman.registry.bucket import open_place, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman.registry.storage import Place, StoredFile

_CONNECT_S = 5.0
_GAP_S = 10.0
_AGAIN_S = 0.05
_REDIRECTS = 3
_PIECE = 1 << 18
_AT_ONCE = urllib3.Retry(total=1, read=1, connect=0, redirect=0, status=0, other=0)


class Fetcher(FetcherInterface):
    """Fetcher of files below a registry; a URL is a relative path."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set a total timeout in seconds for all fetches inside the block."""
        del seconds
        yield

    def _fetch(self, url: str) -> Iterator[bytes]:
        raise NotImplementedError


class PlaceFetcher(Fetcher):
    """Fetcher from a directory or bucket.

    Reads with a timeout run in a separate thread. A hanging file share blocks that thread, so no
    further read starts until it returns.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._ends_at = float("inf")
        self._aside: threading.Thread | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set a total timeout in seconds for all reads inside the block."""
        self._ends_at = time.monotonic() + seconds
        try:
            yield
        finally:
            self._ends_at = float("inf")

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file.

        Raises:
            DownloadError: not found, too long, or timeout.
        """
        try:
            held = self._read(url, max_length)
        except VerificationError as error:
            raise DownloadLengthMismatchError(str(error)) from error
        except RegistryError as error:
            # Tenants read this message over HTTP: it must not show where the registry is.
            cause = error.__cause__
            why = cause.strerror if isinstance(cause, OSError) else error
            message = f"{url} cannot be read: {why}"
            raise DownloadError(message) from error
        if held is None:
            message = f"{url} not found"
            raise DownloadHTTPError(message, 404)
        return held.data

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, 1 << 62)

    def _read(self, url: str, most: int) -> StoredFile | None:
        left = self._ends_at - time.monotonic()
        if left == float("inf"):
            return self._place.read(url, max_bytes=most)
        if self._aside is not None and self._aside.is_alive():
            raise SlowRetrievalError(
                f"{url} was not read: the read of an earlier file is still pending"
            )
        read: Future[StoredFile | None] = Future()
        # A daemon thread: a hanging share does not block the exit of the program.
        self._aside = threading.Thread(target=_settle, args=(read, self._place, url, most))
        self._aside.daemon = True
        self._aside.start()
        wait([read], timeout=max(left, 0.0))
        if not read.done():
            raise SlowRetrievalError(f"timeout while reading {url}")
        return read.result()


def _settle(read: Future[StoredFile | None], place: Place, url: str, most: int) -> None:
    try:
        read.set_result(place.read(url, max_bytes=most))
    except BaseException as error:  # noqa: BLE001 (raised in the waiting thread)
        read.set_exception(error)


class _Connection(HTTPConnection):
    """HTTP connection that another thread can close."""

    def __init__(self, *given: Any, live: WeakSet[HTTPConnection], **further: Any) -> None:
        super().__init__(*given, **further)
        live.add(self)


class _SecureConnection(HTTPSConnection):
    """HTTPS connection that another thread can close."""

    def __init__(self, *given: Any, live: WeakSet[HTTPConnection], **further: Any) -> None:
        super().__init__(*given, **further)
        live.add(self)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class HttpFetcher(Fetcher):
    """Fetcher over HTTP or HTTPS, from any static server.

    Args:
        base: URL of the tenant's registry.
    """

    def __init__(self, base: str) -> None:
        self._base = base.rstrip("/") + "/"
        self._pools: dict[tuple[str, str, int | None], HTTPConnectionPool] = {}
        self._live: WeakSet[HTTPConnection] = WeakSet()
        self._ends_at = float("inf")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Close all connections when the total timeout in seconds is over."""
        self._ends_at = time.monotonic() + seconds
        done = threading.Event()
        watch = threading.Thread(target=self._cut_after, args=(seconds, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            self._ends_at = float("inf")

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file.

        Raises:
            DownloadError: not found, too long, timeout, or no response.
        """
        data = bytearray()
        pieces = self.fetch(url)
        try:
            for piece in pieces:
                data += piece
                if len(data) > max_length:
                    message = f"{url} is longer than {max_length:,} bytes; the rest was not read"
                    raise DownloadLengthMismatchError(message)
        finally:
            pieces.close()  # type: ignore[attr-defined]  # a generator; closing it closes the response
        return bytes(data)

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            response = self._answer(url)
            try:
                while piece := response.read1(_PIECE, decode_content=False):
                    self._still_time(url)
                    yield piece
                self._still_time(url)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            self._still_time(url)
            if isinstance(error, urllib3.exceptions.TimeoutError):
                raise SlowRetrievalError(f"{url}: {error}") from error
            raise DownloadError(f"{url} cannot be fetched: {error}") from error

    def _answer(self, url: str) -> urllib3.BaseHTTPResponse:
        where = self._base + url
        for _ in range(_REDIRECTS + 1):
            self._still_time(url)
            response = self._ask(where)
            location = response.get_redirect_location()
            if not location:
                break
            response.close()
            where = urljoin(where, location)
        if response.status != 200:
            response.close()
            raise DownloadHTTPError(f"{url}: status {response.status}", response.status)
        return response

    def _ask(self, where: str) -> urllib3.BaseHTTPResponse:
        parts = urlsplit(where)
        return self._pool(where).urlopen(
            "GET",
            parts._replace(scheme="", netloc="", fragment="").geturl() or "/",
            headers={"Accept-Encoding": "identity", "User-Agent": "steersman"},
            retries=_AT_ONCE,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_GAP_S),
        )

    def _pool(self, where: str) -> HTTPConnectionPool:
        parts = urlsplit(where)
        key = parts.scheme, parts.hostname or "", parts.port
        if key not in self._pools:
            kind = {"http": _Pool, "https": _SecurePool}.get(parts.scheme)
            if kind is None or not parts.hostname:
                raise DownloadError(f"{without_secrets(where)} is not an http or https URL")
            self._pools[key] = kind(parts.hostname, parts.port, maxsize=2, live=self._live)
        return self._pools[key]

    def _still_time(self, url: str) -> None:
        if time.monotonic() >= self._ends_at:
            raise SlowRetrievalError(f"timeout while fetching {url}")

    def _cut_after(self, seconds: float, done: threading.Event) -> None:
        if not done.wait(seconds):
            # Repeated: a connection may open just after the timeout.
            while not done.wait(_AGAIN_S):
                self._cut()

    def _cut(self) -> None:
        for connection in list(self._live):
            sock = connection.sock
            if sock is not None:
                # close() does not wake a reading thread; shutdown() does. It may be closed already.
                try:
                    sock.shutdown(2)
                except OSError:
                    continue


def open_source(source: str | Path) -> Fetcher:
    """Return the fetcher for a directory, bucket or web server.

    Raises:
        InputError: unsupported URL.
        DataError: the source is a bucket, and obstore is not installed.
    """
    text = str(source)
    if not text.startswith(("http://", "https://")):
        return PlaceFetcher(open_place(source))
    parts = urlsplit(text)
    if not parts.hostname or parts.query or parts.fragment or parts.username:
        message = f"{without_secrets(text)} is not a registry URL; expected https://host/path"
        raise InputError(message)
    return HttpFetcher(text)
