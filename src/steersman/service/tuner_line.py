"""Who evaluates when: each tenant in its own line, and all of them in turns, a question at a time.

An evaluation may ask thousands of questions. One after the other, that of one tenant would hold up
everybody for a minute. So of each tenant one evaluation runs at a time, beside those of others, and
whichever asked a question just now goes to the end of the line for its next one: of n tenants each
gets an n-th of the core, whoever came first.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

T = TypeVar("T")
MOST_OF_TENANT = 4
"""Evaluations of one tenant, running or waiting."""
MOST = 32
"""Evaluations of all."""
_FIRST_S = 5.0
_LONGEST_S = 60.0


class Line:
    """Evaluations of many tenants; used by one event loop.

    Args:
        of_tenant: how many of one tenant may run or wait.
        most: how many of all.

    No doctest: it needs a loop; ``tests/service/test_tuner_line.py`` shows it.
    """

    def __init__(self, of_tenant: int = MOST_OF_TENANT, most: int = MOST) -> None:
        self._of_tenant, self._most = of_tenant, most
        self._inside: dict[UUID, int] = {}
        self._turns: dict[UUID, asyncio.Lock] = {}
        self._took_s = _FIRST_S  # the last ones, about
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="tuner")

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self, tenant: UUID) -> Iterator[None]:
        """Have a place in the line.

        Args:
            tenant: whose.

        Raises:
            Refused: as many run and wait as may; it says when there should be room.
        """
        own, every = self._inside.get(tenant, 0), sum(self._inside.values())
        if own >= self._of_tenant or every >= self._most:
            who, ahead = ("of yours ", own) if own >= self._of_tenant else ("", 1)
            count = own if who else every
            again_s = min(_LONGEST_S, max(1.0, ahead * self._took_s))
            detail = f"{count} evaluations {who}run or wait already, which is all that may; "
            raise Refused.of("unavailable", f"{detail}try again later", retry_after_s=again_s)
        self._inside[tenant] = own + 1
        try:
            yield
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant]
                self._forget(tenant)

    async def run(self, tenant: UUID, work: Callable[[], T], stop: threading.Event) -> T:
        """Return what a thread makes when it is this tenant's turn.

        Whoever waits may go away; the turn ends when the thread has ended.

        Args:
            tenant: whose; it has a place.
            work: done in a thread.
            stop: set when nobody waits any more.

        Raises:
            Exception: whatever the work raises.
        """
        turn = self._turns.setdefault(tenant, asyncio.Lock())
        await turn.acquire()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        future = loop.run_in_executor(self._pool, work)

        def ended(done: asyncio.Future[T]) -> None:
            if not done.cancelled():
                done.exception()  # whoever waited was told, or went away
            self._took_s += (loop.time() - begun - self._took_s) / 4
            turn.release()
            self._forget(tenant)

        future.add_done_callback(ended)
        try:
            return await asyncio.shield(future)
        finally:
            stop.set()

    def _forget(self, tenant: UUID) -> None:
        turn = self._turns.get(tenant)
        if tenant not in self._inside and turn is not None and not turn.locked():
            del self._turns[tenant]


class Slices:
    """A core that threads share in turns.

    >>> slices = Slices()
    >>> with slices.turn():
    ...     pass
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._busy = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait behind those who waited before, and have the core."""
        self.take()
        try:
            yield
        finally:
            self.give()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let others have the core while something else is waited for; the turn is had before."""
        self.give()
        try:
            yield
        finally:
            self.take()

    def take(self) -> None:
        """Wait behind those who waited before."""
        with self._guard:
            if not self._busy:
                self._busy = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def give(self) -> None:
        """Hand the core to whoever waits longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._busy = False
