"""Two queues before the draw: micro-batches of requests, and a slow lane for selections.

A batch is ready when the event loop is idle or brings no more requests, when the batch is full, or
after four milliseconds. A single request waits for one idle loop iteration. Under load the batch
shares the fixed cost of a call. Requests beyond a full batch wait for the next loop iteration, so
that other work runs between two batches. The slow lane gives out its items one by one, for two
milliseconds of each loop iteration.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ENOUGH = 32  # decisions that start a batch at once; the store works in parallel
_MOST = 256  # decisions per batch; larger batches are not faster and block other work
_BATCH_S = 0.004
_IDLE_S = 3e-5  # maximum duration of an idle loop iteration
_SLOW_S = 0.002

W = TypeVar("W")
B = TypeVar("B")


class Entry(Generic[W, B]):
    """Items of one request, and the future of their results.

    Args:
        items: the items.
        future: resolves to one result per item.
    """

    __slots__ = ("future", "items", "results")

    def __init__(self, items: Sequence[W], future: asyncio.Future[list[B]]) -> None:
        self.items = items
        self.results: list[B] = []
        self.future = future


class MicroBatch(Generic[W, B]):
    """Queue of requests that are taken in batches.

    Args:
        clock: monotonic clock in seconds; the event loop's own clock is too coarse.

    >>> async def main():
    ...     batch = MicroBatch()
    ...     waiting = [batch.put([1]), batch.put([2, 3])]
    ...     await batch.ready()
    ...     for entry in batch.take():
    ...         entry.future.set_result([-item for item in entry.items])
    ...     return await asyncio.gather(*waiting)
    >>> asyncio.run(main())
    [[-1], [-2, -3]]
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._entries: deque[Entry[W, B]] = deque()
        self._items = 0
        self._until = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, items: Sequence[W]) -> asyncio.Future[list[B]]:
        """Queue the items of one request."""
        if not self._entries:
            # Once per batch, because `asyncio` makes a system call for it.
            self._loop = asyncio.get_running_loop()
            self._until = self._clock() + _BATCH_S
        future: asyncio.Future[list[B]] = self._loop.create_future()
        self._entries.append(Entry(items, future))
        self._items += len(items)
        return future

    async def ready(self) -> None:
        """Wait until no more requests arrive, the batch is full enough, or its time is over.

        A busy loop counts as arrivals: it also sends answers, and clients often reply at once.
        """
        seen, last = 0, -inf
        while True:
            came, now = len(self._entries), self._clock()
            busy = came > seen or now - last > _IDLE_S
            if not busy or self._items >= _ENOUGH or now >= self._until:
                return
            seen, last = came, now
            await asyncio.sleep(0)

    def take(self) -> Sequence[Entry[W, B]]:
        """Return the oldest requests that fit into one batch, at least one."""
        entries = self._entries
        if self._items <= _MOST:
            self._entries, self._items = deque(), 0
            return entries
        batch = [entries.popleft()]
        count = len(batch[0].items)
        while entries and count + len(entries[0].items) <= _MOST:
            batch.append(entries.popleft())
            count += len(batch[-1].items)
        self._items -= count
        self._until = 0.0  # the remaining entries need no further wait
        return batch


class SlowLane(Generic[W, B]):
    """Queue of requests whose items are taken one by one, in turn.

    Args:
        clock: monotonic clock in seconds.

    >>> async def main():
    ...     lane = SlowLane()
    ...     waiting = [lane.put([1, 2]), lane.put([3])]
    ...     for entry, item in lane.take():
    ...         entry.results.append(-item)
    ...         print(entry.results)
    >>> asyncio.run(main())
    [-1]
    [-3]
    [-1, -2]
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: deque[Entry[W, B]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, items: Sequence[W]) -> asyncio.Future[list[B]]:
        """Queue the items of one request."""
        future: asyncio.Future[list[B]] = asyncio.get_running_loop().create_future()
        if items:
            self._entries.append(Entry(items, future))
        else:
            future.set_result([])
        return future

    def take(self) -> Iterator[tuple[Entry[W, B], W]]:
        """Yield items for two milliseconds, in turn between the waiting requests.

        The caller appends the item's result to the entry, or settles its future.
        """
        until = self._clock() + _SLOW_S
        while self._entries:
            entry = self._entries.popleft()
            if not entry.future.done():  # done: its caller has left
                yield entry, entry.items[len(entry.results)]
                if len(entry.results) < len(entry.items) and not entry.future.done():
                    self._entries.append(entry)
            if self._clock() >= until:
                return
