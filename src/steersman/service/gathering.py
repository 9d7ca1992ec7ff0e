"""What comes to one process at nearly the same time, begun together.

A turn ends when the event loop came round without bringing more or having anything else to do, when
enough is in hand, or after four milliseconds: a single request waits for one round of an idle loop,
which is nothing, and under load what calls cost is shared among all that came. What is more than
enough waits for the next round of the loop, so that between two turns everything else has its turn
too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_ENOUGH = 32  # of them in hand are not kept waiting for more: the store works meanwhile
_MOST = 256  # in one turn: more together cost no less each, and hold up everything else
_TURN_S = 0.004
_IDLE_S = 3e-5  # what a round of the loop takes that had nothing else to do, at most

W = TypeVar("W")
B = TypeVar("B")


class Gathering(Generic[W, B]):
    """Gathers what is wanted, and begins it turn by turn.

    Args:
        begin: begins what is in a turn, which is 256 at most, unless one request alone wants more;
            returns what became of each, in order. What it raises, everyone of the turn gets.
        settled: tells of what was begun when its result is known; None: it is known already.
        clock: seconds, only ever going on; the event loop's own is too coarse.

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
        """Queue until its turn ends.

        Args:
            wanted: by one request.

        Returns:
            What became of them. Where it is one, and its result not yet known, it resolves when
            that is, so that who waits is woken once.
        """
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
        """Begin, unless the loop just brought more or had other work: more may be on its way.

        Answers are such work, and who gets one asks again.
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
        """Return the requests that came first, as many as one turn may hold."""
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
    """Tell a request what became of all it wanted; of one, when its result is known.

    Args:
        future: that the request waits for.
        begun: what became of each.
        settled: tells of one when its result is known; None: it is known already.
    """

    def wake(_: object = None) -> None:
        if not future.done():
            future.set_result(begun)

    waiting = settled(begun[0]) if len(begun) == 1 else None
    if waiting is None:
        wake()
    else:
        waiting.add_done_callback(wake)
