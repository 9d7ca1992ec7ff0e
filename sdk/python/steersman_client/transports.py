"""HTTP transports: urllib3 for threads, aiohttp for event loops."""

from __future__ import annotations

import asyncio

# Python looks this codec up for every address, and would import it in the thread that sends first:
# a child forked in the middle of that would have half of it, and could never connect.
import encodings.idna  # noqa: F401
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.exceptions import HTTPError

from steersman_client.connect import Resolver
from steersman_client.deadlines import pool_manager
from steersman_client.exchange import MAX_ANSWER_BYTES, Answer, Failure
from steersman_client.fork_safety import Forkable, track

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

    from steersman_client.exchange import Heard, Send

_CHUNK = 1 << 16
_POOL = 64
_abandoned: list[object] = []
"""Inherited resources that a forked child must neither use nor close."""


class Urllib3Transport(Forkable):
    """Transport for threads, with a connection pool.

    Args:
        base_url: URL checked by `Settings`.
        api_key: API key.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        self._base_url = base_url
        self._headers = _headers(api_key)
        self._connect()
        track(self)

    def send(self, step: Send) -> Heard:
        """Send a request and return its result."""
        request = step.request
        try:
            response = self._pool.urlopen(
                request.method,
                self._prefix + request.path,
                body=request.body or None,
                headers=_with(self._headers, request.headers),
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(total=step.timeout_s),
                preload_content=False,
            )
            try:
                return _read_answer(response)
            finally:
                response.release_conn()
        except (HTTPError, OSError) as error:
            return Failure(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close all connections."""
        self._manager.clear()

    def after_fork_in_child(self) -> None:
        """Use new connections and leave the parent's untouched."""
        _abandoned.append(self._manager)
        self._connect()

    def _connect(self) -> None:
        self._manager = pool_manager(_POOL)
        self._pool = self._manager.connection_from_url(self._base_url)
        self._prefix = urllib3.util.parse_url(self._base_url).path or ""


class AiohttpTransport(Forkable):
    """Transport for one event loop at a time, with a connection pool.

    Args:
        base_url: URL checked by `Settings`.
        api_key: API key.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        # Loading it takes a tenth of a second, which users of threads need not spend.
        import aiohttp  # noqa: PLC0415

        self._aiohttp = aiohttp
        self._base_url = base_url
        self._headers = _headers(api_key)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        track(self)

    async def send(self, step: Send) -> Heard:
        """Send a request and return its result."""
        request = step.request
        try:
            async with asyncio.timeout(step.timeout_s):
                session = await self._session_here()
                async with session.request(
                    request.method,
                    self._base_url + request.path,
                    data=request.body or None,
                    headers=request.headers,
                    allow_redirects=False,
                ) as response:
                    body = await response.content.read(MAX_ANSWER_BYTES + 1)
                    while not response.content.at_eof() and len(body) <= MAX_ANSWER_BYTES:
                        body += await response.content.read(_CHUNK)
                    if len(body) > MAX_ANSWER_BYTES:
                        return _too_long()
                    again = response.headers.get("Retry-After", "")
                    return Answer(response.status, again, body)
        except TimeoutError:
            return Failure(f"no answer in {step.timeout_s:.3f} s")
        except (self._aiohttp.ClientError, OSError) as error:
            return Failure(f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def after_fork_in_child(self) -> None:
        """Use new connections and leave the parent's untouched."""
        _abandoned.append(self._session)
        self._session = None

    async def _session_here(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is not None and self._loop is not loop:
            # asyncio.run was called again; connections of a loop that is gone cannot be used.
            await self.close()
        if self._session is None:
            self._loop = loop
            resolver: Any = Resolver()  # aiohttp's own base class is not loaded before it is needed
            self._session = self._aiohttp.ClientSession(
                connector=self._aiohttp.TCPConnector(limit=_POOL, resolver=resolver),
                headers={**self._headers, "Accept-Encoding": "identity"},
                auto_decompress=False,
                cookie_jar=self._aiohttp.DummyCookieJar(),
                timeout=self._aiohttp.ClientTimeout(total=None),
            )
        return self._session


def _headers(api_key: str) -> dict[str, str]:
    from steersman import __version__  # noqa: PLC0415 (the package's own name)

    return {
        "Authorization": f"Bearer {api_key}",
        "Content-Type": "application/json",
        "Accept": "application/json, application/problem+json",
        "User-Agent": f"steersman-python/{__version__}",
    }


def _with(headers: dict[str, str], more: Mapping[str, str] | None) -> dict[str, str]:
    return {**headers, **more} if more else headers


def _read_answer(response: urllib3.BaseHTTPResponse) -> Heard:
    """Read the body piece by piece, up to the size limit."""
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_CHUNK):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            return _too_long()
    return Answer(response.status, response.headers.get("Retry-After", ""), b"".join(pieces))


def _too_long() -> Failure:
    return Failure(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
