"""A server that failed several times in a row is left alone for a while."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Turn(NamedTuple):
    """Whether a request may be tried, and which one it is.

    Attributes:
        wait_s: 0 if it may be tried now, else after how many seconds.
        number: tells it from the others.
    """

    wait_s: float
    number: int


class Breaker:
    """Closed: all may pass. Open: none, for a while. Half open: one, and its fate decides.

    Unlike the client's, it also opens at once when the server names the time it wants to be left
    alone, as those do that count requests. Every turn that need not wait is followed by one of
    `succeeded`, `failed` and `abandoned`. While it is open, requests that began before decide
    nothing when they end; a time that they name is kept.

    Args:
        clock: monotonic clock in seconds.

    >>> breaker = Breaker(lambda: 0.0)
    >>> breaker.failed(breaker.turn(), retry_after_s=9.0)
    >>> breaker.turn().wait_s
    9.0
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._opens_again_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._turns = 0
        self._probe: int | None = None

    def turn(self) -> Turn:
        """Return whether a request may be tried now."""
        with self._lock:
            self._turns += 1
            if self._opens_again_at is None:
                return Turn(0.0, self._turns)
            left = self._opens_again_at - self._clock()
            if self._probe is not None or left > 0.0:
                return Turn(max(left, FIRST_PAUSE_S), self._turns)
            self._probe = self._turns
            return Turn(0.0, self._turns)

    def succeeded(self, turn: Turn) -> None:
        """Close it: the server answered, whatever it said.

        Args:
            turn: of the request.
        """
        with self._lock:
            if self._opens_again_at is not None and turn.number != self._probe:
                return
            self._in_a_row, self._probe = 0, None
            self._pause_s = FIRST_PAUSE_S
            named = self._opens_again_at is not None and self._opens_again_at > self._clock()
            if not named:  # else another request was told a time meanwhile
                self._opens_again_at = None

    def failed(
        self, turn: Turn, retry_after_s: float | None = None, *, took_s: float = 0.0
    ) -> None:
        """Count a failure; the last of a row, one of a probe, or one that names a time opens it.

        Args:
            turn: of the request.
            retry_after_s: as the server asked for it, 0 or more; at most a minute is granted.
            took_s: how long it was waited for, 0 or more. The pause is as long at least, or a
                server that is silent would hold whoever asks for most of the time.
        """
        with self._lock:
            was_probe = turn.number == self._probe
            if self._opens_again_at is not None and not was_probe:
                named = min(retry_after_s or 0.0, LONGEST_PAUSE_S)
                self._opens_again_at = max(self._opens_again_at, self._clock() + named)
                return
            self._in_a_row += 1
            if was_probe:
                self._probe = None
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            elif retry_after_s is None and self._in_a_row < FAILURES:
                return
            pause = max(self._pause_s, retry_after_s or 0.0)
            self._pause_s = max(self._pause_s, min(took_s, LONGEST_PAUSE_S))
            pause = max(min(max(pause, self._pause_s), LONGEST_PAUSE_S), took_s)
            self._opens_again_at = self._clock() + pause

    def abandoned(self, turn: Turn) -> None:
        """Forget a request that was broken off: it shows nothing about the server.

        Args:
            turn: of the request.
        """
        with self._lock:
            if turn.number == self._probe:
                self._probe = None
