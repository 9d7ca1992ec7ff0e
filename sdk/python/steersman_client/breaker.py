"""Circuit breaker: after repeated failures requests fail at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from steersman_client.fork_safety import Forkable, track

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Breaker(Forkable):
    """Circuit breaker. Closed: all requests pass. Open: none. Half open: one probe.

    Each `allow` that returned True needs one call of `succeeded`, `failed` or `abandoned`. Each
    failed probe doubles the pause.

    Args:
        clock: monotonic clock in seconds.
        failures: number of failures in a row that open it.

    >>> breaker = Breaker(lambda: 0.0, failures=1)
    >>> breaker.failed()
    >>> breaker.allow()
    False
    """

    def __init__(self, clock: Callable[[], float], failures: int = FAILURES) -> None:
        self._clock = clock
        self._limit = failures
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._opens_again_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._probing = False
        track(self)

    def allow(self) -> bool:
        """Return whether a request may be sent now."""
        with self._lock:
            if self._opens_again_at is None:
                return True
            if self._probing or self._clock() < self._opens_again_at:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        """Close the breaker."""
        with self._lock:
            self._in_a_row = 0
            self._opens_again_at = None
            self._pause_s = FIRST_PAUSE_S
            self._probing = False

    def failed(self) -> None:
        """Count a failure; open the breaker after too many in a row or after a failed probe."""
        with self._lock:
            self._in_a_row += 1
            was_probe, self._probing = self._probing, False
            if was_probe:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            elif self._opens_again_at is not None or self._in_a_row < self._limit:
                return
            self._opens_again_at = self._clock() + self._pause_s

    def abandoned(self) -> None:
        """Forget a cancelled request, which shows nothing about the server."""
        with self._lock:
            self._probing = False

    def after_fork_in_child(self) -> None:
        """Replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()
        self._probing = False
