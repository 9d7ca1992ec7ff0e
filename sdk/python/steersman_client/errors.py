"""Errors of the client.

::

    ClientError
    ├── InputError (ValueError)        a value cannot be sent, or a setting is out of range
    └── ServiceError (RuntimeError)    the service refused a request; see `problem`
        ├── UnauthorizedError          the API key is missing, unknown or lacks the scope
        ├── NotFoundError              not found, or owned by another tenant
        ├── ConflictError              an idempotency key was used with another body
        ├── UnavailableError           no answer in time after all retries
        └── QueueError                 the queue on disk cannot be used
            └── QueueFullError         the queue is full
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman_client.messages import Problem

__all__ = [
    "ClientError",
    "ConflictError",
    "InputError",
    "NotFoundError",
    "QueueError",
    "QueueFullError",
    "ServiceError",
    "UnauthorizedError",
    "UnavailableError",
]


class ClientError(Exception):
    """Base class of all errors of the client."""


class InputError(ClientError, ValueError):
    """A value cannot be sent, or a setting is out of range. Nothing was sent or queued."""


class ServiceError(ClientError, RuntimeError):
    """The service refused a request, or the client could not reach it.

    Args:
        message: what is wrong, and what to do next.
        problem: problem details from the service. None: no answer, or an answer without them.
    """

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class UnauthorizedError(ServiceError):
    """The API key is missing, unknown, expired or revoked, or lacks the scope."""


class NotFoundError(ServiceError):
    """The object was not found, or belongs to another tenant."""


class ConflictError(ServiceError):
    """An idempotency key or event id was used before with another body."""


class UnavailableError(ServiceError):
    """No answer in time after all retries, or no request because the service seems to be down."""


class QueueError(ServiceError):
    """The queue on disk cannot be opened, read or written. Nothing was queued."""


class QueueFullError(QueueError):
    """The queue on disk is full. Nothing was queued."""
