"""Evaluation of an answer: value, retry, or error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import msgspec

from steersman_client.errors import (
    ConflictError,
    NotFoundError,
    ServiceError,
    UnauthorizedError,
)
from steersman_client.exchange import Failure
from steersman_client.messages import Problem
from steersman_client.retry import RETRIED, retry_after_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman_client.exchange import Answer, Heard

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
    """Successful answer with its `value`."""

    value: T


@dataclass(frozen=True, slots=True)
class Again:
    """Temporary failure.

    Attributes:
        reason: reason for people.
        retry_after_s: minimum pause in seconds.
        healthy: whether the server works and only asked to wait.
        problem: problem document of the answer, if any.
    """

    reason: str
    retry_after_s: float = 0.0
    healthy: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Permanent failure."""

    error: ServiceError


Verdict: TypeAlias = Done[T] | Again | Refusal


def judge(heard: Heard, parse: Callable[[bytes], T], now: float) -> Verdict[T]:
    """Evaluate one try.

    Args:
        heard: answer or failure.
        parse: parser of a successful body; raises ValueError.
        now: seconds since 1970, for a Retry-After date.

    Returns:
        Verdict. A status 200 with an invalid body counts as a failure, because it probably comes
        from a proxy.
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
    """Return the problem document of an answer; None if it has none."""
    try:
        return _problem(answer.body)
    except ValueError:
        return None


def error_of(status: int, problem: Problem | None) -> ServiceError:
    """Return the error for a status.

    Args:
        status: HTTP status, also of one item in a batch.
        problem: problem document of the service.
    """
    kind = _ERRORS.get(status, ServiceError)
    if problem is None:
        return kind(
            f"the service answered status {status} without a reason; check that base_url is the "
            "URL of a Steersman service and not of a proxy"
        )
    place = f" ({problem.field})" if problem.field else ""
    return kind(f"{problem.title}: {problem.detail}{place} [{status} {problem.code}]", problem)
