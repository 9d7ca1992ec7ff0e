"""Load generator with little overhead: prepared requests over persistent connections.

Each of N clients sends its next request when it has the answer to its last one (closed loop). So N
requests are in flight. Only Content-Length and status of answers are parsed; bodies can be kept.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Connection", "Load", "drive", "post"]


@dataclass
class Load:
    """Result of a load run.

    Args:
        seconds: Seconds from the first request to the last answer.
        latencies_ms: Latency of each answer, in order of arrival.
        refused: Number of answers with a status other than 200.
        kept: Bodies of the answers, if kept.
    """

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    refused: int = 0
    kept: list[bytes] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies_ms) / self.seconds

    def percentile(self, share: float) -> float:
        """Return a percentile of the latencies, in ms.

        Args:
            share: Percentage, 0 to 100.
        """
        return float(np.percentile(self.latencies_ms, share))


def post(path: str, key: str, body: bytes) -> bytes:
    """Return the bytes of one request.

    Args:
        path: URL path, such as ``/v1/decide``.
        key: API key; empty for none.
        body: JSON body.
    """
    auth = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{auth}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def drive(
    host: str,
    port: int,
    requests: Callable[[int], Iterator[bytes]],
    *,
    clients: int,
    keep: bool = False,
) -> Load:
    """Send requests over N connections until each client has none left.

    Args:
        host: Host of the server.
        port: Port of the server.
        requests: Returns the requests of a client, by its number.
        clients: Number of concurrent clients.
        keep: Whether to keep the bodies of the answers.

    Returns:
            The result.
    """
    loop = asyncio.get_running_loop()
    load = Load()
    over = [loop.create_future() for _ in range(clients)]
    connections = [
        await loop.create_connection(
            lambda n=n: _Client(requests(n), load, over[n], keep=keep),  # type: ignore[misc]
            host,
            port,
        )
        for n in range(clients)
    ]
    begun = time.perf_counter()
    for _, client in connections:
        client.send()
    await asyncio.gather(*over)
    load.seconds = time.perf_counter() - begun
    for transport, _ in connections:
        transport.close()
    return load


class Connection:
    """Persistent connection for one request after the other; raises unless the status is 200."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        """Connect.

        Args:
            host: Host of the server.
            port: Port of the server.
        """
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, request: bytes) -> bytes:
        """Return the body of the answer.

        Args:
            request: Bytes from `post`.

        Raises:
            RuntimeError: The status is not 200.
        """
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().find(b"content-length:")
        body = await self._reader.readexactly(int(head[at + 15 : head.find(b"\r", at + 15)]))
        if head[9:12] != b"200":
            message = f"the answer is {head[:40]!r}: {body[:200]!r}"
            raise RuntimeError(message)
        return body

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class _Client(asyncio.Protocol):
    def __init__(
        self, requests: Iterator[bytes], load: Load, over: asyncio.Future[None], *, keep: bool
    ) -> None:
        self._requests = requests
        self._load = load
        self._over = over
        self._keep = keep
        self._buffer = b""
        self._sent = 0.0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            if not self._over.done():
                self._over.set_result(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.lower().find(b"content-length:", 0, head)
        length = int(self._buffer[at + 15 : self._buffer.find(b"\r", at + 15)])
        if len(self._buffer) < head + 4 + length:
            return
        self._load.latencies_ms.append((time.perf_counter() - self._sent) * 1000)
        if self._buffer[9:12] != b"200":
            self._load.refused += 1
        if self._keep:
            self._load.kept.append(self._buffer[head + 4 :])
        self._buffer = b""
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            message = f"the server closed a connection: {exc!r}; see its log"
            self._over.set_exception(ConnectionError(message))
