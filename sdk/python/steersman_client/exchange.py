"""Steps between the core, which does no I/O, and the transports.

The core's methods are generators: they yield a step, and the transport sends back its result. So
sync and async clients send and retry alike.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of an answer; 1,000 decisions are far below it."""


@dataclass(frozen=True, slots=True)
class Request:
    """HTTP request without credentials, which the transport adds.

    Attributes:
        method: GET or POST.
        path: path after the base URL, with a leading slash.
        body: JSON, or empty.
        headers: headers in addition to those of every request.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP answer with any status.

    Attributes:
        status: HTTP status.
        retry_after: value of that header, or "".
        body: body.
    """

    status: int
    retry_after: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """Missing answer.

    Attributes:
        reason: reason for people.
    """

    reason: str


Heard: TypeAlias = Answer | Failure


@dataclass(frozen=True, slots=True)
class Send:
    """Step: send `request` and return an `Answer` or a `Failure` within `timeout_s`."""

    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Step: wait for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Local:
    """Step: run a local function that may block, such as a write to the queue."""

    work: Callable[[], Any]


Step: TypeAlias = Send | Wait | Local
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]
