"""Circuit breaker: pauses calls to a service that hangs or fails repeatedly.

Closed: calls pass. After `failures` consecutive failures it opens and rejects calls. After `open_s`
it is half-open and lets one probe through; success closes it, failure opens it again.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Literal, TypeVar

import asyncpg

from steersman.errors import StoreError
from steersman.platform.postgres.database import AWAY
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
State = Literal["closed", "open", "half_open"]
_OUTAGES = ("08", "25006", "53", "57", "58", "XX")


def store_is_away(error: BaseException) -> bool:
    """Return whether an error means that the database is unreachable.

    >>> store_is_away(ConnectionRefusedError()), store_is_away(ValueError())
    (True, False)
    """
    if isinstance(error, StoreError):
        # `Database.connect` sets the cause; a StoreError about rows has none.
        return error.__cause__ is not None and store_is_away(error.__cause__)
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX").startswith(_OUTAGES)
    return isinstance(error, AWAY)


class GivenUp(Refused):
    """Call that the caller cancelled; it says nothing about the service."""


class Breaker:
    """Circuit breaker for one service; thread-safe.

    Args:
        name: service name, for metrics and messages.
        clock: monotonic time in seconds.
        is_broken: whether an exception is a failure of the service; other exceptions count
            as success.
        failures: consecutive failures that open the breaker.
        open_s: seconds until a probe.
        timeout_s: timeout of one call in seconds; a timeout is a failure.

    >>> now = [0.0]
    >>> breaker = Breaker("store", lambda: now[0], failures=1, open_s=2.0)
    >>> breaker.failed()
    >>> breaker.state
    'open'
    >>> now[0] = 2.5
    >>> breaker.allow(), breaker.state, breaker.allow()
    (True, 'half_open', False)
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        is_broken: Callable[[BaseException], bool] = store_is_away,
        failures: int = 5,
        open_s: float = 2.0,
        timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self.state: State = "closed"
        self.opened = 0
        self.refused = 0
        self._clock = clock
        self._is_broken = is_broken
        self._failures = failures
        self._open_s = open_s
        self._timeout_s = timeout_s
        self._row = 0
        self._until = 0.0
        self._probes = 0
        self._lock = threading.Lock()

    def allow(self) -> bool:
        """Return whether a call may be made; half-open allows only the first.

        After an allowed call, report `succeeded` or `failed`.
        """
        return self._admitted() is not None

    def _admitted(self) -> int | None:
        """Return the number of probes so far if a call is allowed; else None."""
        with self._lock:
            if self.state == "open" and self._clock() >= self._until:
                self.state = "half_open"
                self._probes += 1
                return self._probes
            if self.state == "closed":
                return self._probes
            self.refused += 1
            return None

    def succeeded(self) -> None:
        """Report a successful call."""
        with self._lock:
            self.state = "closed"
            self._row = 0

    def failed(self) -> None:
        """Report a failed call; no effect while open."""
        with self._lock:
            if self.state == "open":
                return
            self._row += 1
            if self.state == "half_open" or self._row >= self._failures:
                self.opened += 1
                self.state = "open"
                self._until = self._clock() + self._open_s

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make a call if allowed.

        Raises:
            Refused: the breaker is open, or the call failed or timed out.
        """
        probes = self._admitted()
        if probes is None:
            raise self._unavailable("failed recently and is paused")
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await make()
        except (asyncio.CancelledError, GivenUp):
            self._abandoned(probes)
            raise
        except Exception as error:
            if not self._is_broken(error):
                self.succeeded()
                raise
            if probes == self._probes:  # a call from before a probe is outdated
                self.failed()
            raise self._unavailable("does not respond") from error
        self.succeeded()
        return result

    def _abandoned(self, probes: int) -> None:
        """Handle a cancelled call; a cancelled probe opens the breaker again."""
        with self._lock:
            if self.state == "half_open" and probes == self._probes:
                self.state = "open"

    def _unavailable(self, why: str) -> Refused:
        detail = f"the {self.name} {why}; try again later"
        return Refused.of("unavailable", detail, retry_after_s=max(1.0, self._open_s))
