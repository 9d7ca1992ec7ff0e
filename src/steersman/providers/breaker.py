"""Circuit breaker: stops requests to a server that failed several times in a row."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Turn(NamedTuple):
    """Permission for a request.

    Attributes:
        wait_s: 0 if it may be sent now, else the seconds to wait.
        number: request number.
    """

    wait_s: float
    number: int


class Breaker:
    """Circuit breaker. Closed: all requests pass. Open: none. Half open: one probe decides.

    It also opens if the server sends a retry time. Every permitted request must end with
    `succeeded`, `failed` or `abandoned`. While the breaker is open, earlier requests do not change
    its state, but their retry times count.

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
        """Return whether a request may be sent now."""
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
        """Close the breaker: the server answered."""
        with self._lock:
            if self._opens_again_at is not None and turn.number != self._probe:
                return
            self._in_a_row, self._probe = 0, None
            self._pause_s = FIRST_PAUSE_S
            named = self._opens_again_at is not None and self._opens_again_at > self._clock()
            if not named:  # else another request received a retry time meanwhile
                self._opens_again_at = None

    def failed(
        self, turn: Turn, retry_after_s: float | None = None, *, took_s: float = 0.0
    ) -> None:
        """Count a failure; open after the last of a row, a failed probe or a retry time.

        Args:
            retry_after_s: retry time sent by the server, ≥ 0; limited to a minute.
            took_s: duration of the request, ≥ 0. The pause is at least as long, so that a silent
                server does not block callers most of the time.
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
        """Drop an aborted request: it says nothing about the server."""
        with self._lock:
            if turn.number == self._probe:
                self._probe = None
