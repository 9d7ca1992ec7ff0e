# Generated from async_http.py by `python -m tools.unasync`; edit that file.
"""HTTP connections to one service, with a pool. `sync_http` is generated from `async_http`."""

from __future__ import annotations

# Python looks this codec up for every address, and would import it in the thread that sends first:
# a child forked in the middle of that would have half of it, and could not connect.
import encodings.idna  # noqa: F401
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steersman_client.exchange import Failure
from steersman_client.fork_safety import Forkable, track
from steersman_client.http1 import AnswerParser, Origin
from steersman_client.sync_io import Slots, connect, here, receive, send_all, timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman_client.exchange import Heard, Send

_CHUNK = 1 << 16
_POOL = 64
_abandoned: list[object] = []
"""Inherited resources that a forked child must neither use nor close."""


class SyncTransport(Forkable):
    """Transport with a connection pool; an async one serves one event loop at a time.

    Args:
        base_url: URL checked by `Settings`.
        api_key: API key.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        self._origin = Origin(base_url, api_key)
        self._context: ssl.SSLContext | None = None
        self._place: object = self
        self._idle: list[_Stream] = []
        self._slots = Slots(_POOL)
        self._closed = False
        track(self)

    def send(self, step: Send) -> Heard:
        """Send a request and return its result."""
        until = time.monotonic() + step.timeout_s
        missing = f"connection to {self._origin.host}"
        self._enter(here())
        try:
            with timeout(step.timeout_s), self._slots:
                stream = self._reusable() or self._opened(until)
                missing = "answer"
                try:
                    parser = stream.exchange(self._origin.encode(step.request), until)
                except BaseException:
                    stream.close()
                    raise
                if parser.reusable and not self._closed and len(self._idle) < _POOL:
                    self._idle.append(stream)
                else:
                    stream.close()
                return parser.answer or Failure("no answer")
        except TimeoutError:
            return Failure(f"no {missing} in {step.timeout_s:.3f} s")
        except OSError as error:
            return Failure(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._drop_idle()

    def after_fork_in_child(self) -> None:
        """Use new connections and leave the parent's untouched."""
        _abandoned.append(self._idle)
        self._idle = []
        self._place = self

    def _enter(self, place: object) -> None:
        """Drop what belongs to an earlier event loop, after ``asyncio.run`` was called again."""
        if self._place is not place:
            self._place = place
            self._slots = Slots(_POOL)
            self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _reusable(self) -> _Stream | None:
        # Pop without a look first: another thread may take the last one in between.
        with suppress(IndexError):
            while True:
                stream = self._idle.pop()
                if stream.is_quiet():
                    return stream
                stream.close()
        return None

    def _opened(self, until: float) -> _Stream:
        sock = connect(self._origin.host, self._origin.port, until)
        try:
            if not self._origin.secure:
                return _Stream(sock)
            if self._context is None:
                self._context = ssl.create_default_context()
                self._context.set_alpn_protocols(["http/1.1"])
            stream = _TlsStream(sock, self._context, self._origin.host)
            stream.shake_hands(until)
        except BaseException:
            sock.close()
            raise
        return stream


class _Stream:
    """Connection that carries one exchange at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def exchange(self, request: bytes, until: float) -> AnswerParser:
        """Send a request; return the parser with its answer."""
        # A server that refuses early closes its side, but its answer can still be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._write(request, until)
        parser = AnswerParser()
        while parser.answer is None:
            parser.feed(self._read(until))
        return parser

    def is_quiet(self) -> bool:
        """Return whether the server neither closed the connection nor sent anything unasked."""
        try:
            self._sock.setblocking(False)  # noqa: FBT003 (the standard library's)
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _write(self, data: bytes, until: float) -> None:
        send_all(self._sock, data, until)

    def _read(self, until: float) -> bytes:
        return receive(self._sock, _CHUNK, until)


class _TlsStream(_Stream):
    """Connection with TLS."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def shake_hands(self, until: float) -> None:
        """Agree on keys and check the server's certificate."""
        self._run(self._tls.do_handshake, until)

    def is_quiet(self) -> bool:
        """Return whether nothing unasked was sent; what was received but not read counts too."""
        return not self._incoming.pending and not self._tls.pending() and super().is_quiet()

    def _write(self, data: bytes, until: float) -> None:
        self._run(lambda: self._tls.write(data), until)

    def _read(self, until: float) -> bytes:
        with suppress(ssl.SSLZeroReturnError):  # the server ended the connection properly
            data: bytes = self._run(lambda: self._tls.read(_CHUNK), until)
            return data
        return b""

    def _run(self, step: Callable[[], Any], until: float) -> Any:
        """Repeat a step of TLS until it has all the bytes that it needs from the server."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush(until)
                data = receive(self._sock, _CHUNK, until)
                self._incoming.write(data) if data else self._incoming.write_eof()
            else:
                self._flush(until)
                return result

    def _flush(self, until: float) -> None:
        if data := self._outgoing.read():
            send_all(self._sock, data, until)
