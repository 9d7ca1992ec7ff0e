"""Background thread that delivers the queue.

A thread serves both clients: it works while an event loop is busy or closed, and at exit. It holds
the lease while it sends, so that one process per file sends at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from steersman_client.delivery import MOST_BYTES, MOST_ROWS, batch_request, settle
from steersman_client.errors import QueueError
from steersman_client.exchange import Send
from steersman_client.retry import Backoff

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from steersman_client.delivery import Outcome
    from steersman_client.disk_queue import DiskQueue
    from steersman_client.exchange import Heard
    from steersman_client.items import Row
    from steersman_client.lease import Lease

_log = logging.getLogger("steersman.client")
TIMEOUT_S = 10.0
GATHER_S = 0.02
"""Delay that gathers events into one batch; no caller waits for it."""
LOOK_AGAIN_S = 30.0
"""Interval in which an idle sender looks for rows of other processes."""
LEASE_RETRY_S = 0.25
PATIENCE_S = 60.0
"""Time without progress after which the lease holder counts as stopped. Sending rows twice is
harmless, not sending them is not.
"""
LONGEST_ASKED_S = 300.0
"""Maximum Retry-After that the sender follows."""
CLOSE_S = 0.1


class Transport(Protocol):
    """Transport of a sender."""

    def send(self, step: Send) -> Heard:
        """Send a request and return its result."""

    def close(self) -> None:
        """Close all connections."""


class Sender:
    """Daemon thread that delivers a queue; it starts when needed.

    Args:
        queue: queue to deliver.
        lease: lease held while rows are left.
        connect: creates the transport in the sending thread.
        rng: random generator of the jitter.
    """

    def __init__(
        self,
        queue: DiskQueue,
        lease: Lease,
        connect: Callable[[], Transport],
        rng: random.Random,
    ) -> None:
        self._queue = queue
        self._lease = lease
        self._connect = connect
        self._backoff = Backoff(0.2, 30.0, rng)
        self._failures = 0
        self._most_rows = MOST_ROWS
        self._seen: tuple[list[Row], float] | None = None
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        """Check the queue soon."""
        with self._starting:
            if self._stopped.is_set():
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._started()
        self._wake.set()

    def hurry(self) -> None:
        """Try now, without the present pause."""
        self._hurry.set()
        self.wake()

    def stop(self) -> None:
        """End the thread, after a request in progress."""
        self._stopped.set()
        self._hurry.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _started(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._run, name="steersman-sender", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The event is on disk by now, so the call must not fail.
            _log.warning(
                "events cannot be sent now; the next event or start tries again: %s", error
            )
            return None
        return thread

    def _run(self) -> None:
        transport = self._connect()
        try:
            while not self._stopped.is_set():
                self._round(transport)
        finally:
            self._lease.release()
            transport.close()

    def _round(self, transport: Transport) -> None:
        try:
            if not self._may_send():
                self._pause(LEASE_RETRY_S)
                return
            rows = self._queue.take(self._most_rows, MOST_BYTES)
            if not rows:
                self._rest()
                return
            heard = transport.send(Send(batch_request(rows), TIMEOUT_S))
            outcome = settle(rows, heard, time.time())
            _tell_refused(outcome)
            self._queue.settle(outcome.settlement, time.time())
        except QueueError as error:
            if not self._stopped.is_set():
                self._after_failure(f"{error}", 0.0)
            return
        except Exception as error:  # noqa: BLE001 (logged, and tried again)
            # Keep the thread alive: the events are in the queue, and a dead thread would leave them
            # there.
            if not self._stopped.is_set():
                self._after_failure(f"unexpected error while sending: {error!r}", 0.0)
            return
        self._most_rows = outcome.rows_next
        if outcome.failed:
            self._after_failure(outcome.reason, outcome.retry_after_s)
        else:
            self._failures = 0

    def _may_send(self) -> bool:
        if self._lease.take():
            return True
        front = self._queue.take(1, 1)
        if not self._seen or self._seen[0] != front:
            self._seen = (front, time.monotonic())
        return time.monotonic() - self._seen[1] > PATIENCE_S

    def _after_failure(self, reason: str, retry_after_s: float) -> None:
        pause = self._backoff.pause(self._failures, min(retry_after_s, LONGEST_ASKED_S))
        # Warn once per outage.
        level = logging.DEBUG if self._failures else logging.WARNING
        _log.log(level, "events stay queued, next try in %.1f s: %s", pause, reason)
        self._failures += 1
        self._pause(pause)

    def _pause(self, seconds: float) -> None:
        if self._hurry.wait(seconds):
            self._hurry.clear()
            self._failures = 0

    def _rest(self) -> None:
        self._lease.release()
        self._wake.wait(LOOK_AGAIN_S)
        self._wake.clear()
        self._hurry.wait(GATHER_S)
        self._hurry.clear()


def _tell_refused(outcome: Outcome) -> None:
    for row, problem in outcome.settlement.refused:
        _log.warning(
            "the service refused %s %s; the client keeps it apart: %s",
            row.item.kind,
            row.item.id,
            problem.decode(errors="replace"),
        )
