"""Clock with jump detection, so that a changed system time does not end stages.

The wall clock decides when a window closes; it is compared with a monotonic clock. After a jump
nothing is promoted until the wall clock has been steady for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class ClockReading(NamedTuple):
    """Current time, and whether to trust it.

    Attributes:
        now: seconds since 1970; after a jump at most the time computed from the monotonic clock.
        passed_s: seconds since the last look by the monotonic clock, >= 0.
        doubt: why the wall clock is not trusted now; empty if it is.

    >>> ClockReading(5.0, 1.0, "").doubt
    ''
    """

    now: float
    passed_s: float
    doubt: str


class SteadyClock:
    """Wall clock with a check for jumps.

    Args:
        wall: seconds since 1970.
        monotonic: monotonic clock in seconds.
        tolerance_s: accepted difference between two looks, in seconds.
        steady_s: time without jumps in seconds before the clock is trusted again.

    >>> times = iter([(100.0, 0.0), (101.0, 1.0), (3702.0, 2.0), (3765.0, 65.0)])
    >>> now = [0.0, 0.0]
    >>> clock = SteadyClock(lambda: now[0], lambda: now[1])
    >>> readings = []
    >>> for now[0], now[1] in times:
    ...     readings.append(clock.look())
    >>> [moment.now for moment in readings]
    [100.0, 101.0, 102.0, 3765.0]
    >>> readings[2].doubt
    'the clock jumped by +3600.0 s; it is trusted again after it is steady for 60 s'
    """

    def __init__(
        self,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        tolerance_s: float = 2.0,
        steady_s: float = 60.0,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._tolerance_s = tolerance_s
        self._steady_s = steady_s
        self._offset: float | None = None  # trusted wall clock minus monotonic clock
        self._seen = 0.0  # offset at the last look
        self._since = 0.0  # last jump, on the monotonic clock
        self._last: float | None = None

    def look(self) -> ClockReading:
        """Return the time; call it once per turn."""
        wall, tick = self._wall(), self._monotonic()
        offset = wall - tick
        passed_s = 0.0 if self._last is None else max(0.0, tick - self._last)
        self._last = tick
        if self._offset is None:
            self._offset = self._seen = offset
        if abs(offset - self._seen) > self._tolerance_s:
            self._since = tick
        self._seen = offset
        jump = offset - self._offset
        if abs(jump) <= self._tolerance_s or tick - self._since >= self._steady_s:
            self._offset = offset  # follows slow drift at once, and a jump after it has lasted
            return ClockReading(wall, passed_s, "")
        doubt = f"the clock jumped by {jump:+.1f} s; it is trusted again after it is steady for "
        return ClockReading(
            min(wall, tick + self._offset), passed_s, f"{doubt}{self._steady_s:g} s"
        )
