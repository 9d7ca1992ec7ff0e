"""Who evaluates when: each tenant in its own line, and all of them in turns, a question at a time.

An evaluation may ask thousands of questions. One after the other, that of one tenant would hold up
everybody for a minute. So of each tenant one evaluation runs at a time, beside those of others, and
whichever had the least of the core asks the next question: of n tenants each gets an n-th of its
time, whoever came first and however long a question takes.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from steersman.errors import DataError
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
_KNOWN = 1_000  # tenants of whom it is kept how long theirs took
_LOOK_S = 0.1


class Full(Refused):
    """As many evaluations run and wait as may."""


class Line:
    """Evaluations of many tenants; used by one event loop.

    Args:
        of_tenant: how many of one tenant may run or wait.
        most: how many of all.
        on_waited: told the seconds that each waited for its turn, or until it was given up.
    """

    def __init__(
        self,
        of_tenant: int = MOST_OF_TENANT,
        most: int = MOST,
        on_waited: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._of_tenant, self._most = of_tenant, most
        self._on_waited = on_waited
        self._waiting = 0
        self._inside: dict[UUID, int] = {}
        self._turns: dict[UUID, asyncio.Lock] = {}
        self._took_s: dict[UUID, float] = {}  # the last ones of each, about
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
            Full: as many run and wait as may; it says when there should be room.
        """
        own, every = self._inside.get(tenant, 0), sum(self._inside.values())
        if own >= self._of_tenant or every >= self._most:
            # By its own alone: how long those of others take is nobody's business.
            who, ahead = ("of this tenant ", own) if own >= self._of_tenant else ("", 1)
            count = own if who else every
            took_s = self._took_s.get(tenant, _FIRST_S) if who else _FIRST_S
            again_s = min(_LONGEST_S, max(1.0, ahead * took_s))
            detail = f"{count} evaluations {who}are already running or waiting, the maximum; "
            raise Full.of("unavailable", f"{detail}try again later", retry_after_s=again_s)
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
        loop = asyncio.get_running_loop()
        await self._wait(turn, loop.time)
        begun = loop.time()
        future = loop.run_in_executor(self._pool, work)

        def ended(done: asyncio.Future[T]) -> None:
            if not done.cancelled():
                done.exception()  # whoever waited was told, or went away
            before = self._took_s.pop(tenant, _FIRST_S)
            self._took_s[tenant] = before + (loop.time() - begun - before) / 4
            if len(self._took_s) > _KNOWN:
                del self._took_s[next(iter(self._took_s))]
            turn.release()
            self._forget(tenant)

        future.add_done_callback(ended)
        try:
            return await asyncio.shield(future)
        finally:
            stop.set()

    def states(self) -> dict[tuple[str], int]:
        """Return how many run, and how many wait for their turn."""
        running = sum(turn.locked() for turn in self._turns.values())
        return {("running",): running, ("waiting",): self._waiting}

    async def _wait(self, turn: asyncio.Lock, clock: Callable[[], float]) -> None:
        begun = clock()
        self._waiting += 1
        try:
            await turn.acquire()
        finally:
            self._waiting -= 1
            self._on_waited(clock() - begun)

    def _forget(self, tenant: UUID) -> None:
        turn = self._turns.get(tenant)
        if tenant not in self._inside and turn is not None and not turn.locked():
            del self._turns[tenant]


class Slices:
    """A core that evaluations share by time: who had the least of it comes next.

    A turn may be a question of a millisecond or one of a second, so that turns are weighed by what
    they took. Who was away, waiting for a model, saves nothing up: it begins where the others are.

    Args:
        clock: seconds that never run backwards.

    >>> slices, stop = Slices(), threading.Event()
    >>> with slices.share(stop).turn() as turn, turn.left():
    ...     pass

    Source: Goyal, Vin & Cheng, Start-time Fair Queueing (1996), section 2.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: dict[Share, deque[threading.Event]] = {}
        self._busy = False
        self._reached = 0.0

    def share(self, stop: threading.Event) -> Share:
        """Return the share of an evaluation; threads may take turns of one.

        Args:
            stop: whoever waits for a turn is sent away when it is set.
        """
        return Share(self, stop)

    def take(self, share: Share) -> float:
        """Wait for the core, and return when the turn began.

        Args:
            share: whose turn it is.

        Raises:
            DataError: it was stopped meanwhile; the core is not had.
        """
        with self._guard:
            share.reached = max(self._reached, share.reached)
            if not self._busy:
                self._busy, self._reached = True, share.reached
                return self._clock()
            mine = threading.Event()
            self._waiting.setdefault(share, deque()).append(mine)
        while not mine.wait(_LOOK_S):
            with self._guard:
                # It may have been handed over this very moment.
                if share.stop.is_set() and not mine.is_set():
                    self._leave(share, mine)
                    raise DataError(
                        "the evaluation was stopped while it waited; send fewer at once"
                    )
        return self._clock()

    def pass_on(self, share: Share, began: float) -> float:
        """End a turn, and return when the next of the same began: at once, if it had least.

        Args:
            share: whose turn it is.
            began: when.

        Raises:
            DataError: it was stopped meanwhile; the core is not had.
        """
        with self._guard:
            now = self._clock()
            least = min((one.reached for one in self._waiting), default=math.inf)
            if share.reached + now - began < least:
                share.reached += now - began
                self._reached = share.reached
                return now
        self.give(share, began)
        return self.take(share)

    def _leave(self, share: Share, waits: threading.Event) -> None:
        self._waiting[share].remove(waits)
        if not self._waiting[share]:
            del self._waiting[share]

    def give(self, share: Share, began: float) -> None:
        """Hand the core to whoever had the least of it.

        Args:
            share: whose turn ends.
            began: when.
        """
        with self._guard:
            share.reached += self._clock() - began
            if not self._waiting:
                self._busy = False
                return
            # Of those who had as much, whoever waits longest.
            following = min(self._waiting, key=lambda one: one.reached)
            self._reached = following.reached
            waits = self._waiting[following][0]
            self._leave(following, waits)
            waits.set()


class Share:
    """What one evaluation has of a core; `Slices.share` makes it.

    Args:
        slices: of the core.
        stop: see there.
    """

    def __init__(self, slices: Slices, stop: threading.Event) -> None:
        self._slices, self.stop = slices, stop
        self.reached = 0.0

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for a turn, and have the core.

        Raises:
            DataError: it was stopped meanwhile.
        """
        turn = Turn(self._slices, self)
        turn.take()
        try:
            yield turn
        finally:
            turn.give()


class Turn:
    """A turn of one thread, which it may give up and take again.

    Args:
        slices: of the core.
        share: whose turn it is.
    """

    def __init__(self, slices: Slices, share: Share) -> None:
        self._slices, self._share = slices, share
        self._began: float | None = None

    def take(self) -> None:
        """Wait for the core.

        Raises:
            DataError: it was stopped meanwhile; the core is not had.
        """
        self._began = self._slices.take(self._share)

    def again(self) -> None:
        """End a turn, if the core is had, and begin another, after whoever had less of it.

        Raises:
            DataError: it was stopped meanwhile; the core is not had.
        """
        began, self._began = self._began, None
        if began is None:
            self.take()
        else:
            self._began = self._slices.pass_on(self._share, began)

    def give(self) -> None:
        """Hand the core to whoever comes next; nothing, if it is not had."""
        if self._began is not None:
            began, self._began = self._began, None
            self._slices.give(self._share, began)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let others have the core while something else is waited for."""
        self.give()
        try:
            yield
        finally:
            self.take()
