"""Micro-batching of requests that arrive nearly at the same time.

A batch starts when the event loop is idle or brings no more requests, when the batch is full, or
after four milliseconds. A single request waits for one idle loop iteration. Under load the batch
shares the fixed cost of a call. Requests beyond a full batch wait for the next loop iteration, so
that other work runs between two batches.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ENOUGH = 32  # waiting decisions are enough for a batch: the store works meanwhile
_MOST = 256  # in one turn: more together cost no less each, and hold up everything else
_TURN_S = 0.004
_IDLE_S = 3e-5  # what a round of the loop takes that had nothing else to do, at most

W = TypeVar("W")
B = TypeVar("B")


class Gathering(Generic[W, B]):
    """Micro-batcher.

    Args:
        begin: starts the requests of a batch, 256 at most unless one request alone has more;
            returns their results in order. Its exception goes to every request of the batch.
        settled: returns a future for a started item; None: the result is known.
        clock: monotonic clock in seconds; the event loop's own clock is too coarse.

    >>> async def main():
    ...     gathering = Gathering(lambda numbers: [len(numbers)] * len(numbers), lambda _: None)
    ...     return await asyncio.gather(gathering.add([1]), gathering.add([2, 3]))
    >>> asyncio.run(main())
    [[3], [3, 3]]
    """

    def __init__(
        self,
        begin: Callable[[Sequence[W]], Sequence[B]],
        settled: Callable[[B], asyncio.Future[Any] | None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._begin = begin
        self._settled = settled
        self._clock = clock
        self._came: deque[tuple[Sequence[W], asyncio.Future[list[B]]]] = deque()
        self._in_hand = 0

    def add(self, wanted: Sequence[W]) -> asyncio.Future[list[B]]:
        """Queue the items of one request."""
        if not self._came:
            # Asked for once a turn: `asyncio` makes a system call of it.
            self._loop = asyncio.get_running_loop()
            now = self._clock()
            self._loop.call_soon(self._end_turn, 0, now, now + _TURN_S)
        future: asyncio.Future[list[B]] = self._loop.create_future()
        self._came.append((wanted, future))
        self._in_hand += len(wanted)
        return future

    def _end_turn(self, seen: int, last: float, until: float) -> None:
        """Start the batch, unless the loop just brought more requests or did other work.

        Answers are such work, and their receivers often send the next request.
        """
        came, now = len(self._came), self._clock()
        busy = came > seen or now - last > _IDLE_S
        if busy and self._in_hand < _ENOUGH and now < until:
            self._loop.call_soon(self._end_turn, came, now, until)
            return
        turn = self._take()
        if self._came:
            self._loop.call_soon(self._end_turn, 0, 0.0, 0.0)  # these have waited already
        try:
            begun: Iterable[B] = iter(self._begin([one for wanted, _ in turn for one in wanted]))
        except Exception as error:  # noqa: BLE001 (raised where the request waits)
            for _, future in turn:
                if not future.done():
                    future.set_exception(error)
            return
        for wanted, future in turn:
            hand_over(future, list(islice(begun, len(wanted))), self._settled)

    def _take(self) -> Sequence[tuple[Sequence[W], asyncio.Future[list[B]]]]:
        """Return the oldest requests that fit into one batch."""
        came = self._came
        if self._in_hand <= _MOST:
            self._came, self._in_hand = deque(), 0
            return came
        turn = [came.popleft()]
        count = len(turn[0][0])
        while came and count + len(came[0][0]) <= _MOST:
            turn.append(came.popleft())
            count += len(turn[-1][0])
        self._in_hand -= count
        return turn


def hand_over(
    future: asyncio.Future[list[B]],
    begun: list[B],
    settled: Callable[[B], asyncio.Future[Any] | None],
) -> None:
    """Resolve the future of a request; for one item, when its result is settled.

    Args:
        settled: returns a future for an item; None: the result is known.
    """

    def wake(_: object = None) -> None:
        if not future.done():
            future.set_result(begun)

    waiting = settled(begun[0]) if len(begun) == 1 else None
    if waiting is None:
        wake()
    else:
        waiting.add_done_callback(wake)


_TURN_S_SLOW_LANE = 0.002


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
        until = self._clock() + _TURN_S_SLOW_LANE
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
