"""Rate limit for model calls."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


class Rate:
    """Rate limit shared by threads: evenly spaced calls, and pauses for all.

    Args:
        per_s: maximum calls per second, > 0; None: no limit.
        clock: monotonic clock in seconds.
        sleep: function that waits for some seconds.

    Raises:
        InputError: `per_s` is not above 0.

    >>> waited = []
    >>> rate = Rate(2.0, clock=lambda: 0.0, sleep=waited.append)
    >>> for _ in range(3):
    ...     rate.wait()
    >>> waited
    [0.5, 1.0]
    """

    def __init__(
        self,
        per_s: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if per_s is not None and not 0.0 < per_s < math.inf:
            raise InputError(f"per_s is {per_s!r}; allowed: above 0, or None for no limit")
        self._gap_s = 0.0 if per_s is None else 1.0 / per_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next_at = self._held_until = -math.inf

    def now(self) -> float:
        """Return the time of its clock in seconds."""
        return self._clock()

    def wait(self) -> None:
        """Wait until the next call may begin."""
        while True:
            with self._lock:
                now = self._clock()
                begins_at = max(now, self._next_at)
                self._next_at = begins_at + self._gap_s
            if begins_at > now:
                self._sleep(begins_at - now)
            with self._lock:
                if begins_at >= self._held_until:
                    return

    def hold(self, seconds: float) -> None:
        """Block all calls for a while, waiting ones included.

        Args:
            seconds: duration from now, ≥ 0.
        """
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)
            self._next_at = max(self._next_at, self._held_until)

    def pause(self, seconds: float) -> None:
        """Wait without blocking other callers.

        Args:
            seconds: duration, ≥ 0.
        """
        self._sleep(seconds)
