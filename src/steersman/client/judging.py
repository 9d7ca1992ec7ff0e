"""What an answer means: a value, a reason to try again, or an error to raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import msgspec

from steersman.client.exchange import Failure
from steersman.client.retrying import RETRIED, retry_after_s
from steersman.errors import (
    ConflictError,
    NotFoundError,
    ServiceError,
    UnauthorizedError,
)
from steersman.wire import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.client.exchange import Answer, Heard

T = TypeVar("T")
_problem = msgspec.json.Decoder(Problem).decode
_ERRORS: dict[int, type[ServiceError]] = {
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
}


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The answer is good, and says `value`."""

    value: T


@dataclass(frozen=True, slots=True)
class Again:
    """The same request may succeed later.

    Attributes:
        reason: for people.
        retry_after_s: not before so many seconds.
        healthy: the server itself is well (it only asked to wait), so this is no failure of it.
        problem: what it said, if it said something.
    """

    reason: str
    retry_after_s: float = 0.0
    healthy: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The same request will never succeed."""

    error: ServiceError


Verdict: TypeAlias = Done[T] | Again | Refusal


def judge(heard: Heard, parse: Callable[[bytes], T], now: float) -> Verdict[T]:
    """Return what came of one try.

    Args:
        heard: an answer, or why there is none.
        parse: makes a value of a good body, or raises ValueError.
        now: seconds since 1970, for a Retry-After that is a date.

    Returns:
        The verdict. An answer 200 whose body cannot be read was probably given by something that
        stands in the place of the service, so it counts as none.
    """
    if isinstance(heard, Failure):
        return Again(heard.reason)
    if heard.status == 200:
        try:
            return Done(parse(heard.body))
        except (ValueError, RecursionError) as error:
            return Again(f"status 200 with an invalid body ({error})")
    problem = read_problem(heard)
    if heard.status in RETRIED:
        asked = retry_after_s(heard.retry_after, now)
        if problem is not None and problem.retry_after_s is not None:
            asked = max(asked, problem.retry_after_s)
        reason = f"status {heard.status}" + (f", {problem.detail}" if problem else "")
        return Again(reason, asked, healthy=heard.status in {408, 429}, problem=problem)
    return Refusal(error_of(heard.status, problem))


def read_problem(answer: Answer) -> Problem | None:
    """Return the problem that an answer carries, or None where it is something else."""
    try:
        return _problem(answer.body)
    except ValueError:
        return None


def error_of(status: int, problem: Problem | None) -> ServiceError:
    """Return the error that stands for a status.

    Args:
        status: of HTTP, or of one item in a batch.
        problem: what the service said.

    Returns:
        The class that belongs to the status, with the service's own words.
    """
    kind = _ERRORS.get(status, ServiceError)
    if problem is None:
        return kind(
            f"the service answered status {status} without a reason; check that base_url is the "
            "URL of a Steersman service and not of a proxy"
        )
    place = f" ({problem.field})" if problem.field else ""
    return kind(f"{problem.title}: {problem.detail}{place} [{status} {problem.code}]", problem)
