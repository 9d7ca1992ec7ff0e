"""Python client of Steersman: request decisions, report outcomes, lose no event.

`Client` is for threads, `AsyncClient` for event loops. A report is on disk when its method returns;
a background thread delivers it. All errors are subclasses of `ClientError`.
"""

from __future__ import annotations

from steersman_client.async_client import AsyncClient
from steersman_client.errors import (
    ClientError,
    ConflictError,
    InputError,
    NotFoundError,
    QueueError,
    QueueFullError,
    ServiceError,
    UnauthorizedError,
    UnavailableError,
)
from steersman_client.items import Backlog, RefusedItem
from steersman_client.messages import Decision, Problem, Step
from steersman_client.requests import Ask
from steersman_client.sync_client import Client

__all__ = [
    "Ask",
    "AsyncClient",
    "Backlog",
    "Client",
    "ClientError",
    "ConflictError",
    "Decision",
    "InputError",
    "NotFoundError",
    "Problem",
    "QueueError",
    "QueueFullError",
    "RefusedItem",
    "ServiceError",
    "Step",
    "UnauthorizedError",
    "UnavailableError",
]

__version__ = "0.1.0"
