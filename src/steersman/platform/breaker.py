"""Circuit breaker: pauses calls to a service that hangs or fails repeatedly.

Closed: calls pass. After `failures` consecutive failures, or a retry time sent by the service, it
opens and rejects calls. After a pause it is half-open and lets one probe through; success closes
it, failure opens it again.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
State = Literal["closed", "open", "half_open"]


class GivenUp(Refused):
    """Call that the caller cancelled; it says nothing about the service."""


class Turn(NamedTuple):
    """Answer of a breaker to one call.

    Attributes:
        wait_s: 0 if it may be made now, else the seconds to wait.
        number: call number.
    """

    wait_s: float
    number: int


def _any_error(_error: BaseException) -> bool:
    return True


class Breaker:
    """Circuit breaker for one service; thread-safe.

    Every permitted call must end with `succeeded`, `failed` or `abandoned`; `call` does so. Once it
    opened, calls begun before the probe no longer change its state, but their retry times count.

    Args:
        name: service name, for metrics and messages.
        clock: monotonic time in seconds.
        is_broken: whether an exception of `call` is a failure of the service; other exceptions
            count as success.
        failures: consecutive failures that open the breaker.
        open_s: first pause in seconds; a failed probe doubles it.
        longest_s: longest pause in seconds; default: `open_s`, so all are equal.
        timeout_s: timeout of one `call` in seconds; a timeout is a failure.

    >>> now = [0.0]
    >>> breaker = Breaker("store", lambda: now[0], failures=1, open_s=2.0)
    >>> breaker.failed(breaker.turn())
    >>> breaker.state, breaker.turn().wait_s
    ('open', 2.0)
    >>> now[0] = 2.5
    >>> breaker.turn().wait_s, breaker.state, breaker.turn().wait_s
    (0.0, 'half_open', 2.0)
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        is_broken: Callable[[BaseException], bool] = _any_error,
        failures: int = 5,
        open_s: float = 2.0,
        longest_s: float | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self.state: State = "closed"
        self.opened = 0
        self.refused = 0
        self._clock = clock
        self._is_broken = is_broken
        self._failures = failures
        self._open_s = self._pause_s = open_s
        self._longest_s = open_s if longest_s is None else longest_s
        self._timeout_s = timeout_s
        self._in_a_row = 0
        self._until = 0.0
        self._turns = 0
        self._probe = 0
        self._lock = threading.Lock()

    def turn(self) -> Turn:
        """Return whether a call may be made now; half-open allows only the first."""
        with self._lock:
            self._turns += 1
            if self.state == "closed":
                return Turn(0.0, self._turns)
            left_s = self._until - self._clock()
            if self.state == "half_open" or left_s > 0.0:
                self.refused += 1
                return Turn(max(left_s, self._open_s), self._turns)
            self.state, self._probe = "half_open", self._turns
            return Turn(0.0, self._turns)

    def succeeded(self, turn: Turn) -> None:
        """Close the breaker: the service answered."""
        with self._lock:
            if self.state != "closed" and not self._is_probe(turn):
                return
            self._in_a_row, self._pause_s = 0, self._open_s
            if self.state == "half_open":
                # Another call may have received a retry time meanwhile.
                self.state = "open" if self._until > self._clock() else "closed"

    def failed(
        self, turn: Turn, retry_after_s: float | None = None, *, took_s: float = 0.0
    ) -> None:
        """Count a failure; open after the last of a row, a failed probe or a retry time.

        Args:
            retry_after_s: retry time sent by the service, ≥ 0; limited to `longest_s`.
            took_s: duration of the call, ≥ 0. The pause is at least as long, so that a silent
                service does not block callers most of the time.
        """
        with self._lock:
            now, is_probe = self._clock(), self._is_probe(turn)
            if self.state != "closed" and not is_probe:
                named_s = min(retry_after_s or 0.0, self._longest_s)
                self._until = max(self._until, now + named_s)
                return
            if is_probe:
                self._pause_s = min(2 * self._pause_s, self._longest_s)
            elif retry_after_s is None:
                self._in_a_row += turn.number > self._probe
                if self._in_a_row < self._failures:
                    return
            self._pause_s = max(self._pause_s, min(took_s, self._longest_s))
            pause_s = min(max(self._pause_s, retry_after_s or 0.0), self._longest_s)
            self.state, self._until = "open", now + max(pause_s, took_s)
            self.opened += 1

    def abandoned(self, turn: Turn) -> None:
        """Drop an aborted call, which says nothing about the service; the next one may probe."""
        with self._lock:
            if self._is_probe(turn):
                self.state = "open"

    def _is_probe(self, turn: Turn) -> bool:
        return self.state == "half_open" and turn.number == self._probe

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make a call if allowed.

        Raises:
            Refused: the breaker is open, or the call failed or timed out.
        """
        turn = self.turn()
        if turn.wait_s:
            raise self._unavailable("failed recently and is paused")
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await make()
        except (asyncio.CancelledError, GivenUp):
            self.abandoned(turn)
            raise
        except Exception as error:
            if not self._is_broken(error):
                self.succeeded(turn)
                raise
            self.failed(turn)
            raise self._unavailable("does not respond") from error
        self.succeeded(turn)
        return result

    def _unavailable(self, why: str) -> Refused:
        detail = f"the {self.name} {why}; try again later"
        return Refused.of("unavailable", detail, retry_after_s=max(1.0, self._open_s))
