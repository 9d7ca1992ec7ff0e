"""urllib3 connections with a deadline for the whole exchange."""

from __future__ import annotations

import io
import time
from functools import partial
from http.client import HTTPResponse
from socket import gaierror
from typing import TYPE_CHECKING

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from steersman_client.connect import connect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket
    from typing import Any

    from _typeshed import WriteableBuffer


class _Until(io.RawIOBase):
    """Socket reader with a deadline on the monotonic clock.

    A socket timeout applies to each read: a server that sends single bytes, or repeats ``100
    Continue``,
    never reaches it.
    """

    def __init__(self, sock: socket, until: float) -> None:
        self._sock, self._until = sock, until
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until it is closed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("the answer arrived too slowly")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    """HTTP response with a deadline."""

    def __init__(self, sock: socket, *, until: float, method: str | None = None) -> None:
        super().__init__(sock, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock, until))


class _InTime:
    """Connection whose setup and response share one deadline."""

    timeout: float
    host: str
    port: int
    socket_options: Sequence[tuple[Any, ...]] | None
    _dns_host: str

    def _new_conn(self) -> socket:
        until = time.monotonic() + self.timeout
        this: Any = self
        try:
            return connect(self._dns_host.strip("[]"), self.port, until, self.socket_options or ())
        except gaierror as error:
            raise NameResolutionError(self.host, this, error) from error
        except TimeoutError as error:
            message = f"no connection to {self.host} in {self.timeout:.3f} s"
            raise ConnectTimeoutError(this, message) from error
        except OSError as error:
            raise NewConnectionError(this, f"no connection to {self.host}: {error}") from error

    def getresponse(self) -> urllib3.HTTPResponse:
        self.response_class = partial(_Answer, until=time.monotonic() + self.timeout)
        answer: urllib3.HTTPResponse = super().getresponse()  # type: ignore[misc]
        return answer


class _Plain(_InTime, HTTPConnection):  # type: ignore[misc]  # of urllib3's own is any timeout
    ...


class _Secure(_InTime, HTTPSConnection):  # type: ignore[misc]
    ...


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain  # type: ignore[assignment]


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Secure  # type: ignore[assignment]


def pool_manager(connections: int) -> urllib3.PoolManager:
    """Return a connection pool for one service; each request needs a timeout.

    Args:
        connections: maximum number of kept connections.
    """
    manager = urllib3.PoolManager(num_pools=1, maxsize=connections)
    manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
    return manager
