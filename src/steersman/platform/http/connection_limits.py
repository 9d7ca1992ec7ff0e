"""HTTP connections with limits on size and time.

uvicorn limits neither the size nor the time of a request head, nor the time of a body. Here every
connection stores what it waits for and since when. One sweep twice a second closes connections that
wait too long, so no request pays for a timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from steersman.platform.http.messages import problem_answer
from steersman.wire import Problem

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Mapping


_PIECE = 4096  # bytes parsed at a time: 200 of the shortest requests, 3 kB each to hold
_LENGTH = b"content-length"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a connection.

    Attributes:
        head_bytes: maximum size of request line and headers in bytes.
        head_s: timeout for a complete head in seconds, from its first byte or from the connect.
        body_s: timeout for a complete body in seconds, from the end of its head.
        write_s: timeout in seconds for a client that does not read its answer.
        idle_s: timeout between two requests in seconds.
        connections: maximum number of open connections; one more is refused.
        drain_s: timeout in seconds for answering open requests at shutdown.
    """

    head_bytes: int = 32 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    write_s: float = 30.0
    idle_s: int = 75
    connections: int = 4_000
    drain_s: int = 10


class _Waits(Enum):
    FOR_HEAD = 1
    FOR_BODY = 2
    FOR_NOTHING = 3


class HeadTooLargeError(Exception):
    """Head larger than its limit; the parser reports it as a bad request."""


