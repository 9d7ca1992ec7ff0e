"""HTTP request with a total timeout, including name look-up, headers and body.

A socket timeout restarts with every piece, so a slow server could block the reader for ever. A
separate thread does the exchange; the caller waits until the timeout, then closes the connection.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from steersman.errors import BackendAnswerError, BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Server:
    """Address of a server.

    Attributes:
        scheme: http or https; https verifies the certificate.
        host: name or address.
        port: TCP port.
        prefix: path prefix, without a trailing slash.
        ca_file: trusted certificates in PEM; None: those of the system.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    ca_file: str | None = None

    def connection(self, timeout_s: float) -> HTTPConnection:
        """Return a connection that is not open yet.

        Args:
            timeout_s: timeout per socket operation, in seconds.

        Raises:
            BackendUnavailableError: the trusted certificates cannot be read.
        """
        if self.scheme == "http":
            return HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            trusted = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            message = f"no secure connection: ca_file {self.ca_file} cannot be used: {error}"
            raise BackendUnavailableError(f"{message}; pass certificates in PEM format") from error
        return HTTPSConnection(self.host, self.port, timeout=timeout_s, ssl_context=trusted)


@dataclass(frozen=True, slots=True)
class Reply:
    """Response with any status.

    Attributes:
        status: HTTP status.
        retry_after: unchanged Retry-After header, or "".
        body: unchanged body.
    """

    status: int
    retry_after: str
    body: bytes


def post(
    server: Server,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    max_bytes: int,
) -> Reply:
    """Send a request over a new connection, and return the response.

    Args:
        timeout_s: total timeout in seconds, > 0.

    Raises:
        BackendUnavailableError: no complete response in time, or no connection.
        BackendAnswerError: the response is too long.
    """
    # Slightly longer than the wait below, so that the wait always ends first.
    exchange = _Exchange(server, timeout_s + 1.0, max_bytes)
    asked = (server.prefix + path, body, headers)
    thread = threading.Thread(target=exchange.run, args=asked, name="steersman-llm", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        message = f"no complete answer within {timeout_s:g} s{exchange.waits_for()}"
        exchange.cut()
        raise BackendUnavailableError(message)
    if exchange.error is not None:
        raise exchange.error
    if exchange.reply is None:  # only a bug ends the thread without a result
        raise BackendUnavailableError("the exchange ended without an answer")
    return exchange.reply


class _Exchange:
    """Exchange in its thread, with the result."""

    def __init__(self, server: Server, timeout_s: float, max_bytes: int) -> None:
        self.reply: Reply | None = None
        self.error: Exception | None = None
        self._server, self._timeout_s = server, timeout_s
        self._max_bytes = max_bytes
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._is_cut = False

    def waits_for(self) -> str:
        """Return progress and likely cause, as the end of an error message."""
        if self._socket is not None:
            return "; the server may be busy, or timeout_s too short"
        if self._server.scheme == "https" and getattr(self._connection, "sock", None) is not None:
            advice = "if the server does not speak TLS, use a base_url with http://"
            return f": connected, but no answer to the TLS handshake; {advice}"
        return ": not connected yet; check the address and the firewall rules"

    def run(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            self._connection = connection = self._server.connection(self._timeout_s)
            with closing(connection):
                self.reply = self._exchange(connection, path, body, headers)
        except (HTTPError, HTTPException, OSError) as error:
            message = f"{_kind(error)}: {error}; check the address, and that the server is running"
            self.error = BackendUnavailableError(message)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error

    def cut(self) -> None:
        """Close the connection, which ends the thread."""
        self._is_cut = True
        if self._socket is not None:
            # The connection may just have been closed.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _exchange(
        self, connection: HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        connection.connect()
        # The connection drops its socket while the last response is read.
        self._socket = connection.sock
        if self._is_cut:
            raise TimeoutError("the connection was opened after the timeout")
        connection.request("POST", path, body, headers, preload_content=False)
        response = connection.getresponse()
        try:
            content = response.read(self._max_bytes + 1, decode_content=False)
        finally:
            response.close()
        if len(content) > self._max_bytes:
            message = f"the answer has more than {self._max_bytes} bytes, the maximum"
            raise BackendAnswerError(f"{message}; check that the server speaks chat completions")
        if response.length_remaining:
            raise HTTPException(f"the answer ends {response.length_remaining} bytes too early")
        return Reply(response.status, response.headers.get("Retry-After", ""), content)


def _kind(error: Exception) -> str:
    return "no secure connection" if isinstance(error, ssl.SSLError) else type(error).__name__
