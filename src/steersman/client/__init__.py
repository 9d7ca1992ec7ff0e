"""The Python SDK: ask for decisions, tell what came of them, lose nothing while the server is gone.

`Client` for threads and `AsyncClient` for event loops share one core. Events are on disk before a
method returns, and are delivered in the background. Errors are those of `steersman.errors` below
``ServiceError``, and ``InputError`` for what could never be sent.
"""

from __future__ import annotations

from steersman.client.asking import Ask
from steersman.client.async_client import AsyncClient
from steersman.client.items import Backlog, RefusedItem
from steersman.client.sync_client import Client

__all__ = ["Ask", "AsyncClient", "Backlog", "Client", "RefusedItem"]
