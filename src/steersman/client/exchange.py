"""The words between the core, which does no I/O, and the transports, which do nothing else.

The core's methods are generators: they yield a step, the transport takes it and sends back what
came of it. So sync and async clients cannot differ in what they send, retry or give up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

MAX_ANSWER_BYTES = 64 << 20
"""An answer longer than this is not read: a batch of 1,000 decisions is far below it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, without credentials: these are added where it is sent.

    Attributes:
        method: GET or POST.
        path: begins with a slash; the base URL stands before it.
        body: JSON, or empty.
        headers: beside those every request has.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status.

    Attributes:
        status: of HTTP.
        retry_after: that header as it came, or "".
        body: as it came.
    """

    status: int
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer came.

    Attributes:
        reason: for people.
    """

    reason: str


Heard: TypeAlias = Answer | Failure


@dataclass(frozen=True, slots=True)
class Send:
    """Step: send `request`, and hear an `Answer` or a `Failure` within `timeout_s`."""

    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Step: let `seconds` pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Local:
    """Step: do something on this machine that may take a moment, such as writing to the queue."""

    work: Callable[[], Any]


Step: TypeAlias = Send | Wait | Local
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
