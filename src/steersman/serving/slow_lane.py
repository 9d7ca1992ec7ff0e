"""Time-sliced queue for slow draws, so that other requests do not wait for all of them.

A selection takes milliseconds, and a batch may contain hundreds. A turn ends when its time is over;
then the event loop serves other work. Waiting requests take turns item by item, so that a single
request does not wait for another request's batch.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from steersman.serving.micro_batch import hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TURN_S = 0.002

W = TypeVar("W")
B = TypeVar("B")


class Pacing(Generic[W, B]):
    """Queue that starts items one by one, for two milliseconds at a time.

    Args:
        begin: starts items, here one at a time; returns their results. Its exception goes to the
            request.
        settled: returns a future for a started item; None: the result is known.
        clock: monotonic clock in seconds.

    >>> async def main():
    ...     pacing = Pacing(lambda numbers: [-number for number in numbers], lambda _: None)
    ...     return await asyncio.gather(pacing.add([1]), pacing.add([2, 3]))
    >>> asyncio.run(main())
    [[-1], [-2, -3]]
    """

    def __init__(
        self,
        begin: Callable[[Sequence[W]], Sequence[B]],
        settled: Callable[[B], asyncio.Future[Any] | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begin = begin
        self._settled = settled
        self._clock = clock
        self._came: deque[tuple[deque[W], list[B], asyncio.Future[list[B]]]] = deque()

    def add(self, wanted: Sequence[W]) -> asyncio.Future[list[B]]:
        """Queue the items of a request; the first starts in the next loop iteration."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[B]] = loop.create_future()
        if not wanted:
            future.set_result([])
            return future
        if not self._came:
            loop.call_soon(self._turn, loop)
        self._came.append((deque(wanted), [], future))
        return future

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        until = self._clock() + _TURN_S
        while self._came:
            self._one()
            if self._clock() >= until:
                break
        if self._came:
            loop.call_soon(self._turn, loop)

    def _one(self) -> None:
        """Start one item of the request that waits longest; requeue the request if it has more."""
        wanted, begun, future = self._came.popleft()
        if future.done():
            return  # its caller has gone
        try:
            begun += self._begin([wanted.popleft()])
        except Exception as error:  # noqa: BLE001 (raised where the request waits)
            future.set_exception(error)
            return
        if wanted:
            self._came.append((wanted, begun, future))
        else:
            hand_over(future, begun, self._settled)
