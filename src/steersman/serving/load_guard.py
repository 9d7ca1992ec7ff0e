"""Load guard: the load state of the service, and what it sheds.

The state follows from two numbers: the rows waiting to be written and the latency of decisions. It
rises quickly and falls slowly to avoid flapping. `SHEDS` declares what is refused in which state.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable


class GuardianState(IntEnum):
    """State of the load guard: NORMAL serves all, BROWNOUT sheds reads, LOCKDOWN decides only.

    >>> GuardianState.LOCKDOWN > GuardianState.NORMAL
    True
    """

    NORMAL = 0
    BROWNOUT = 1
    LOCKDOWN = 2


SHEDS: dict[str, GuardianState] = {
    "read": GuardianState.BROWNOUT,  # explain, status, listing keys
    "search": GuardianState.BROWNOUT,  # costs as much CPU time as a hundred decisions
    "large_batch": GuardianState.BROWNOUT,  # of more than LARGE_BATCH items
    "events": GuardianState.LOCKDOWN,  # clients queue them on disk
}
"""State from which each kind of request is refused; decisions and key revocations are never
refused.
"""
LARGE_BATCH = 100
_RETRY_S = {GuardianState.BROWNOUT: 2.0, GuardianState.LOCKDOWN: 5.0}


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """Thresholds of the load guard.

    Attributes:
        brownout_depth: number of waiting rows for BROWNOUT.
        lockdown_depth: number of waiting rows for LOCKDOWN.
        brownout_ms: mean decision latency over a window for BROWNOUT, in milliseconds.
        lockdown_ms: mean decision latency over a window for LOCKDOWN, in milliseconds.
        window_s: length of the window in seconds; longer than a slow flush.
        least: minimum number of requests in the window; fewer may be the slow first requests of a
            tenant.
        rise_s: time in seconds above a threshold before the state rises.
        fall_s: time in seconds below `calm` times the threshold before the state falls by one.
        calm: share of a threshold, 0 to 1.
    """

    brownout_depth: int = 2_000
    lockdown_depth: int = 10_000
    brownout_ms: float = 250.0
    lockdown_ms: float = 2_000.0
    window_s: float = 1.0
    least: int = 20
    rise_s: float = 0.3
    fall_s: float = 3.0
    calm: float = 0.5


class Guard:
    """Load guard; call `tick` several times a second.

    Args:
        depth: returns the number of rows waiting to be written.
        clock: monotonic clock in seconds.
        limits: thresholds.

    >>> now, waiting = [0.0], [0]
    >>> guard = Guard(lambda: waiting[0], lambda: now[0])
    >>> waiting[0] = 5_000
    >>> guard.tick()
    >>> now[0] = 1.0
    >>> guard.tick()
    >>> guard.state.name
    'BROWNOUT'
    """

    def __init__(
        self,
        depth: Callable[[], int],
        clock: Callable[[], float],
        limits: GuardLimits | None = None,
    ) -> None:
        self.state = GuardianState.NORMAL
        self.changes = 0
        self.depth = depth
        self._clock = clock
        self._limits = limits or GuardLimits()
        self._seconds = 0.0
        self._count = 0
        # Time, seconds and count of each tick in the window.
        self._latest: deque[tuple[float, float, int]] = deque()
        self._latency_ms = 0.0
        self._above_since: float | None = None
        self._least_above = GuardianState.NORMAL
        self._below_since: float | None = None

    @property
    def latency_ms(self) -> float:
        """Mean recent decision latency in milliseconds; 0 with too few decisions."""
        return self._latency_ms

    def observe(self, seconds: float) -> None:
        """Count one answered decide request.

        Args:
            seconds: duration in seconds after its decision points were found.
        """
        self._seconds += seconds
        self._count += 1

    def refuse(self, what: str) -> None:
        """Refuse a request that the present state sheds.

        Raises:
            Refused: the state sheds it; the answer says when to retry.
        """
        if self.state >= SHEDS[what]:
            detail = (
                f"overloaded ({self.state.name}): the service rejects {what.replace('_', ' ')}; "
            )
            detail += "it still answers decisions; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=_RETRY_S[self.state])

    def tick(self) -> None:
        """Measure depth and latency, and change the state if a condition has lasted long enough."""
        now, depth = self._clock(), self.depth()
        self._latency_ms = self._mean_ms(now)
        wanted = self._level(depth, 1.0)
        bearable = self._level(depth, self._limits.calm)
        self._least_above = wanted if self._above_since is None else min(wanted, self._least_above)
        self._above_since = _since(self._above_since, now, holds=wanted > self.state)
        self._below_since = _since(self._below_since, now, holds=bearable < self.state)
        if self._above_since is not None and now - self._above_since >= self._limits.rise_s:
            self._change(self._least_above)  # ignores a short peak
        elif self._below_since is not None and now - self._below_since >= self._limits.fall_s:
            self._change(GuardianState(self.state - 1))

    def _mean_ms(self, now: float) -> float:
        self._latest.append((now, self._seconds, self._count))
        self._seconds, self._count = 0.0, 0
        while now - self._latest[0][0] >= self._limits.window_s:
            self._latest.popleft()
        count = sum(many for _, _, many in self._latest)
        total_s = sum(seconds for _, seconds, _ in self._latest)
        return 1e3 * total_s / count if count >= self._limits.least else 0.0

    def _level(self, depth: int, share: float) -> GuardianState:
        limits, latency = self._limits, self._latency_ms
        if depth >= share * limits.lockdown_depth or latency >= share * limits.lockdown_ms:
            return GuardianState.LOCKDOWN
        if depth >= share * limits.brownout_depth or latency >= share * limits.brownout_ms:
            return GuardianState.BROWNOUT
        return GuardianState.NORMAL

    def _change(self, state: GuardianState) -> None:
        self.state = state
        self.changes += 1
        self._above_since = self._below_since = None


def _since(since: float | None, now: float, *, holds: bool) -> float | None:
    """Return since when a condition holds without a break; None if it does not hold."""
    if not holds:
        return None
    return now if since is None else since
