"""Outbox: a queue with its sender, one per process and file, shared by clients."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
from typing import TYPE_CHECKING

from steersman_client import fork_safety as forking
from steersman_client.disk_queue import DiskQueue
from steersman_client.errors import QueueError
from steersman_client.lease import Lease
from steersman_client.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman_client.items import Backlog, Item, RefusedItem
    from steersman_client.sender import Transport
    from steersman_client.settings import Settings

_log = logging.getLogger("steersman.client")
EXIT_S = 1.0


class Outbox(forking.Forkable):
    """Durable queue with background delivery.

    Args:
        settings: settings of the client.
        connect: creates the sender's transport.
    """

    def __init__(self, settings: Settings, connect: Callable[[], Transport]) -> None:
        self.path = settings.queue_path
        self._connect = connect
        self._queue = DiskQueue(self.path, settings.queue_bytes, settings.drop)
        self._lease = Lease(self.path.with_suffix(".sender"))
        self._sender = self._new_sender()
        if not self._queue.is_empty():
            self._sender.wake()
        forking.track(self)

    def put(self, items: Sequence[Item]) -> None:
        """Store items on disk and wake the sender.

        Raises:
            QueueError: the items could not be stored.
        """
        dropped = self._queue.put(items)
        if dropped:
            _log.warning("queue %s is full: its %d oldest rows were dropped", self.path, dropped)
        self._sender.wake()

    def is_empty(self) -> bool:
        """Return whether everything was delivered or refused."""
        return self._queue.is_empty()

    def backlog(self) -> Backlog:
        """Return the counts of the queue."""
        return self._queue.backlog()

    def refused(self) -> list[RefusedItem]:
        """Return the refused items."""
        return self._queue.refused()

    def hurry(self) -> None:
        """Let the sender try now, without its pause."""
        self._sender.hurry()

    def drain(self, until: float) -> None:
        """Wait until the queue is empty, at most until the deadline on the monotonic clock."""
        try:
            if self._queue.is_empty():
                return
            self.hurry()
            while not self._queue.is_empty() and time.monotonic() < until:
                time.sleep(0.01)
        except QueueError as error:
            _log.warning(
                "the queue was not drained; its rows are sent at the next start: %s", error
            )

    def close(self) -> None:
        """Stop sending; remaining rows stay on disk for the next start."""
        self._sender.stop()
        self._queue.close()
        self._lease.release()

    def before_fork(self) -> None:
        """Close the files and block the sender."""
        self._queue.before_fork()
        self._lease.before_fork()

    def after_fork_in_parent(self) -> None:
        """Continue."""
        self._lease.after_fork_in_parent()
        self._queue.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """Start again with a new thread and new connections."""
        self._lease.after_fork_in_child()
        self._queue.after_fork_in_child()
        self._sender = self._new_sender()

    def _new_sender(self) -> Sender:
        return Sender(self._queue, self._lease, self._connect, random.SystemRandom())


class _Shared:
    """Outboxes of this process with their number of users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[object, ...], tuple[Outbox, int]] = {}

    def borrow(self, settings: Settings, connect: Callable[[], Transport]) -> Outbox:
        key = _key(settings)
        with self._lock:
            outbox, users = self._open.get(key) or (Outbox(settings, connect), 0)
            self._open[key] = (outbox, users + 1)
            return outbox

    def give_back(self, settings: Settings) -> None:
        key = _key(settings)
        with self._lock:
            outbox, users = self._open.pop(key)
            if users > 1:
                self._open[key] = (outbox, users - 1)
                return
        outbox.close()

    def drain_all(self) -> None:
        until = time.monotonic() + EXIT_S
        for outbox, _ in list(self._open.values()):
            outbox.drain(until)

    def renew_lock(self) -> None:
        self._lock = threading.Lock()


def _key(settings: Settings) -> tuple[object, ...]:
    return (settings.queue_path.resolve(), settings.queue_bytes, settings.drop)


_shared = _Shared()
borrow = _shared.borrow
give_back = _shared.give_back
atexit.register(_shared.drain_all)
if hasattr(os, "register_at_fork"):
    # Waiting for it before the fork could deadlock with an outbox that is being opened.
    os.register_at_fork(after_in_child=_shared.renew_lock)