class OneWrite(RequestResponseCycle):
    """uvicorn's request cycle with a single write for a complete answer.

    uvicorn writes head and body separately, which costs one more system call per answer. Streamed
    answers and answers that end their connection take uvicorn's path.
    """

    _start: Any = None

    async def send(self, message: Any) -> None:
        """Buffer the head until the body is available, then write both."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            if self._is_plain(message):
                self._answer(start, message["body"])
                return
            await super().send(start)
        await super().send(message)

    def _is_plain(self, message: Mapping[str, Any]) -> bool:
        return (
            message["type"] == "http.response.body"
            and not message.get("more_body")
            and self.keep_alive
            and not self.disconnected
            and not self.flow.write_paused
            and self.scope["method"] != "HEAD"
        )

    def _answer(self, start: Mapping[str, Any], body: bytes) -> None:
        parts = [STATUS_LINE[start["status"]]]
        for name, value in (*self.default_headers, *start["headers"]):
            if name == b"connection":
                self.keep_alive = False
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n", body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class _Flow(FlowControl):
    """Flow control that reads on only if no received data waits for its turn.

    uvicorn resumes reading with every answer and for every body. A client that pipelined requests
    faster than they were answered filled the memory with 250,000 of them within a second.
    """

    held = False

    def resume_reading(self) -> None:
        if self.read_paused and not self.held:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits; `bounded` creates a class for given limits."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waits = _Waits.FOR_HEAD
        self._since = self.loop.time()
        self._raw = 0  # bytes of a head that came in earlier pieces
        self._seen = 0  # with this piece and that it began in: what a complete head has at most
        self._too_large = False
        self._messages = 0
        self._bodiless = 0  # bytes since the head, or the last of the body
        self._of_body = 0  # bytes of the body that came
        self._stuck_since: float | None = None
        self._read_already = False  # the head that is being read, as part of a message before
        self._unread = memoryview(b"")  # what has come, and is parsed when its turn has come
        self._answering: Any = None  # the cycle that is; `cycle` is the last one, and may wait

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if too many are open."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        if len(self.connections) > self.limits.connections:
            detail = f"{self.limits.connections} connections are open, as many as allowed; wait"
            self.end_with(Problem.of("unavailable", detail, retry_after_s=1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop buffered data and notify the running cycle; uvicorn notifies only the last one."""
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.disconnected = True
        self.pipeline.clear()
        self._unread = memoryview(b"")

    def data_received(self, data: bytes) -> None:
        """Parse received bytes until a request has to wait for an earlier answer."""
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._take()

    def on_response_complete(self) -> None:
        """Start the next buffered request and resume reading."""
        super().on_response_complete()
        if self.flow.held and not self.transport.is_closing():
            self._take()
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        """Note the begin of a head."""
        if self._read_already:
            return
        super().on_message_begin()
        self._messages += 1
        self._wait(_Waits.FOR_HEAD)

    def on_headers_complete(self) -> None:
        """Note the end of the head; the request handler starts."""
        if self._read_already:
            return
        if self._seen > self.limits.head_bytes and self._head_bytes() > self.limits.head_bytes:
            self._too_large = True
            raise HeadTooLargeError
        self._wait(_Waits.FOR_BODY)
        self._bodiless = self._of_body = 0
        super().on_headers_complete()
        # What comes after a body in pieces is read like headers, and must not be taken for some.
        self.headers = []
        # uvicorn has no seam for its cycle; its task looks `send` up when it begins.
        self.cycle.__class__ = OneWrite

    def on_body(self, body: bytes) -> None:
        """Accept a piece of the body; the bytes between chunks and after them are limited."""
        self._bodiless = 0
        self._of_body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of the request, unless its body is still being read."""
        if self.parser.should_upgrade() and self._framing():
            return
        self._waits = _Waits.FOR_NOTHING
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Note since when the client does not read its answers."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a problem document."""
        if self._too_large:
            self.end_with(self._head_problem())
        else:
            self.end_with(Problem.of("bad_request", f"{msg} Send HTTP/1.1 as defined by RFC 9112"))

    def sweep(self, now: float) -> None:
        """Close the connection if it has exceeded a timeout."""
        if self.transport.is_closing():
            return
        if self._stuck_since is not None and now - self._stuck_since > self.limits.write_s:
            self.transport.abort()
        if self.flow.read_paused:
            return  # it is we who keep the client waiting
        cycle: Any = self.cycle  # None until the first request
        answering = cycle is not None and not cycle.response_complete
        if self._waits is _Waits.FOR_BODY and now - self._since > self.limits.body_s:
            detail = f"request body incomplete after {self.limits.body_s:g} s; send it faster"
            self._end_body(Problem.of("timeout", detail))
        late = self._waits is _Waits.FOR_HEAD and now - self._since > self.limits.head_s
        if late and not answering:
            detail = f"request head incomplete after {self.limits.head_s:g} s; send it at once"
            self.end_with(Problem.of("timeout", detail))

    def end_with(self, problem: Problem) -> None:
        """Answer with a problem and close the connection."""
        status, body, headers = problem_answer(problem)
        lines = [STATUS_LINE[status], b"content-length: %d\r\n" % len(body)]
        lines += [
            name + b": " + value + b"\r\n" for name, value in headers if name != b"connection"
        ]
        self.transport.write(b"".join([*lines, b"connection: close\r\n\r\n", body]))
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _take(self) -> None:
        """Parse buffered bytes until a request has to wait."""
        rest = self._unread
        while rest and not self.pipeline and not self.transport.is_closing():
            size = _PIECE
            if self._waits is _Waits.FOR_BODY and len(rest) > size:
                size += self._body_left()
            self._take_piece(rest[:size])
            rest = rest[size:]
        self._unread = rest
        self.flow.held = bool(rest or self.pipeline)

    def _body_left(self) -> int:
        """Return the remaining bytes of the body according to its head."""
        told = (value for name, value in self.scope["headers"] if name == _LENGTH)
        return max(0, int(next(told, b"0")) - self._of_body)

    def _take_piece(self, data: memoryview) -> None:
        """Parse some bytes and check the size of an incomplete head."""
        if self._waits is _Waits.FOR_NOTHING:
            # A request begins, or something that never becomes one.
            self._wait(_Waits.FOR_HEAD)
        self._seen = self._raw + _PIECE + len(data)
        message = self._messages
        begun = self._waits is _Waits.FOR_HEAD
        self._bodiless += len(data)
        self._read(data)
        if self._waits is _Waits.FOR_BODY and self._bodiless > self.limits.head_bytes:
            self._end_body(self._head_problem())
            return
        if begun and self._waits is _Waits.FOR_HEAD and self._messages == message:
            self._raw += len(data)
            if self._raw > self.limits.head_bytes and not self.transport.is_closing():
                self.end_with(self._head_problem())

    def _read(self, data: memoryview) -> None:
        """Parse bytes and ignore a request for a protocol upgrade (RFC 9110, 7.8).

        Java's client asks for HTTP/2 with every request. The parser then treats the request as the
        last one and leaves its body unread; the body would be read as the next request.
        """
        self._unset_keepalive_if_required()
        rest: memoryview | None = data
        try:
            while rest is not None:
                rest = self._read_some(rest)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _read_some(self, data: memoryview) -> memoryview | None:
        """Parse up to the end of a head with an upgrade request; return the remaining bytes."""
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as asked:
            framing = self._framing()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            if framing:
                self._read_already = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
                self._read_already = False
            return data[asked.args[0] :]
        return None

    def _framing(self) -> bytes:
        """Return the headers that determine the end of the body; empty without a body."""
        named = (_LENGTH, b"transfer-encoding")
        told = [(name, value) for name, value in self.scope["headers"] if name in named]
        return b"".join(name + b": " + value + b"\r\n" for name, value in told)

    def _end_body(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        if self.cycle.response_started:
            self.transport.close()
        else:
            self.end_with(problem)

    def _wait(self, what: _Waits) -> None:
        self._waits = what
        self._since = self.loop.time()
        self._raw = 0

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_problem(self) -> Problem:
        detail = (
            f"the request head exceeds {self.limits.head_bytes} bytes; send fewer or shorter "
            "headers"
        )
        return Problem.of("headers_too_large", detail)


def bounded(limits: Limits) -> type[BoundedProtocol]:
    """Return a protocol class for uvicorn with the given limits.

    >>> bounded(Limits(head_s=1.0)).limits.head_s
    1.0
    """
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})
