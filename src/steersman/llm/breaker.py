"""A server that failed several times in a row is left alone for a while."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Breaker:
    """Closed: all may pass. Open: none, for a while. Half open: one, and its fate decides.

    Unlike the client's, it also opens at once when the server names the time it wants to be left
    alone, as those do that count requests. Every `wait_s` of 0 is followed by one of
    `succeeded`, `failed` and `abandoned`.

    Args:
        clock: seconds that never run backwards.

    >>> breaker = Breaker(lambda: 0.0)
    >>> breaker.failed(retry_after_s=9.0)
    >>> breaker.wait_s()
    9.0
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._opens_again_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._probing = False

    def wait_s(self) -> float:
        """Return 0 if a request may be tried now, else after how many seconds."""
        with self._lock:
            if self._opens_again_at is None:
                return 0.0
            left = self._opens_again_at - self._clock()
            if self._probing or left > 0.0:
                return max(left, FIRST_PAUSE_S)
            self._probing = True
            return 0.0

    def succeeded(self) -> None:
        """Close it: the server answered, whatever it said."""
        with self._lock:
            self._in_a_row = 0
            self._opens_again_at = None
            self._pause_s = FIRST_PAUSE_S
            self._probing = False

    def failed(self, retry_after_s: float | None = None, *, took_s: float = 0.0) -> None:
        """Count a failure; the last of a row, one of a probe, or one that names a time opens it.

        Args:
            retry_after_s: as the server asked for it, 0 or more; at most a minute is granted.
            took_s: how long it was waited for, 0 or more. The pause is as long at least, or a
                server that is silent would hold whoever asks for most of the time.
        """
        with self._lock:
            self._in_a_row += 1
            was_probe, self._probing = self._probing, False
            if was_probe:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            elif retry_after_s is None and self._in_a_row < FAILURES:
                return
            pause = max(self._pause_s, retry_after_s or 0.0)
            self._pause_s = max(self._pause_s, min(took_s, LONGEST_PAUSE_S))
            pause = max(min(max(pause, self._pause_s), LONGEST_PAUSE_S), took_s)
            self._opens_again_at = self._clock() + pause

    def abandoned(self) -> None:
        """Forget a request that was broken off: it shows nothing about the server."""
        with self._lock:
            self._probing = False
