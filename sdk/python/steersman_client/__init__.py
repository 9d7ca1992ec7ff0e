"""Python SDK: request decisions and report outcomes, without loss during outages.

`Client` for threads and `AsyncClient` for event loops share one core. A method returns after its
event
is on disk; a background thread delivers it. Errors are subclasses of
`steersman.errors.ServiceError`, and
``InputError`` for values that cannot be sent.
"""

from __future__ import annotations

from steersman_client.async_client import AsyncClient
from steersman_client.items import Backlog, RefusedItem
from steersman_client.requests import Ask
from steersman_client.sync_client import Client

__all__ = ["Ask", "AsyncClient", "Backlog", "Client", "RefusedItem"]
