"""Request bodies within limits, and JSON answers.

The connection (`server`) enforces the timeouts of heads and bodies, so that requests pay for no
timer.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from steersman.platform.breaker import GivenUp
from steersman.wire import Problem, Refused, in_plain_words, read, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

T = TypeVar("T")
READ_S = 4.0
"""Read timeout in seconds; shorter than that of a breaker."""


async def in_time(make: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """Return the result of a call, or refuse after a timeout that no circuit breaker counts.

    Args:
        seconds: timeout in seconds, shorter than that of the breaker around it.

    Raises:
        GivenUp: timeout.

    >>> asyncio.run(in_time(lambda: asyncio.sleep(0, "made"), 5.0, "nothing was made; wait"))
    'made'
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await make()
    except TimeoutError:
        if not limit.expired():
            raise  # it was the store's
        detail = f"{what} within {seconds:g} s; try again later"
        raise GivenUp(Problem.of("unavailable", detail, retry_after_s=5.0)) from None


Headers = tuple[tuple[bytes, bytes], ...]

_JSON: Headers = ((b"content-type", b"application/json"),)
_PROBLEM: Headers = ((b"content-type", b"application/problem+json"),)
_JSON_TYPES = frozenset({b"application/json", b"application/json; charset=utf-8"})
_DRAIN = 8  # a body this many times too large is still read, so that its sender sees the answer


class ClientGone(Exception):  # noqa: N818 (an end of the connection, not an error)
    """The connection ended before the request was complete."""


class Answer(NamedTuple):
    """HTTP answer.

    Attributes:
        status: HTTP status.
        body: body bytes.
        headers: further headers; content-length and x-request-id are added to all.
    """

    status: int
    body: bytes
    headers: Headers = _JSON


class Request:
    """HTTP request as its handler sees it.

    Args:
        scope: ASGI scope.
        receive: ASGI receive function.
        headers: headers by lower-case name; the last value of repeated headers.
        route: matched route.
    """

    __slots__ = ("headers", "key", "receive", "request_id", "route", "scope", "traceparent")

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        headers: dict[bytes, bytes],
        route: Any = None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.route = route
        self.key: Any = None  # the KeyRow, once the dispatcher has checked it
        self.request_id = ""
        self.traceparent: str | None = None

    def part(self, name: str) -> str:
        """Return a variable part of the path."""
        part: str = self.scope["path_params"][name]
        return part

    def uuid(self, missing: str) -> UUID:
        """Return the part ``{id}`` of the path.

        Args:
            missing: detail of the refusal, the same as for an id that is not found.

        Raises:
            Refused: the id is malformed.
        """
        try:
            return UUID(self.part("id"))
        except ValueError:
            raise Refused.of("not_found", missing) from None


async def read_json(request: Request, limit: int) -> Any:
    """Return the parsed body, as `wire.read`.

    Args:
        limit: maximum size in bytes.

    Raises:
        Refused: the body is too large, has another media type, or is not strict JSON.
        ClientGone: the body did not arrive.
    """
    check_media_type(request.headers)
    return read(await read_body(request, limit), max_bytes=limit)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body.

    Args:
        limit: maximum size in bytes.

    Raises:
        Refused: the body is too large.
        ClientGone: the body did not arrive.
    """
    declared = request.headers.get(b"content-length", b"0")
    size = int(declared) if declared.isdigit() and len(declared) < 19 else limit + 1
    if size > limit * _DRAIN or (size > limit and b"expect" in request.headers):
        raise too_large(size, limit)
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _rest(request, bytearray(body), limit)
    if len(body) > limit:
        raise too_large(max(size, len(body)), limit)
    return body


async def _rest(request: Request, body: bytearray, limit: int) -> bytes:
    seen, more = len(body), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        more = message.get("more_body", False)
        seen += len(part)
        if seen <= limit:
            body += part
        elif seen > limit * _DRAIN:
            break
    if seen > limit:
        raise too_large(seen, limit)
    return bytes(body)


def check_media_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that is not uncompressed JSON in UTF-8.

    Raises:
        Refused: another media type, character set or content encoding.
    """
    said = headers.get(b"content-type", b"")
    if said not in _JSON_TYPES and said.lower().replace(b" ", b"").replace(b'"', b"") not in {
        b"application/json",
        b"application/json;charset=utf-8",
    }:
        shown = said.decode("latin-1")[:80] or "none"
        detail = f"unsupported content type {shown}; send application/json in UTF-8"
        raise Refused.of("unsupported_media_type", detail)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        detail = "unsupported content encoding; send the body uncompressed"
        raise Refused.of("unsupported_media_type", detail)


def converted(body: Any, kind: Any, *, strict: bool = True) -> Any:
    """Return the result of `read_json` as a message.

    Args:
        strict: whether a number in a string is not a number; query parameters are strings.

    Raises:
        Refused: a field is missing, unknown or has a wrong type.

    >>> converted([1, 2], list[int])
    [1, 2]
    """
    try:
        return msgspec.convert(body, kind, strict=strict)
    except msgspec.ValidationError as error:
        what, _, where = in_plain_words(error).partition(" - at `$")
        raise Refused.of("invalid", what, field=where.strip("`.")) from None


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return a JSON answer.

    >>> json_answer({"a": 1}).body
    b'{"a":1}'
    """
    return Answer(status, write(value))


def problem_answer(problem: Problem, headers: Headers = ()) -> Answer:
    """Return a problem as an answer (RFC 9457) with the headers of its status.

    >>> refused = Problem.of("unavailable", "the store does not answer", retry_after_s=0.5)
    >>> problem_answer(refused).headers[-1]
    (b'retry-after', b'1')
    """
    headers = _PROBLEM + headers
    if problem.retry_after_s is not None:
        headers += ((b"retry-after", str(max(1, ceil(problem.retry_after_s))).encode()),)
    if problem.status == 401:
        headers += ((b"www-authenticate", b'Bearer realm="steersman"'),)
    if problem.status in {408, 413}:
        # What is left of the body is not worth reading.
        headers += ((b"connection", b"close"),)
    return Answer(problem.status, write(problem), headers)


def too_large(size: int, limit: int) -> Refused:
    """Return the refusal of a body.

    Args:
        size: lower bound of its size in bytes.
        limit: maximum size in bytes.

    >>> too_large(11, 10).problem.status
    413
    """
    detail = f"the body has at least {size} bytes; at most {limit} are allowed; split the request"
    return Refused.of("too_large", detail)
