"""HTTP/1.1 without I/O: the bytes of a request, and the parser of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from steersman_client.exchange import MAX_ANSWER_BYTES, Answer

if TYPE_CHECKING:
    from steersman_client.exchange import Request

_MOST_HEADER_BYTES = 64 << 10
_SAFE = "/%:@!$&'()*+,;="
"""Characters of a path that are sent as they are (RFC 3986, section 3.3)."""


class Origin:
    """Server of a base URL, and the headers of every request to it.

    Args:
        base_url: URL checked by `Settings`.
        api_key: API key.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        from steersman_client import __version__  # noqa: PLC0415 (the package's own name)

        parts = urlsplit(base_url)
        self.secure = parts.scheme == "https"
        self.host = (parts.hostname or "").encode("idna").decode()
        self.port = parts.port or (443 if self.secure else 80)
        self._prefix = quote(parts.path, safe=_SAFE)
        name = f"[{self.host}]" if ":" in self.host else self.host
        self._headers = (
            f"Host: {name if parts.port is None else f'{name}:{parts.port}'}\r\n"
            f"Authorization: Bearer {api_key}\r\n"
            "Content-Type: application/json\r\n"
            "Accept: application/json, application/problem+json\r\n"
            "Accept-Encoding: identity\r\n"
            f"User-Agent: steersman-python/{__version__}\r\n"
        )

    def encode(self, request: Request) -> bytes:
        """Return the bytes of a request."""
        more = "".join(f"{name}: {value}\r\n" for name, value in (request.headers or {}).items())
        if request.body:
            more += f"Content-Length: {len(request.body)}\r\n"
        line = f"{request.method} {self._prefix}{request.path} HTTP/1.1\r\n"
        return f"{line}{self._headers}{more}\r\n".encode("latin-1") + request.body


class AnswerParser:
    """Parser of one answer, fed with the pieces that arrive.

    Attributes:
        answer: the answer; None until it is complete.
        reusable: whether the connection may carry another request.
    """

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.reusable = False
        self._parser = HttpResponseParser(self)
        self._body: list[bytes] = []
        self._size = 0
        self._header_bytes = 0
        self._retry_after = ""
        self._in_body = False
        self._has_length = False

    def feed(self, data: bytes) -> None:
        """Parse a piece; an empty one is the end of the connection.

        Raises:
            ConnectionError: the answer is incomplete, too large or not HTTP.
        """
        if not data:
            self._end()
            return
        if not self._in_body:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.reusable = False
            if self.answer is None:
                raise ConnectionError(f"the answer is not HTTP: {error}") from error
        if self._size > MAX_ANSWER_BYTES:
            raise ConnectionError(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
        if self._header_bytes > _MOST_HEADER_BYTES and not self._in_body and self.answer is None:
            raise ConnectionError(f"the headers of the answer exceed {_MOST_HEADER_BYTES} bytes")

    def _end(self) -> None:
        if self._in_body and not self._has_length:
            self.on_message_complete()
        # After the end a read returns at once: another one would block the event loop for ever.
        if self.answer is None:
            raise ConnectionError("the server closed the connection before its answer was complete")

    # The parser calls the following methods.

    def on_message_begin(self) -> None:
        """Start a message."""
        self.reusable = False  # more than one answer to one request
        self._retry_after = ""
        self._in_body = self._has_length = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what is used of the headers."""
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._has_length = True

    def on_headers_complete(self) -> None:
        """Expect the body."""
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body, up to the size limit."""
        self._size += len(data)
        if self._size <= MAX_ANSWER_BYTES:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Keep the answer, unless it is an interim one such as ``100 Continue``."""
        self._in_body = False
        status = self._parser.get_status_code()
        if status >= 200 and self.answer is None:
            self.answer = Answer(status, self._retry_after, b"".join(self._body))
            self.reusable = self._parser.should_keep_alive()
